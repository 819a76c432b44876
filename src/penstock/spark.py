"""Windows inside a PySpark program that is there already: DataFrames in, DataFrames out.

Nothing else of Penstock has to be adopted. `import penstock.spark` loads no pyspark; using it does.
"""

# ruff: noqa: PLC0414 (by this form type checkers know that a name is passed on)

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.engines.spark.dataframes.window_aggregate import window_aggregate as window_aggregate

    __all__: list[str]
else:
    defer(__name__, {"penstock.engines.spark.dataframes.window_aggregate": "window_aggregate"})
