"""Latency of a run, by a stamp per round and a histogram per sink, and the breakdown of its time.

End-to-end latency: rows of a round share its stamp, and so do windows that the round closes (WindFlow, 5.4: a
result has the time of the input that triggers it). It is measured per round: a stamp is two numbers in a
ring, and a sink looks it up by the number of the round. Stamps have one writer, the source of the round group
that is first in a round.

The breakdown (WindFlow, 5.4) says whether the time of tasks goes into the work of steps or into moving rows.
It is only taken in runs that are measured: then the calls that do a step's work are wrapped in a stopwatch,
once per batch. In all other runs nothing of it is ever called.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from penstock.engines.ends import SourceReader
from penstock.engines.local.build import ExecutionGraph
from penstock.engines.protocol import Latency, Measurements
from penstock.stages.stage import RowStage, RowStep

RING = 1 << 12
"""Rounds whose stamps are kept; what takes longer than so many rounds of its group is not counted."""
BUCKETS_PER_OCTAVE = 8
"""Buckets between two powers of two."""
N_BUCKETS = 64 * BUCKETS_PER_OCTAVE


class Histogram:
    """Counts of durations, in buckets that grow by an eighth of a power of two."""

    def __init__(self) -> None:
        self._counts = [0] * N_BUCKETS
        self._n = self._most = 0

    def add(self, us: int, n: int) -> None:
        """Add `n` rows that took `us` microseconds."""
        self._counts[bucket_of(us)] += n
        self._n += n
        self._most = max(self._most, us)

    def latency(self) -> Latency:
        """Return its quantiles."""
        return Latency(self._n, self._quantile(0.50), self._quantile(0.95), self._quantile(0.99), self._most)

    def _quantile(self, share: float) -> int:
        """Return the duration that a share of all rows did not exceed."""
        bucket = int(np.searchsorted(np.cumsum(self._counts), share * self._n))
        return min(upper_bound_of(bucket), self._most)


def bucket_of(us: int) -> int:
    """Return the bucket of a duration.

    >>> [bucket_of(us) for us in (0, 1, 7, 8, 15, 16, 17, 18, 31, 32)]
    [0, 1, 7, 8, 15, 16, 16, 17, 23, 24]
    """
    us = max(us, 0)
    power = us.bit_length() - BUCKETS_PER_OCTAVE.bit_length()
    return us if power < 0 else power * BUCKETS_PER_OCTAVE + (us >> power)


def upper_bound_of(bucket: int) -> int:
    """Return the greatest duration in a bucket.

    >>> [upper_bound_of(bucket_of(us)) for us in (0, 7, 15, 16, 100, 1000)]
    [0, 7, 15, 17, 103, 1023]
    """
    power = max(bucket // BUCKETS_PER_OCTAVE - 1, 0)
    return ((bucket - power * BUCKETS_PER_OCTAVE + 1) << power) - 1


class LatencyTracker:
    """The stamps of a run's rounds, and a histogram per sink."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamps: dict[int, tuple[array[int], array[int]]] = {}
        self._sinks: dict[str, Histogram] = {}

    def stamp(self, round_group: int, number: int, now: int) -> None:
        """Stamp a round that was read; of the sources of a group the first counts."""
        if round_group not in self._stamps:
            with self._lock:
                self._stamps.setdefault(round_group, (array("q", [-1] * RING), array("q", [0] * RING)))
        numbers, stamps = self._stamps[round_group]
        place = number % RING
        if numbers[place] != number:
            stamps[place] = now
            numbers[place] = number

    def record_commit(
        self, round_group: int, number: int, rows: Mapping[str, int], now: int
    ) -> dict[str, int]:
        """Record the rows of a round that sinks have committed; return the latency of each sink."""
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
        """Return the latency of each sink that has got rows."""
        with self._lock:
            return {sink: histogram.latency() for sink, histogram in self._sinks.items()}


_YIELDING = ("process", "on_batch", "on_round", "on_watermark", "drain")
"""Methods of stages that yield their results: only the time inside the generator is the stage's work."""
_RETURNING = ("next", "write", "resume")
"""Methods of stages, readers, writers and process operators that are work from beginning to end."""


class Stopwatch:
    """Measures the calls of one stage, reader, writer or process operator; nested calls count once."""

    def __init__(self, now: Callable[[], int], worker: Any) -> None:
        self._now, self._running = now, False
        self.ns = self.held_nbytes = 0
        self._nbytes = partial(getattr, worker, "nbytes", 0)
        for names, wrap in ((_YIELDING, self._wrap_yielding), (_RETURNING, self._wrap)):
            for name in names:
                call = getattr(worker, name, None)
                if call is not None:
                    setattr(worker, name, wrap(call))
        if isinstance(worker, RowStage):
            worker.row_step = partial(self._wrap_row_step, worker.row_step)  # type: ignore[method-assign]
        if isinstance(worker, SourceReader):
            worker.open = partial(self._wrap_items, worker.open)  # type: ignore[method-assign]

    def _wrap_row_step(self, row_step: Callable[[], RowStep | None]) -> RowStep | None:
        """Return a stage's work on single rows (`row_path.py`), measured."""
        step = row_step()
        return None if step is None else replace(step, process=self._wrap(step.process))

    def _wrap_items(self, open_reader: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Return what a reader gives, which the row path takes without `next`, measured."""
        advance, items = self._wrap(next), open_reader()
        return iter(lambda: advance(items, None), None)

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def measure(*arguments: Any) -> Any:
            if self._running:
                return call(*arguments)
            self._running, started_at = True, self._now()
            try:
                return call(*arguments)
            finally:
                self._running = False
                self.ns += self._now() - started_at

        return measure

    def _wrap_yielding(self, call: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
        start = self._wrap(lambda *arguments: iter(call(*arguments)))
        advance = self._wrap(next)

        def measure(*arguments: Any) -> Iterator[Any]:
            results = start(*arguments)
            while (result := advance(results, None)) is not None:
                yield result
            self.held_nbytes = max(self.held_nbytes, self._nbytes())

        return measure


class TimeBreakdown:
    """The stopwatches of a run: one per stage, reader, writer and process operator."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        # By id; the worker is kept so that the id stays its own.
        self._watches: dict[int, tuple[Any, Stopwatch]] = {}

    def observe(self, worker: Any) -> None:
        """Measure a worker from now on; called before anybody else calls it."""
        self._watches[id(worker)] = worker, Stopwatch(self._now, worker)

    def measurements(self, graph: ExecutionGraph, latencies: LatencyTracker) -> Measurements:
        """Return what has been measured so far: only latencies if nothing is observed."""
        if not self._watches:
            return Measurements(latencies.by_sink(), {}, {}, {})
        user = {step.name: 0 for step in graph.plan}
        system, held = dict(user), dict(user)
        for task in graph.tasks:
            workers = [(task.steps[0].name, getattr(task, name, None)) for name in ("loop", "reader")]
            workers += [
                (chained.step.name, getattr(chained, name, None))
                for chained in task.chain
                for name in ("stage", "writer")
            ]
            rest = task.statistics.running_until(self._now())
            for step, worker in workers:
                if id(worker) in self._watches:
                    _, watch = self._watches[id(worker)]
                    user[step] += watch.ns
                    held[step] += watch.held_nbytes
                    rest -= watch.ns
            system[task.steps[0].name] += max(0, rest)
        user_us, system_us = ({step: ns // 1_000 for step, ns in part.items()} for part in (user, system))
        state = {step: nbytes for step, nbytes in held.items() if nbytes}
        return Measurements(latencies.by_sink(), user_us, system_us, state)
