"""Sustainable throughput of SWA, YSB and YSB* (AIR, 5.2): in process, on Spark, by hand, in Flink.

`feed.py` has the rows at a rate and the stop-watch, `systems.py` the programs; `bench/sustainable.py` is the
search.
"""

from bench.workloads.sustainable.experiments import workload as workload
