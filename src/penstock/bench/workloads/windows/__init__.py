"""Sliding windows at memory speed: SPRINGALD's experiments (section VI) on the CPU, through the window stage.

`shape.py` says what a case is and makes its rows, `functions.py` what is aggregated, `answer.py` what is
right; `ours.py`, `parts.py` and `peers.py` are the ways, `series.py` the cases, `experiments.py` puts them
together and says what is claimed.
"""

from penstock.bench.workloads.windows.experiments import workload as workload
