"""On Spark: Penstock's windows, Spark's own, group-bys written by hand without windows; and plain ETL.

`rows.py` writes the files of a case and computes the right windows, `ours.py` and `peers.py` are the ways,
`etl.py` has those without windows, `experiments.py` says which are tried on what, in which size, and states
the claims.
"""

from bench.workloads.spark.experiments import workload as workload
