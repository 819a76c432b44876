"""The reference engine: the semantics in plain Python, slow and obvious, the judge of the other engines.

`docs/semantics.md` says in words what these files say in code. Rows are plain values in dicts; Arrow is
touched only where batches come in (`source.py`, batch functions) and go out (sinks, collected ports).
"""
