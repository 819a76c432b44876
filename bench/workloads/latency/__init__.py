"""Latency of five applications at 10,000 rows a second (WindFlow, 5.4), in process and in Flink SQL.

`rows.py` has the rows of each and which row caused which result, `programs.py` runs them.
"""

from bench.workloads.latency.experiments import workload as workload
