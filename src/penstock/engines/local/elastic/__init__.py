"""Elasticity: how many threads run the tasks, and how many replicas a step has, decided while rows flow.

`sample.py` sums up an adaptation period from the statistics of the tasks, `controller.py` decides (C-Stream,
4) and carries the decisions out on a run. `rescale.py` gives the buckets of a step with state new
owners.
"""
