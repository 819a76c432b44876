"""Who runs next in process: schedulers by name, and how to add one of your own (`docs/in-process.md`).

A scheduler has `choose(ready, worker, now)` and gives one of the nodes that are ready; it looks at their
`statistics`. `LocalOptions(scheduler="name")` asks for one by the name that it was registered under.
"""

from penstock.engines.local.schedulers import Preset, Ready, Scheduler, names, register

__all__ = ["Preset", "Ready", "Scheduler", "names", "register"]
