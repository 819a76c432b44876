"""AIR's SWA, YSB and YSB* and WindFlow's WordCount, beside what people would use instead.

`queries.py` has the data, the right answers and our programs; `bench/peers` the other systems, each in an
environment of its own; `experiments.py` puts them together and states the claims.
"""

from bench.workloads.peers.experiments import workload as workload
