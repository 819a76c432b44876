"""The process from which Spark forks its Python workers, with everything loaded that a stage needs.

Spark starts it as `python -m`, by the setting `spark.python.daemon.module`. Loading Numba and the compiled
loops takes most of a second; done here it is paid once, and every forked worker finds them ready. What is
loaded is kept out of the collector's sight: Spark's workers collect after every task, and would look through
all of it each time. No thread may be started before the fork, so nothing is computed here.
"""

from __future__ import annotations

import contextlib
import gc
import importlib

from pyspark.daemon import manager

# Modules that a worker would otherwise import on its first task.
LOADED = (
    "pyarrow.parquet",
    "pyspark.worker",
    "penstock.engines.spark.fragment_task",
    "penstock.engines.spark.types",
    "penstock.stages.window.stage",
)


def preload() -> None:
    """Import what stages need and load every compiled loop.

    A worker without a module says so itself, in its task, where the run can report it; here it would only
    keep Spark waiting.
    """
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from penstock.kernels.build import build

    build()


if __name__ == "__main__":
    preload()
    gc.collect()
    gc.freeze()
    manager()
