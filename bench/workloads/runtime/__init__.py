"""The in-process engine: the cost of a step, a row, a start and a slow sink, YSB, and runs that are stopped.

`step_cost.py`, `ysb.py`, `row_at_a_time.py`, `latency.py`, `live.py`, `busy_stops.py`, `startup.py` and
`backpressure.py` are the experiments, each with its cases, ways and right answers; `experiments.py` puts them
together and states the claims.
"""

from bench.workloads.runtime.experiments import workload as workload
