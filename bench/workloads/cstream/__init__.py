"""C-Stream's experiments (section 5): real runs of busy operators, and the adaptation in virtual time.

`busy.py` is an operator that keeps a core busy without the GIL, `shapes.py` the four topologies as graphs,
`real.py` the runs by topology, scheduler and threads, `virtual.py` the controller on simulated cores;
`experiments.py` puts them together and says what is claimed.
"""

from bench.workloads.cstream.experiments import workload as workload
