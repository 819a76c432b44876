"""Schedulers: the protocol, the five policies of C-Stream (3.2.6), presets, and the registry of names.

A scheduler picks the next task for a worker. It sees tasks only through their statistics, which it must not
change, and knows no clock: the time comes with the question. Several workers may ask it, but never two at
once: the pool holds its lock while it asks. When a task has run for a quantum, the scheduler is asked again.

A preset is a scheduler with the quantum and queue sizes that serve low latency, or high throughput. From
C-Stream's experiments (5.1): LeastRecentlyRun has the lowest latency on most topologies, Random a good
throughput on all of them. Short queues bound how long a row can wait; long quanta spread the price of a
switch over more rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from random import Random as RandomNumbers
from typing import Protocol, TypeVar

from penstock.caller import find_definition
from penstock.engines.local.metrics.statistics import TaskStatistics
from penstock.errors import EngineError, describe_cause, nearest_first
from penstock.frozen import Frozen, dataclass


class Ready(Protocol):
    """A task that could run now."""

    @property
    def statistics(self) -> TaskStatistics:
        """Return what it has counted so far: to look at, not to change."""


N = TypeVar("N", bound=Ready)


class Scheduler(Protocol):
    """Picks the next task.

    Users write their own like this, and run with `LocalOptions(scheduler="sinks-first")`:

    >>> class SinksFirst:
    ...     def choose(self, ready, worker, now):
    ...         return min(ready, key=lambda task: len(task.statistics.outputs))
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Return one of `ready` (never empty), for worker number `worker`, at `now` nanoseconds."""


@dataclass(frozen=True, slots=True)
class Random:
    """Picks any ready task at random.

    It keeps no order and needs no statistics, and the paper finds it robust in throughput on every topology.
    The random numbers come from outside, so that a seed replays a run.
    """

    random: RandomNumbers

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implement `Scheduler.choose`."""
        return self.random.choice(ready)


class LeastRecentlyRun:
    """Picks the task that ran longest ago; tasks that never ran come first, in the order of the graph.

    Every task gets its turn, so rows do not pile up anywhere for long: the paper finds the lowest latencies
    with it on chains, trees and parallel replicas.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implement `Scheduler.choose`."""
        return min(ready, key=lambda task: _last_ran(task.statistics))


class MaxQueueLength(Random):
    """Picks a source if one is ready, else the task with the most rows waiting; ties are broken at random.

    Long quanta over full queues: good throughput on trees and parallel replicas, at the price of latency,
    because a short queue waits until the long ones are empty.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implement `Scheduler.choose`."""
        waiting = [task.statistics for task in ready]
        lengths = [counted.waiting_rows if counted.inputs else inf for counted in waiting]
        longest = max(lengths)
        ties = [task for task, length in zip(ready, lengths, strict=True) if length == longest]
        return super().choose(ties, worker, now)


class MaxRunningTime:
    """Picks the task that can run longest before it must block.

    A task can read for as long as its input ports hold rows at the rate it reads them, and write for as long
    as its subscribers have room at the rate it writes; the shortest of these is how long it can run. Rates
    are rows per nanosecond of running time over its last quanta. A task without a rate yet may run for ever,
    so it is tried early; ties go to the one that ran longest ago.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implement `Scheduler.choose`."""
        return max(ready, key=lambda task: (can_run_for(task.statistics), -_last_ran(task.statistics)))


def can_run_for(statistics: TaskStatistics) -> float:
    """Return the nanoseconds until the first port is empty or the first subscriber is full."""
    if not statistics.recent_ns:
        return inf
    # Per port with a rate: how many times the rows of the last quanta it has, or has room for.
    n_quanta = [port.waiting_rows / port.recent_rows for port in statistics.inputs if port.recent_rows]
    n_quanta += [
        min(port.space for port in out.subscribers) / out.recent_rows
        for out in statistics.outputs
        if out.recent_rows and out.subscribers
    ]
    return min(n_quanta, default=inf) * statistics.recent_ns


class MinLatency:
    """Picks the task whose front row has waited longest (the paper's plots call it MaxTupleWait).

    A batch is stamped when it is put into a port; the oldest front goes first. Sources have no queue, so the
    time of their last quantum stands in for the stamp.
    """

    def choose(self, ready: Sequence[N], worker: int, now: int) -> N:
        """Implement `Scheduler.choose`."""

        def front_stamp(task: N) -> float:
            oldest = task.statistics.oldest
            empty = inf if task.statistics.inputs else _last_ran(task.statistics)
            return empty if oldest is None else oldest

        return min(ready, key=front_stamp)


def _last_ran(statistics: TaskStatistics) -> int:
    """Return when a task ran last; before all others if it never did."""
    last = statistics.last_ran
    return -1 if last is None else last


class Preset(Frozen):
    """A scheduler and the sizes that go with it; what a run's options name beside it wins.

    scheduler   name of the scheduler
    quantum_ns  how long a task runs before another gets the worker
    queue_size  batches that fit into a channel
    """

    scheduler: str
    quantum_ns: int
    queue_size: int


PRESETS = {
    "latency": Preset("least-recently-run", quantum_ns=1_000_000, queue_size=16),
    "throughput": Preset("random", quantum_ns=50_000_000, queue_size=64),
}


def preset_of(name: str) -> Preset:
    """Return the preset of a name; the name of a scheduler comes with the sizes of `throughput`."""
    sizes = PRESETS["throughput"]
    return PRESETS.get(name) or Preset(name, sizes.quantum_ns, sizes.queue_size)


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
    """Offer a scheduler to `LocalOptions(scheduler=name)`.

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
    """Return every name that `LocalOptions(scheduler=...)` accepts."""
    return sorted({*BUILT_IN, *PRESETS, *_registered})


def make_scheduler(name: str, random: RandomNumbers) -> Scheduler:
    """Return a new scheduler for a run; raise an error that lists the names if there is no such one."""
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
