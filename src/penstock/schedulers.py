"""Which task runs next in process: schedulers by name, and how to add one of your own (`docs/in-process.md`).

A scheduler has `choose(ready, worker, now)` and returns one of the tasks that are ready; it looks at their
`statistics`. `LocalOptions(scheduler="name")` asks for one by the name that it was registered under.
`suggest_parallelism` proposes replicas for the next run from the statistics of this one.
"""

from penstock.engines.local.elastic.sample import suggest_parallelism
from penstock.engines.local.schedulers import Preset, Ready, Scheduler, names, register

__all__ = ["Preset", "Ready", "Scheduler", "names", "register", "suggest_parallelism"]
