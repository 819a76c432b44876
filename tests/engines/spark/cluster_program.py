"""The dying graph on a cluster, which loses an executor on the way: FOLDER MASTER WORKER.

WORKER is the process of a worker whose executor is killed when the third round is about to be carried. Says
where the executors have the package from.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

import penstock as ps
from penstock.engines import crash_points
from penstock.engines.spark import ahead, jobs
from tests.engines.spark import dying
from tests.engines.spark.listening import with_children

EXECUTOR = b"CoarseGrainedExecutorBackend"


def executors(worker: int) -> list[int]:
    """The executors that a worker runs."""
    children = with_children(worker)[1:]
    return [child for child in children if EXECUTOR in Path(f"/proc/{child}/cmdline").read_bytes()]


def main(folder: Path, master: str, worker: int) -> None:
    """Run, and lose an executor."""
    turns = 0

    def heard(point: str) -> None:
        nonlocal turns
        turns += point == crash_points.READ
        if turns == 3 and point == crash_points.READ:
            for executor in executors(worker):
                os.kill(executor, signal.SIGKILL)
                print("killed", flush=True)

    ahead.MOST_ROUNDS = 1
    jobs.LITTLE_SENT = -1  # so that every executor has work in every round
    crash_points.listener = heard
    dying.run(folder, "spark", master=master, options=ps.SparkOptions(partitions=4))
    print(*sorted(set(packages())), flush=True)


def packages() -> list[str]:
    """Where the executors import the package from."""
    from pyspark.sql import SparkSession

    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import penstock

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"file": [str(penstock.__file__)] * batch.num_rows})

    spark = SparkSession.builder.getOrCreate()
    found = spark.range(4, numPartitions=4).mapInArrow(seen, "file string").toArrow()
    files: list[str] = found["file"].to_pylist()
    return files


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
