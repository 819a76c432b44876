"""Put the Spark engine to the test from outside: kill processes while programs run, and compare every row.

`programs.py` has the programs, `child.py` runs them in a process of its own, `rows.py` draws their input and
compares what sinks show, `kills.py` plans the kills by a seed, `campaign.py` starts a cluster, kills and
judges, `command.py` is `python -m bench faults`. `mutations.py` damages what runs leave on the disk. But for
that one only public names of Penstock are used, so any engine behind
them can be tested.
"""
