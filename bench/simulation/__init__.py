"""The in-process engine's policies in virtual time, on any number of simulated cores.

`topology.py` has C-Stream's four graphs of busy operators, `replicas.py` their replicas and queues,
`machine.py` runs them with the real schedulers and statistics, `adaptation.py` lets the real controller
change threads and replicas during the run, and `best_fixed.py` searches for the best fixed configuration.
"""
