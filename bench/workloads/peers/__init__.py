"""Applications of AIR and WindFlow in their form of columns, beside what people would use instead.

`queries.py` and `last_rows.py` have the data, the right answers and our programs; `bench/peers` the other
systems, each in an environment of its own; `experiments.py` puts them together and states the claims.
"""

from bench.workloads.peers.experiments import workload as workload
