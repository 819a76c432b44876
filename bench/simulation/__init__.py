"""The in-process engine's policies in virtual time, on as many simulated cores as one likes.

`topology.py` has C-Stream's four graphs of busy operators, `machine.py` runs them with the real schedulers
and the real statistics, `adaptation.py` lets the real controllers change threads and replicas meanwhile, and
`best_fixed.py` searches for the best configuration that does not change.
"""
