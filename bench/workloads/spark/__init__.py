"""Windows on Spark: Penstock's plan, Spark's own, and what a person would write without windows.

`rows.py` writes the files of a case and knows the right windows, `ours.py` and `peers.py` are the ways,
`experiments.py` says which are tried on what, in which size, and what is claimed.
"""

from bench.workloads.spark.experiments import workload as workload
