"""End-to-end latency: a stamp per round where it is read, and a histogram per sink where it is committed.

Rows of a round share its stamp, and so do windows that a round lets go (WindFlow, 5.4: what an input makes
leave has its time). Counted per round: a stamp is two numbers in a ring, and a sink looks it up by the
round's number. Stamps have one writer, the source of the round_group that is first in a round.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from penstock.engines.local.tasks.chain import ChainedStep
from penstock.engines.local.topology.network import ExecutionGraph, chain_of
from penstock.engines.protocol import Latency, Measurements

RING = 1 << 12
"""Rounds whose stamps are known; what took longer than so many rounds of its round_group is not counted."""
PARTS = 8
"""Buckets between two powers of two."""
N_BUCKETS = 64 * PARTS


class Histogram:
    """How often what took how long: buckets grow by an eighth of a power of two."""

    def __init__(self) -> None:
        self._counts = [0] * N_BUCKETS
        self._n = self._most = 0

    def add(self, us: int, n: int) -> None:
        """So many rows took so long."""
        self._counts[bucket_of(us)] += n
        self._n += n
        self._most = max(self._most, us)

    def latency(self) -> Latency:
        """What it says."""
        return Latency(self._n, self._at(0.50), self._at(0.95), self._at(0.99), self._most)

    def _at(self, share: float) -> int:
        """So many of all rows took at most so long."""
        left = share * self._n
        for bucket, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                return min(upper_bound_of(bucket), self._most)
        return self._most


def bucket_of(us: int) -> int:
    """The bucket of a length.

    >>> [bucket_of(us) for us in (0, 1, 7, 8, 15, 16, 17, 18, 31, 32)]
    [0, 1, 7, 8, 15, 16, 16, 17, 23, 24]
    """
    us = max(us, 0)
    power = us.bit_length() - PARTS.bit_length()
    return us if power < 0 else power * PARTS + (us >> power)


def upper_bound_of(bucket: int) -> int:
    """The greatest length in a bucket.

    >>> [highest_in(bucket_of(us)) for us in (0, 7, 15, 16, 100, 1000)]
    [0, 7, 15, 17, 103, 1023]
    """
    power = max(bucket // PARTS - 1, 0)
    return ((bucket - power * PARTS + 1) << power) - 1


class LatencyTracker:
    """The stamps of a run, and what its sinks make of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: dict[int, tuple[array[int], array[int]]] = {}
        self._sinks: dict[str, Histogram] = {}

    def stamp(self, round_group: int, number: int, now: int) -> None:
        """A round was read; of sources that go together the first counts."""
        if round_group not in self._stamps:
            with self._lock:
                self._stamps.setdefault(round_group, (array("q", [-1] * RING), array("q", [0] * RING)))
        numbers, stamps = self._stamps[round_group]
        place = number % RING
        if numbers[place] != number:
            stamps[place] = now
            numbers[place] = number

    def committed(self, round_group: int, number: int, rows: Mapping[str, int], now: int) -> dict[str, int]:
        """Sinks have committed so many rows of a round; gives how long it took them to get there."""
        numbers, stamps = self._stamps.get(round_group, ((), ()))
        place = number % RING
        if not numbers or numbers[place] != number:
            return {}
        took = now - stamps[place]
        with self._lock:
            for sink, n in rows.items():
                if n:
                    self._sinks.setdefault(sink, Histogram()).add(took, n)
        return {sink: took for sink, n in rows.items() if n}

    def by_sink(self) -> dict[str, Latency]:
        """What was measured so far, of sinks that have got rows."""
        with self._lock:
            return {sink: histogram.latency() for sink, histogram in self._sinks.items()}


# Where the time of nodes goes: into what steps are there for, or into carrying rows (WindFlow, 5.4).
#
# Only for runs that are measured: then the calls that do a step's work are put into a stop-watch, once per
# batch. In all others nothing here is ever called.

_GIVES = ("made", "on_batch", "on_watermark", "drain")
"""Calls of a stage that give what they made one after the other: only its own share is its work."""
_DOES = ("at_once", "few_rows", "next", "write_batches", "resume")
"""Calls that are work from beginning to end, of stages, readers, writers and own loops."""


class Stopwatch:
    """The stop-watch of one worker: calls inside a call are not counted twice."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now, self._runs = now, False
        self.ns = self.held_nbytes = 0

    def on(self, worker: Any) -> None:
        """Measure the calls of a stage, a reader, a writer or an own loop."""
        self._weigh = partial(getattr, worker, "nbytes", 0)
        for names, timed in ((_GIVES, self._giving), (_DOES, self._doing)):
            for name in names:
                call = getattr(worker, name, None)
                if call is not None:
                    setattr(worker, name, timed(call))

    def _doing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            if self._runs:
                return call(*given)
            self._runs, began = True, self._now()
            try:
                return call(*given)
            finally:
                self._runs = False
                self.ns += self._now() - began

        return timed

    def _giving(self, call: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
        begun = self._doing(lambda *given: iter(call(*given)))
        following = self._doing(next)

        def timed(*given: Any) -> Iterator[Any]:
            made = begun(*given)
            while (each := following(made, None)) is not None:
                yield each
            self.held_nbytes = max(self.held_nbytes, self._weigh())

        return timed


class TimeBreakdown:
    """The stop-watches of a run: one per stage, reader, writer and own loop."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._watches: dict[int, tuple[Any, Stopwatch]] = {}

    def watch(self, worker: Any) -> None:
        """Measure what a worker does, from before anybody calls it."""
        found = Stopwatch(self._now)
        found.on(worker)
        self._watches[id(worker)] = worker, found

    def measurements(self, graph: ExecutionGraph, latencies: LatencyTracker) -> Measurements:
        """What has been measured so far."""
        user = {step.name: 0 for step in graph.plan}
        system, held = dict(user), dict(user)
        for node in graph.tasks:
            own = [
                (chained.step.name, self._ns(worker)) for chained in chain_of(node) for worker in _of(chained)
            ]
            own.append((node.steps[0].name, self._ns(getattr(node, "loop", None))))
            for step, ns in own:
                user[step] += ns
            for chained in chain_of(node):
                held[chained.step.name] += sum(self._held(worker) for worker in _of(chained))
            rest = node.statistics.running_until(self._now()) - sum(ns for _, ns in own)
            system[node.steps[0].name] += max(0, rest)
        user_us, system_us = ({step: ns // 1_000 for step, ns in each.items()} for each in (user, system))
        state = {step: most for step, most in held.items() if most}
        return Measurements(latencies.by_sink(), user_us, system_us, state)

    def _ns(self, worker: Any) -> int:
        found = self._watches.get(id(worker))
        return 0 if found is None else found[1].ns

    def _held(self, worker: Any) -> int:
        found = self._watches.get(id(worker))
        return 0 if found is None else found[1].held_nbytes


def _of(chained: ChainedStep) -> Iterator[Any]:
    """Whoever does the work of a chained."""
    return (getattr(chained, name) for name in ("stage", "reading", "writing") if hasattr(chained, name))
