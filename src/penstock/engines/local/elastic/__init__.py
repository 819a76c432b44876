"""Elasticity: how many threads run the nodes, and how many replicas a step has, decided while rows flow.

Pure and without a clock: `sample.py` sums up an adaptation period from the nodes' statistics, `controller.py`
answers with decisions and their reasons, and whoever runs the nodes carries them out. `threads.py` holds
C-Stream's rule for the pool (4.1), `bottleneck.py` its Algorithm 9, `demand.py` WindFlow's weights (5.3),
which say how far to go in one period, and `trial.py` takes back what brought nothing. `live.py` does this
on a run under way; `suggest.py` proposes replicas for the next one.
"""
