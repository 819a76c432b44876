"""C-Stream's experiments (section 5): real runs of busy operators, and the adaptation in virtual time.

The four topologies are those of `penstock.apps.busy_operators`. `schedulers.py` has the runs by topology,
scheduler and threads, `elastic.py` the controller on this machine, `virtual_time.py` the controller on
simulated cores; `experiments.py` puts them together and states the claims.
"""

from bench.workloads.cstream.experiments import workload as workload
