"""Worker processes: replicas of plain-Python functions on as many cores as there are replicas.

A worker process is forked before a run's threads start, so functions need not travel. Batches go there and
back as Arrow through anonymous shared memory; what failed comes back as data.
"""
