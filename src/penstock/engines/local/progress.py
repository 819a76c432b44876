"""How far a run has come: which rounds have begun, when sources must stop, which rounds are through.

Sources of one pace go in rounds together, so they stop after the same one: whoever is behind goes on to the
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
from penstock.frozen import dataclass
from penstock.nobody import nobody
from penstock.plan.plan import Step
from penstock.timing.watermark import AFTER_ALL

if TYPE_CHECKING:
    from penstock.engines.local.checkpoint import Saving
    from penstock.engines.local.metrics.latency import Latencies
    from penstock.engines.local.rescale.rescale import Moves
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
        self._clock, self._events, self.telling = clock, events, events is not nobody
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
        self.saving: Saving | None = None
        self.moves: Moves | None = None
        self.latencies: Latencies | None = None
        self.reasons: dict[str, list[str]] = {}  # why rows failed, by step, left there by its replicas

    @property
    def watched(self) -> bool:
        """Whether anything happens when a node has carried a round through."""
        return self.telling or self.saving is not None or self.latencies is not None

    def source(self, pace: int, step: str) -> None:
        """A source goes at this pace."""
        self._sources.setdefault(pace, []).append(step)

    def reaches(self, pace: int, node: Task, sinks: Iterable[str]) -> None:
        """Rounds of this pace are over when this node, among others, has seen them; it writes these sinks."""
        self._ends.setdefault(pace, set()).add(node.number)
        self._sinks.setdefault(pace, []).extend(sinks)

    def begin(self, pace: int, number: int) -> bool:
        """Whether a source may begin this round."""
        with self._lock:
            if number >= self._limits.get(pace, self._limit):
                return False
            first_of_all = number + 1 > self._begun.get(pace, self.first)
            self._begun[pace] = max(self._begun.get(pace, self.first), number + 1)
            if self.telling and (pace, number) not in self._rounds:
                self._rounds[pace, number] = self._round(pace)
            if first_of_all and (self.saving is not None or self.moves is not None):
                self._begun_by_the_first(pace, number)
            return True

    def limit(self, pace: int) -> float:
        """The number of the first round that may not begin, unless the run is stopped before."""
        return self._limits.get(pace, self._limit)

    def is_alone(self, pace: int) -> bool:
        """Whether one source alone goes at a pace, and nobody must be asked or told when a round begins."""
        return len(self._sources.get(pace, ())) == 1 and not self.watched and self.moves is None

    def went_on(self, pace: int, number: int) -> None:
        """A source that is alone has begun and read all rounds before this number."""
        with self._lock:
            self._begun[pace] = max(self._begun.get(pace, self.first), number)
            self._carried[pace] = max(self._carried.get(pace, 0), number)

    def _begun_by_the_first(self, pace: int, number: int) -> None:
        if self.saving is not None:
            self.saving.begin(number)
        if self.moves is not None and self.moves.now is not None:
            self.moves.begin(pace, number)

    def _round(self, pace: int) -> _Round:
        read = dict.fromkeys(self._sources.get(pace, ()), 0)
        written = dict.fromkeys(self._sinks.get(pace, ()), 0)
        return _Round(self._clock.now(), set(self._ends.get(pace, ())), read, written)

    def stop(self) -> None:
        """No new rounds; those that have begun are carried through."""
        with self._lock:
            self.stopping = True
            self._limits = {pace: self._begun.get(pace, self.first) for pace in self._sources}

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
    def n_told(self) -> int:
        """Rounds that went all the way through, as far as that was told."""
        return self._n_told - self.first

    @property
    def rounds(self) -> int:
        """The number of the first round whose batches were not read."""
        return max(self._carried.values(), default=self.first)

    def received(self, pace: int, number: int) -> None:
        """The batch of a round is there, or will not come: its latency counts from now on."""
        if self.latencies is not None:
            self.latencies.stamp(pace, number, self._clock.now())

    def was_read(self, pace: int, number: int, step: str, rows: int | None) -> None:
        """What a source gave for a round; None when it had no more."""
        if rows is None:
            return
        with self._lock:
            self._carried[pace] = max(self._carried.get(pace, 0), number + 1)
            if self.telling:
                self._rounds[pace, number].rows_in[step] = rows

    def passed(self, node: Task, pace: int, number: int, written: Mapping[str, int] | None = None) -> None:
        """A node has carried a round through."""
        saved = None if self.saving is None else self.saving.passed(node, number)
        if saved is not None:
            self.tell(saved)
        took = {}
        if self.latencies is not None and written:
            took = self.latencies.committed(pace, number, written, self._clock.now())
        if not self.telling:
            return
        with self._lock:
            round_ = self._rounds.get((pace, number))
            if round_ is None:
                return
            round_.rows_out |= written or {}
            round_.latency |= took
            round_.awaited.discard(node.number)
            self._note_done()
        self.speak()

    def completed(self, node: Task, *, failed: bool) -> None:
        """A node has ended: no round waits for it any more, unless it has failed."""
        saved = None if self.saving is None else self.saving.completed(node, failed=failed)
        if saved is not None:
            self.tell(saved)
        if not self.telling or failed:
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

    def moved(self, step: str, before: float, after: float) -> None:
        """A source's watermark, before a round and after it."""
        if self.telling and after > before:
            from penstock.events import WatermarkMoved

            at = None if after == AFTER_ALL else int(after)
            self.tell(WatermarkMoved(self._clock.now(), step, at))

    def tell(self, event: Event) -> None:
        """An event, after those that came before it."""
        self._to_tell.append(event)
        self.speak()

    def speak(self) -> None:
        """Tell what there is to tell, one at a time; who listens may take long, or stop the run."""
        with self._speaking:
            while self._to_tell:
                self._events(self._to_tell.popleft())

    def counted(self, step: Step, accounts: Accounts, late: int, errors: int, number: int) -> None:
        """What a step has counted, and how much of it was told before."""
        from penstock.events import RowsErrored, RowsLate

        if accounts.late > late:
            self.tell(RowsLate(self._clock.now(), step.name, accounts.late - late))
        if accounts.errors > errors:
            found = self.reasons.get(step.name)
            example = found.pop() if found else f"in batch {number}"  # a worker process keeps its reasons
            now, policy = self._clock.now(), step.op.on_error
            self.tell(RowsErrored(now, step.name, accounts.errors - errors, policy, example))
