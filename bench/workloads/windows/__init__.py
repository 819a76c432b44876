"""Sliding windows at memory speed: SPRINGALD's experiments (section VI) on the CPU, through the window stage.

`shape.py` says what a case is and draws its rows, `answer.py` computes the right windows. `stage.py`,
`breakdown.py` and `peers.py` are the ways, `experiment.py` lists them and builds sweeps. `sliding.py`,
`keyed.py` and `arrival.py` are the experiments; `experiments.py` puts them together and states the claims.
"""

from bench.workloads.windows.experiments import workload as workload
