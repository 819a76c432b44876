"""Schedulers: who runs next. Five from C-Stream (3.2.6), two presets, and `register` for your own.

`protocol.py` says what a scheduler is, `registry.py` finds one by name; one scheduler per file.
"""

from typing import TYPE_CHECKING

from penstock.lazy import defer

if TYPE_CHECKING:
    from penstock.engines.local.schedulers.policies import LeastRecentlyRun as LeastRecentlyRun
    from penstock.engines.local.schedulers.policies import MaxQueueLength as MaxQueueLength
    from penstock.engines.local.schedulers.policies import MaxRunningTime as MaxRunningTime
    from penstock.engines.local.schedulers.policies import MinLatency as MinLatency
    from penstock.engines.local.schedulers.policies import Random as Random
    from penstock.engines.local.schedulers.protocol import Ready as Ready
    from penstock.engines.local.schedulers.protocol import Scheduler as Scheduler
    from penstock.engines.local.schedulers.registry import Preset as Preset
    from penstock.engines.local.schedulers.registry import make_scheduler as make_scheduler
    from penstock.engines.local.schedulers.registry import names as names
    from penstock.engines.local.schedulers.registry import preset_of as preset_of
    from penstock.engines.local.schedulers.registry import register as register

    __all__: list[str]
else:
    defer(
        __name__,
        {
            "penstock.engines.local.schedulers.policies": (
                "LeastRecentlyRun MaxQueueLength MaxRunningTime MinLatency Random"
            ),
            "penstock.engines.local.schedulers.protocol": "Ready Scheduler",
            "penstock.engines.local.schedulers.registry": "Preset make_scheduler names preset_of register",
        },
    )
