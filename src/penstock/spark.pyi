# The names of this package and the modules they are in; penstock.lazy loads them on demand.

from penstock.engines.spark.dataframes.verbs import window_aggregate as window_aggregate
from penstock.engines.spark.dataframes.verbs import window_join as window_join

__all__: list[str]
