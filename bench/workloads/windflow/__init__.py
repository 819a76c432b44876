"""WindFlow's tables and figures (5.2 to 5.5) on its seven applications, and AIR's figure 10 on a cluster.

`programs.py` runs an application and checks its answer, `figures.py` has the experiments of WindFlow,
`breakdown.py` where the time goes and the blocks of Table 3, `cluster.py` and `driver.py` the
experiment of AIR; `experiments.py` puts them together.
"""

from bench.workloads.windflow.experiments import workload as workload
