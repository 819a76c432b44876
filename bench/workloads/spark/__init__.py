"""Windows on Spark: Penstock's plan, Spark's own, and group-bys written by hand without windows.

`rows.py` writes the files of a case and computes the right windows, `ours.py` and `peers.py` are the ways,
`experiments.py` says which are tried on what, in which size, and states the claims.
"""

from bench.workloads.spark.experiments import workload as workload
