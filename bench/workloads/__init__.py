"""The benchmarks, one per file. Each offers `workload(size)`, where size is "quick" or "full".

To add one: write `NAME.py` here with its data (seeded), its ways, an oracle and, if it is meant to
show something, its claims. `python -m bench NAME` finds it by its file name.
"""
