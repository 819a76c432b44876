"""The progress of a run: which rounds have begun, when sources must stop, which rounds are complete.

Sources of one round group read in step. They stop after the same round: whoever is behind goes on to the
round that the first of them has begun, so that nothing that was read is left half-way.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.events import BatchDone, Event, EventSink, RowsErrored, RowsLate, WatermarkMoved, ignore_event
from penstock.frozen import dataclass
from penstock.plan.plan import Step
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from penstock.engines.local.checkpoint import CheckpointCoordinator
    from penstock.engines.local.elastic.rescale import Rescaler
    from penstock.engines.local.metrics.latency import LatencyTracker
    from penstock.engines.local.tasks.task import Task


@dataclass(slots=True)
class _Round:
    """A round in progress: what was read and written, and the terminal tasks that have not completed it."""

    started_at: int
    waits_for: set[int]
    rows_in: dict[str, int]
    rows_out: dict[str, int]
    latency: dict[str, int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)


class Progress:
    """The rounds of a run.

    until  number of rounds to run; None for all
    drain  whether everything is emitted at the end of the input
    first  number of the first round, where an earlier run ended

    in_rounds    rows are processed round by round, all sources in one round group
    is_draining  the run was stopped, and everything is emitted before it ends
    n_committed  number of the first round that no sink has committed, in this run or an earlier one
    n_empty      number of rounds that the clock has made
    n_reading    number of sources that have not ended
    wake         makes a source that stays look again
    is_observed  whether anything happens when a task has completed a round
    next_report  number of the first round whose completion was not reported

    Invariant: `_lock` guards the rounds and limits. Events are queued under it and emitted outside it,
    because a listener may take long, or stop the run.
    """

    def __init__(
        self,
        clock: Clock,
        events: EventSink,
        *,
        until: int | None,
        drain: bool = True,
        first: int = 0,
        in_rounds: bool = False,
        checkpoint: CheckpointCoordinator | None = None,
        latencies: LatencyTracker | None = None,
    ) -> None:
        self.clock, self._events, self.has_listener = clock, events, events is not ignore_event
        self._lock, self._emitting = threading.Lock(), threading.RLock()
        self._queue: deque[Event] = deque()
        self.first, self.in_rounds, self.drain = first, in_rounds, drain
        self._limit = math.inf if until is None else first + until
        self._limits: dict[int, float] = {}
        self._n_begun: dict[int, int] = {}
        self._n_read: dict[int, int] = {}
        self._terminals: dict[int, set[int]] = {}
        self._sources: dict[int, list[str]] = {}
        self._sinks: dict[int, list[str]] = {}
        self._rounds: dict[tuple[int, int], _Round] = {}
        self.next_report = first
        self.n_committed = first
        self.stopping = self.shutdown_requested = self.failed = self.is_draining = False
        self.n_empty = 0
        self.checkpoint, self.latencies = checkpoint, latencies
        self.rescaler: Rescaler | None = None  # where keyed state can move between replicas
        self.n_reading = 0
        self._stayed: list[Task] = []  # of sources that have ended while others read on
        self.wake: Callable[[Task], None] = lambda task: None
        self.is_observed = self.has_listener or checkpoint is not None or latencies is not None
        self.reasons: dict[str, list[str]] = {}  # step -> why rows failed, noted by its replicas

    def add_source(self, round_group: int, step: str) -> None:
        """Add a source to a round group."""
        self._sources.setdefault(round_group, []).append(step)
        self.n_reading += 1

    def add_terminal(self, round_group: int, task: Task, sinks: Iterable[str]) -> None:
        """Add a task at the end of the graph: a round is complete when all of these have completed it."""
        self._terminals.setdefault(round_group, set()).add(task.number)
        self._sinks.setdefault(round_group, []).extend(sinks)

    def begin(self, round_group: int, number: int, *, is_rest: bool = False) -> bool:
        """Begin a round for a source; return False if the source must stop instead.

        is_rest  the round has what is left of a source that ends, so it is beyond the others' last
        """
        with self._lock:
            # Why: sinks that have committed a round take nothing more for it, so it must be as it was.
            is_again = self.is_draining and number < self.n_committed
            if not (is_rest or is_again) and number >= self._limits.get(round_group, self._limit):
                return False
            is_first_source = number + 1 > self._n_begun.get(round_group, self.first)
            self._n_begun[round_group] = max(self._n_begun.get(round_group, self.first), number + 1)
            if self.has_listener and (round_group, number) not in self._rounds:
                self._rounds[round_group, number] = _Round(
                    self.clock.now(),
                    set(self._terminals.get(round_group, ())),
                    dict.fromkeys(self._sources.get(round_group, ()), 0),
                    dict.fromkeys(self._sinks.get(round_group, ()), 0),
                )
            if is_first_source:
                # Why here: checkpoint and rescale choose their round before any source has read a row of it.
                if self.checkpoint is not None:
                    self.checkpoint.begin_round(number)
                rescale = None if self.rescaler is None else self.rescaler.current
                if rescale is not None:
                    rescale.rounds.setdefault(round_group, number)
        if is_first_source and self._stayed:
            self._wake_stayed()
        return True

    def end_source(self, *, stays: Task | None = None) -> None:
        """Record that a source has ended, and is to look again whenever that may concern it if it `stays`."""
        with self._lock:
            self.n_reading -= 1
            if stays is not None:
                self._stayed.append(stays)
        if self._stayed and not self.n_reading:
            self._wake_stayed()

    def _wake_stayed(self) -> None:
        for task in self._stayed:
            self.wake(task)

    def limit(self, round_group: int) -> float:
        """Return the first round that may not begin, unless the run is stopped before."""
        return self._limits.get(round_group, self._limit)

    def is_only_source(self, round_group: int) -> bool:
        """Return whether a single source is in a round group, and no rescale can begin with a round."""
        return len(self._sources.get(round_group, ())) == 1 and self.rescaler is None

    def record_rounds(self, round_group: int, number: int) -> None:
        """Record that the only source of a group has begun and read all rounds before this number."""
        with self._lock:
            self._n_begun[round_group] = max(self._n_begun.get(round_group, self.first), number)
            self._n_read[round_group] = max(self._n_read.get(round_group, 0), number)

    def n_begun(self, round_group: int) -> int:
        """Return the number of the first round of a group that no source has begun."""
        return self._n_begun.get(round_group, self.first)

    def add_empty_round(self, round_group: int) -> None:
        """Record that the clock has made a round: it is none of those that the user has asked for."""
        if len(self._sources.get(round_group, ())) == 1:
            with self._lock:
                self.n_empty += 1
                if not self.stopping:
                    self._limits[round_group] = self._limits.get(round_group, self._limit) + 1

    def stop(self, *, failed: bool = False, drain: bool = False) -> None:
        """Let no new round begin; rounds that have begun are completed.

        If the user has asked for it, and no step has failed, process operators can see that, and leave. With
        `drain` everything is emitted then, as at the end of the input.
        """
        if drain and not failed:
            self.drain = self.is_draining = True
        if failed:
            self.failed, self.is_draining = True, False
        else:
            self.shutdown_requested = True
        with self._lock:
            self.stopping = True
            self._limits = {group: self._n_begun.get(group, self.first) for group in self._sources}
        self._wake_stayed()

    @property
    def rounds(self) -> int:
        """Return the number of the first round whose batches were not read; the draining round has none."""
        return max(self._n_read.values(), default=self.first)

    def stamp_arrival(self, round_group: int, number: int) -> None:
        """Start measuring the latency of a round: its batch is there, or the source has ended."""
        if self.latencies is not None:
            self.latencies.stamp(round_group, number, self.clock.now())

    def record_read(
        self, round_group: int, number: int, step: str, rows: int | None, watermark: float
    ) -> None:
        """Record the number of rows that a source has read in a round, and its watermark behind them.

        rows  None when the source had ended
        """
        if rows is None:
            return
        with self._lock:
            self._n_read[round_group] = max(self._n_read.get(round_group, 0), number + 1)
            if self.has_listener:
                round_ = self._rounds[round_group, number]
                round_.rows_in[step] = rows
                if BEFORE_ALL < watermark < AFTER_ALL:
                    round_.watermarks[step] = int(watermark)

    def complete_round(
        self, task: Task, round_group: int, number: int, written: Mapping[str, int] | None = None
    ) -> None:
        """Record that a task has completed a round, and the rows that its sinks wrote."""
        saved = None if self.checkpoint is None else self.checkpoint.complete_round(task, number)
        if saved is not None:
            self.emit(saved)
        latency = {}
        if self.latencies is not None and written:
            latency = self.latencies.record_commit(round_group, number, written, self.clock.now())
        if not self.has_listener:
            return
        with self._lock:
            round_ = self._rounds.get((round_group, number))
            if round_ is None:
                return
            round_.rows_out |= written or {}
            round_.latency |= latency
            round_.waits_for.discard(task.number)
            self._queue_completed()
        self._emit_queued()

    def end_task(self, task: Task, *, failed: bool) -> None:
        """Record that a task has ended: no round waits for it any more, unless it has failed."""
        saved = None if self.checkpoint is None else self.checkpoint.end_task(task, failed=failed)
        if saved is not None:
            self.emit(saved)
        if not self.has_listener or failed:
            return
        with self._lock:
            for terminals in self._terminals.values():
                terminals.discard(task.number)
            for round_ in self._rounds.values():
                round_.waits_for.discard(task.number)
            self._queue_completed()
        self._emit_queued()

    def _queue_completed(self) -> None:
        """Queue an event for every complete round; the caller holds the lock.

        Invariant: rounds of one group are reported in order, so a complete one waits for those before it.
        """
        incomplete = set()
        for key in sorted(self._rounds):
            round_ = self._rounds[key]
            if round_.waits_for or key[0] in incomplete:
                incomplete.add(key[0])
                continue
            del self._rounds[key]
            now = self.clock.now()
            event = BatchDone(
                now,
                self.next_report,
                round_.rows_in,
                round_.rows_out,
                now - round_.started_at,
                lag_us={name: now - watermark for name, watermark in round_.watermarks.items()},
                latency_us=round_.latency,
            )
            self._queue.append(event)
            self.next_report += 1

    def report_watermark(self, step: str, before: float, after: float) -> None:
        """Report the watermark of a source, to a listener, if a round has moved it."""
        if after > before:
            watermark = None if after == AFTER_ALL else int(after)
            self.emit(WatermarkMoved(self.clock.now(), step, watermark))

    def report_counts(self, step: Step, accounts: Accounts, late: int, errors: int, number: int) -> None:
        """Report late and failed rows of a step beyond the numbers that were reported before."""
        if accounts.late > late:
            self.emit(RowsLate(self.clock.now(), step.name, accounts.late - late))
        if accounts.errors > errors:
            reasons = self.reasons.get(step.name)
            example = reasons.pop() if reasons else f"in batch {number}"  # a worker process keeps its reasons
            now, policy = self.clock.now(), step.op.on_error
            self.emit(RowsErrored(now, step.name, accounts.errors - errors, policy, example))

    def emit(self, event: Event) -> None:
        """Emit an event, after those that were queued before it."""
        self._queue.append(event)
        self._emit_queued()

    def _emit_queued(self) -> None:
        # Why an RLock: a listener may stop the run, which emits more events from inside its call.
        with self._emitting:
            while self._queue:
                self._events(self._queue.popleft())
