"""Sliding windows at memory speed: SPRINGALD's experiments (section VI) on the CPU, through the window stage.

`shape.py` says what a case is and makes its rows, `functions.py` what is aggregated, `answer.py` what is
right. `ours.py`, `watched.py`, `threads.py`, `parts.py` and `peers.py` are the ways, `ways.py` lists them.
`sliding.py`, `keyed.py` and `arriving.py` are the experiments, made with `experiment.py`; `experiments.py`
puts them together and says what is claimed.
"""

from bench.workloads.windows.experiments import workload as workload
