"""The in-process engine: what a step, a row, a start and a slow sink cost, and YSB.

`chain.py`, `campaigns.py`, `by_row.py`, `latency.py`, `first_result.py` and `slow_sink.py` are the
experiments, each with its cases, ways and right answers; `experiments.py` puts them together and says what is
claimed.
"""

from bench.workloads.runtime.experiments import workload as workload
