"""Windows inside a PySpark program that is there already: DataFrames in, DataFrames out.

Nothing else of Penstock has to be adopted. `import penstock.spark` loads no pyspark; the first call does.
"""

from penstock.engines.spark.dataframes.window_aggregate import window_aggregate

__all__ = ["window_aggregate"]
