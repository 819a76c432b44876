# The names of this package and the modules they are in; penstock.lazy loads them on demand.

from penstock.engines.spark.dataframes.window_aggregate import window_aggregate as window_aggregate

__all__: list[str]
