"""The window join: DP-Join's experiments (section 5) on the join stage, in virtual time, and on Spark.

`streams.py` draws the two streams of the paper and knows their right pairs. `stage.py` runs the join stage,
`peers.py` and `kang.py` what it is compared with, `band.py` puts that together. `layouts.py` has layouts on
the cores of this machine, `virtual_time.py` those that need more of them, `latency.py` single rows through
the in-process engine, `spark_joins.py` joins on Spark; `experiments.py` states the claims.
"""

from bench.workloads.join.experiments import workload as workload
