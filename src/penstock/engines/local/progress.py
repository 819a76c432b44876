"""How far a run has come: which rounds have begun, when sources must stop, which rounds are through.

Sources of one group go in rounds together, so they stop after the same one: whoever is behind goes on to the
round that the first of them has begun, and nothing that was read is left half-way.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.local.tasks.task import Task
from penstock.events import ignore_event
from penstock.frozen import dataclass
from penstock.plan.plan import Step
from penstock.timing.watermark import AFTER_ALL

if TYPE_CHECKING:
    from penstock.engines.local.checkpoint import CheckpointCoordinator
    from penstock.engines.local.metrics.latency import LatencyTracker
    from penstock.engines.local.rescale.rescale import Rescaler
    from penstock.events import Event, EventSink


@dataclass(slots=True)
class _Round:
    """A round under way: what was read and written, and which nodes at the end have not seen all of it."""

    began: int
    awaited: set[int]
    rows_in: dict[str, int]
    rows_out: dict[str, int]
    latency: dict[str, int] = field(default_factory=dict)


class Progress:
    """The rounds of a run.

    until  rounds to carry; None for all
    first  the number of the first round, where another run left off
    """

    def __init__(self, clock: Clock, events: EventSink, *, until: int | None, first: int = 0) -> None:
        self._clock, self._events, self.has_listener = clock, events, events is not ignore_event
        self._lock, self._speaking = threading.Lock(), threading.RLock()
        self._to_tell: deque[Event] = deque()
        self.first = first
        self._limit = math.inf if until is None else first + until
        self._limits: dict[int, float] = {}
        self._begun: dict[int, int] = {}
        self._carried: dict[int, int] = {}
        self._ends: dict[int, set[int]] = {}
        self._sources: dict[int, list[str]] = {}
        self._sinks: dict[int, list[str]] = {}
        self._rounds: dict[tuple[int, int], _Round] = {}
        self._n_told = first
        self.stopping = self.shutdown_requested = self.failed = False
        self.checkpoint: CheckpointCoordinator | None = None
        self.rescaler: Rescaler | None = None
        self.latencies: LatencyTracker | None = None
        self.reasons: dict[str, list[str]] = {}  # why rows failed, by step, left there by its replicas

    @property
    def is_observed(self) -> bool:
        """Whether anything happens when a node has carried a round through."""
        return self.has_listener or self.checkpoint is not None or self.latencies is not None

    def add_source(self, round_group: int, step: str) -> None:
        """A source goes at this round_group."""
        self._sources.setdefault(round_group, []).append(step)

    def add_terminal(self, round_group: int, node: Task, sinks: Iterable[str]) -> None:
        """Adds a node that must see a round of this group before it is over; it writes these sinks."""
        self._ends.setdefault(round_group, set()).add(node.number)
        self._sinks.setdefault(round_group, []).extend(sinks)

    def begin(self, round_group: int, number: int) -> bool:
        """Whether a source may begin this round."""
        with self._lock:
            if number >= self._limits.get(round_group, self._limit):
                return False
            first_of_all = number + 1 > self._begun.get(round_group, self.first)
            self._begun[round_group] = max(self._begun.get(round_group, self.first), number + 1)
            if self.has_listener and (round_group, number) not in self._rounds:
                self._rounds[round_group, number] = self._round(round_group)
            if first_of_all and (self.checkpoint is not None or self.rescaler is not None):
                self._begun_by_the_first(round_group, number)
            return True

    def limit(self, round_group: int) -> float:
        """The number of the first round that may not begin, unless the run is stopped before."""
        return self._limits.get(round_group, self._limit)

    def is_only_source(self, round_group: int) -> bool:
        """Whether one source alone goes at a group, and nobody must be asked or told when a round begins."""
        return len(self._sources.get(round_group, ())) == 1 and not self.is_observed and self.rescaler is None

    def record_rounds(self, round_group: int, number: int) -> None:
        """A source that is alone has begun and read all rounds before this number."""
        with self._lock:
            self._begun[round_group] = max(self._begun.get(round_group, self.first), number)
            self._carried[round_group] = max(self._carried.get(round_group, 0), number)

    def _begun_by_the_first(self, round_group: int, number: int) -> None:
        if self.checkpoint is not None:
            self.checkpoint.begin(number)
        if self.rescaler is not None and self.rescaler.now is not None:
            self.rescaler.begin(round_group, number)

    def _round(self, round_group: int) -> _Round:
        read = dict.fromkeys(self._sources.get(round_group, ()), 0)
        written = dict.fromkeys(self._sinks.get(round_group, ()), 0)
        return _Round(self._clock.now(), set(self._ends.get(round_group, ())), read, written)

    def stop(self) -> None:
        """No new rounds; those that have begun are carried through."""
        with self._lock:
            self.stopping = True
            self._limits = {
                round_group: self._begun.get(round_group, self.first) for round_group in self._sources
            }

    def fail(self) -> None:
        """The same because a step has failed."""
        self.failed = True
        self.stop()

    def shut_down(self) -> None:
        """The same because somebody has asked for it: operators with their own loop may look, and leave."""
        self.shutdown_requested = True
        self.stop()

    @property
    def batches(self) -> int:
        """Rounds of source batches that were read; the one that drains is none."""
        return self.rounds - self.first

    @property
    def n_reported(self) -> int:
        """Rounds that went all the way through, as far as that was told."""
        return self._n_told - self.first

    @property
    def rounds(self) -> int:
        """The number of the first round whose batches were not read."""
        return max(self._carried.values(), default=self.first)

    def stamp_arrival(self, round_group: int, number: int) -> None:
        """The batch of a round is there, or will not come: its latency counts from now on."""
        if self.latencies is not None:
            self.latencies.stamp(round_group, number, self._clock.now())

    def record_read(self, round_group: int, number: int, step: str, rows: int | None) -> None:
        """What a source gave for a round; None when it had no more."""
        if rows is None:
            return
        with self._lock:
            self._carried[round_group] = max(self._carried.get(round_group, 0), number + 1)
            if self.has_listener:
                self._rounds[round_group, number].rows_in[step] = rows

    def complete_round(
        self, node: Task, round_group: int, number: int, written: Mapping[str, int] | None = None
    ) -> None:
        """A node has carried a round through."""
        saved = None if self.checkpoint is None else self.checkpoint.complete_round(node, number)
        if saved is not None:
            self.emit(saved)
        took = {}
        if self.latencies is not None and written:
            took = self.latencies.committed(round_group, number, written, self._clock.now())
        if not self.has_listener:
            return
        with self._lock:
            round_ = self._rounds.get((round_group, number))
            if round_ is None:
                return
            round_.rows_out |= written or {}
            round_.latency |= took
            round_.awaited.discard(node.number)
            self._note_done()
        self.speak()

    def end_task(self, node: Task, *, failed: bool) -> None:
        """A node has ended: no round waits for it any more, unless it has failed."""
        saved = None if self.checkpoint is None else self.checkpoint.end_task(node, failed=failed)
        if saved is not None:
            self.emit(saved)
        if not self.has_listener or failed:
            return
        with self._lock:
            for ends in self._ends.values():
                ends.discard(node.number)
            for round_ in self._rounds.values():
                round_.awaited.discard(node.number)
            self._note_done()
        self.speak()

    def _note_done(self) -> None:
        """Rounds that are all the way through, in order."""
        from penstock.events import BatchDone

        unfinished = set()
        for key in sorted(self._rounds):
            round_ = self._rounds[key]
            if round_.awaited or key[0] in unfinished:
                unfinished.add(key[0])
                continue
            del self._rounds[key]
            now = self._clock.now()
            done = BatchDone(
                now,
                self._n_told,
                round_.rows_in,
                round_.rows_out,
                now - round_.began,
                latency_us=round_.latency,
            )
            self._to_tell.append(done)
            self._n_told += 1

    def report_watermark(self, step: str, before: float, after: float) -> None:
        """A source's watermark, before a round and after it."""
        if self.has_listener and after > before:
            from penstock.events import WatermarkMoved

            at = None if after == AFTER_ALL else int(after)
            self.emit(WatermarkMoved(self._clock.now(), step, at))

    def emit(self, event: Event) -> None:
        """An event, after those that came before it."""
        self._to_tell.append(event)
        self.speak()

    def speak(self) -> None:
        """Tell what there is to tell, one at a time; who listens may take long, or stop the run."""
        with self._speaking:
            while self._to_tell:
                self._events(self._to_tell.popleft())

    def report_counts(self, step: Step, accounts: Accounts, late: int, errors: int, number: int) -> None:
        """What a step has counted, and how much of it was told before."""
        from penstock.events import RowsErrored, RowsLate

        if accounts.late > late:
            self.emit(RowsLate(self._clock.now(), step.name, accounts.late - late))
        if accounts.errors > errors:
            found = self.reasons.get(step.name)
            example = found.pop() if found else f"in batch {number}"  # a worker process keeps its reasons
            now, policy = self._clock.now(), step.op.on_error
            self.emit(RowsErrored(now, step.name, accounts.errors - errors, policy, example))
