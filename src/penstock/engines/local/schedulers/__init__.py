"""Schedulers: who runs next. Five from C-Stream (3.2.6), two presets, and `register` for your own.

`protocol.py` says what a scheduler is, `registry.py` finds one by name; one scheduler per file.
"""

from typing import TYPE_CHECKING

from penstock.deferred import defer

if TYPE_CHECKING:
    from penstock.engines.local.schedulers.by_chance import Random as Random
    from penstock.engines.local.schedulers.least_recently_run import LeastRecentlyRun as LeastRecentlyRun
    from penstock.engines.local.schedulers.max_queue_length import MaxQueueLength as MaxQueueLength
    from penstock.engines.local.schedulers.max_running_time import MaxRunningTime as MaxRunningTime
    from penstock.engines.local.schedulers.min_latency import MinLatency as MinLatency
    from penstock.engines.local.schedulers.presets import Preset as Preset
    from penstock.engines.local.schedulers.presets import preset as preset
    from penstock.engines.local.schedulers.protocol import Ready as Ready
    from penstock.engines.local.schedulers.protocol import Scheduler as Scheduler
    from penstock.engines.local.schedulers.registry import make as make
    from penstock.engines.local.schedulers.registry import names as names
    from penstock.engines.local.schedulers.registry import register as register

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.engines.local.schedulers.by_chance": "Random",
            "penstock.engines.local.schedulers.least_recently_run": "LeastRecentlyRun",
            "penstock.engines.local.schedulers.max_queue_length": "MaxQueueLength",
            "penstock.engines.local.schedulers.max_running_time": "MaxRunningTime",
            "penstock.engines.local.schedulers.min_latency": "MinLatency",
            "penstock.engines.local.schedulers.presets": "Preset preset",
            "penstock.engines.local.schedulers.protocol": "Ready Scheduler",
            "penstock.engines.local.schedulers.registry": "make names register",
        },
    )
