"""Schedulers by name: C-Stream's five, two presets, and whatever users register.

A preset is a scheduler with the quantum and queue sizes that serve low latency, or high throughput. From
C-Stream's experiments (5.1): LeastRecentlyRun has the lowest latency on most topologies, Random a good
throughput on all of them. Short queues bound how long a row can wait; long quanta and large batches spread
the price of a switch over more rows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random as RandomNumbers

from penstock.caller import find_definition
from penstock.engines.local.schedulers.policies import (
    LeastRecentlyRun,
    MaxQueueLength,
    MaxRunningTime,
    MinLatency,
    Random,
    Scheduler,
)
from penstock.errors import EngineError, describe_cause, nearest_first
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """A scheduler and the sizes that go with it; what a run's options name beside it wins.

    scheduler   name of the scheduler
    quantum_ns  how long a task runs before another gets the worker
    batch_size  rows sent at a time where the steps say nothing
    queue_size  batches that fit into a channel
    """

    scheduler: str
    quantum_ns: int
    batch_size: int
    queue_size: int


PRESETS = {
    "latency": Preset("least-recently-run", quantum_ns=1_000_000, batch_size=1, queue_size=16),
    "throughput": Preset("random", quantum_ns=50_000_000, batch_size=1_024, queue_size=64),
}


def preset_of(name: str) -> Preset:
    """Returns the preset of a name; the name of a scheduler comes with the sizes of `throughput`."""
    sizes = PRESETS["throughput"]
    return PRESETS.get(name) or Preset(name, sizes.quantum_ns, sizes.batch_size, sizes.queue_size)


Factory = Callable[[RandomNumbers], Scheduler]

BUILT_IN: dict[str, Factory] = {
    "random": Random,
    "max-queue-length": MaxQueueLength,
    "min-latency": lambda random: MinLatency(),
    "least-recently-run": lambda random: LeastRecentlyRun(),
    "max-running-time": lambda random: MaxRunningTime(),
}
_registered: dict[str, Factory] = {}


def register(name: str, factory: Factory) -> None:
    """Offers a scheduler to `LocalOptions(scheduler=name)`.

    factory  called once per run with the run's random numbers; returns an object with `choose(ready, worker,
             now)`. Whatever it draws must come from them, or a seed does not replay a run.

    A built-in name is refused; a name registered before is replaced, so that a notebook cell can run twice.

    >>> class LastReady:
    ...     def choose(self, ready, worker, now):
    ...         return ready[-1]
    >>> register("last-ready", lambda random: LastReady())
    """
    if name in BUILT_IN or name in PRESETS:
        raise EngineError(
            f'the scheduler "{name}" is already there',
            detail=f"ours: {', '.join(sorted([*BUILT_IN, *PRESETS]))}",
            hint=f'register it under another name, such as "my-{name}"',
        )
    if not callable(factory):
        raise EngineError(
            f"the scheduler {name!r} was registered with {factory!r}, which cannot be called",
            hint=f'register("{name}", lambda random: MyScheduler())',
        )
    _registered[name] = factory


def names() -> list[str]:
    """Returns every name that `LocalOptions(scheduler=...)` accepts."""
    return sorted({*BUILT_IN, *PRESETS, *_registered})


def make_scheduler(name: str, random: RandomNumbers) -> Scheduler:
    """Returns a new scheduler for a run; raises an error that lists the names if there is no such one."""
    wanted = preset_of(name).scheduler
    factory = BUILT_IN.get(wanted) or _registered.get(wanted)
    if factory is None:
        near = nearest_first(name, names())
        raise EngineError(
            f'there is no scheduler "{name}"',
            detail=f"available: {', '.join(near)}",
            hint=f'LocalOptions(scheduler="{near[0]}"), or register your own with ps.schedulers.register',
        )
    try:
        scheduler = factory(random)
    except Exception as cause:
        raise EngineError(
            f'the factory of scheduler "{name}" raised {describe_cause(cause)}',
            where=find_definition(factory),
            hint=f'it gets the random numbers of the run: register("{name}", lambda random: MyScheduler())',
        ) from cause
    if not callable(getattr(scheduler, "choose", None)):
        raise EngineError(
            f'the factory of scheduler "{name}" gave {type(scheduler).__name__}, which has no choose',
            hint="give it a method choose(self, ready, worker, now) that returns one of ready",
        )
    return scheduler
