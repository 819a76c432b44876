"""The driver's part of a run: read, plan the rounds at hand, have them carried, write, commit.

A turn takes as many rounds as are ready, up to a limit: watermarks are known here, so one job can carry
several rounds, each judged by its own. If a step fails, the rounds of the turn are done again one by one, so
that everything before the failure is written, as it would have been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.clock import Clock
from penstock.engines.marks import Marks
from penstock.engines.spark import crash_points
from penstock.engines.spark.checkpoint import Checkpoint, Manifest
from penstock.engines.spark.counting import add, taken
from penstock.engines.spark.jobs import Came, Fates, Jobs
from penstock.engines.spark.leg_work import RoundPlan, Task
from penstock.engines.spark.legs import DRIVER, Edge, Legs
from penstock.engines.spark.native_frames import FAILED
from penstock.engines.spark.native_source import FilesReading, FrameReading, NativeBatch, NativeReading
from penstock.engines.spark.sinks import Writing
from penstock.engines.spark.sources import Reading
from penstock.engines.spark.wire import Dealing, Sent, packed, pieces, unpack
from penstock.errors import NotSupported, PenstockError
from penstock.events import (
    BatchDone,
    EventSink,
    RowsErrored,
    RowsLate,
    StateSaved,
    StepFailed,
    WatermarkMoved,
)
from penstock.plan.accounts import Accounts
from penstock.plan.plan import Plan
from penstock.plan.step import Ref, Step
from penstock.stages.batch import Batch
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL

MOST_ROUNDS = 64
MOST_ROWS = 500_000
"""A turn ends after so many rounds, or so many rows."""


@dataclass(slots=True)
class Ready:
    """A round that has been read: what its sources gave, and what its steps are told.

    files  source -> the batch that Spark is to read
    """

    plan: RoundPlan
    batches: list[tuple[Ref, Batch]]
    positions: dict[str, tuple[int, int]]
    watermarks: dict[str, float]
    reached: dict[str, float]
    counted: dict[str, Accounts]
    last: bool = False
    files: dict[str, NativeBatch] = field(default_factory=dict)
    moved: list[WatermarkMoved] = field(default_factory=list)


class Rounds:
    """A plan at work."""

    def __init__(
        self,
        plan: Plan,
        legs: Legs,
        jobs: Jobs,
        checkpoint: Checkpoint,
        *,
        clock: Clock,
        events: EventSink,
        until: int | None,
        drain: bool,
        n_parts: int,
    ) -> None:
        self._plan, self._legs, self._jobs, self._checkpoint = plan, legs, jobs, checkpoint
        self._clock, self._events, self._until, self._drain = clock, events, until, drain
        self._n_parts = n_parts
        self.accounts = {step.name: Accounts() for step in plan}
        self.collected: dict[Ref, list[pa.RecordBatch]] = {ref: [] for ref in plan.collects}
        self._source_accounts = {step.name: Accounts() for step in plan.sources}
        self._readings = [self._reading(step) for step in plan.sources]
        self._writings = {step.name: Writing(step, self.accounts[step.name]) for step in plan.sinks}
        self._done = Manifest()
        self._marks = Marks(plan)
        self._next = self._begun = 0
        self._failure: PenstockError | None = None
        self._over = False
        self._leaving = {
            edge.number: Dealing(edge.key, plan[edge.ref.step].outputs[edge.ref.port].schema, n_parts)
            for edge in self._edges()
        }

    def _reading(self, step: Step) -> Reading:
        accounts, native = self._source_accounts[step.name], self._jobs.native.get(step.name)
        if native is None:
            return Reading(self._plan, step, self._clock, accounts)
        make = FrameReading if native.frames.of_frame else FilesReading
        return make(self._plan, step, self._clock, accounts, native.frames.look)

    @property
    def batches(self) -> int:
        """Rounds of source batches that this run has carried; the one that drains is none."""
        return self._done.rounds - self._begun - self._done.drained

    def open(self) -> None:
        """Take up the checkpoint and open all sinks."""
        done = self._checkpoint.latest()
        if done.drained:
            raise _drained(self._checkpoint)
        self._done, self._next, self._begun = done, done.rounds, done.rounds
        self._marks = Marks(self._plan, done.reached)
        for reading in self._readings:
            name = reading.step.name
            reading.resume(done.positions.get(name, (0, 0)), done.watermarks.get(name, BEFORE_ALL))
        known = (self._checkpoint.known or {}).get("steps", {})
        for name, writing in self._writings.items():
            writing.open(resume=name in known)
        self._checkpoint.adopt()

    def close(self) -> None:
        """Close readers and sinks, whatever happens to one of them; the first error is raised at the end."""
        first: Exception | None = None
        closing = [reading.close for reading in self._readings]
        closing += [writing.close for writing in self._writings.values()]
        for close in closing:
            try:
                close()
            except Exception as failure:
                first = first or failure
        if first is not None:
            raise first

    def turn(self) -> bool:
        """Carry the rounds that are ready; False when there are no more."""
        ready = self._ready()
        crash_points.reached(crash_points.READ)
        if ready:
            self._carry(ready)
        if self._failure is not None:
            raise self._told(self._failure)
        return not self._over

    @property
    def drained(self) -> bool:
        """Whether everything has been closed."""
        return self._done.drained

    def _ready(self) -> list[Ready]:
        """Read ahead: several rounds where the input ends by itself, one where it must be waited for."""
        most = MOST_ROUNDS if all(reading.bounded for reading in self._readings) else 1
        found: list[Ready] = []
        n_rows = 0
        while len(found) < most and n_rows < MOST_ROWS and not self._over:
            if self._until is not None and self._next - self._begun >= self._until:
                self._over = True
                break
            try:
                ready = self._read()
            except PenstockError as failure:
                self._failure, self._over = failure, True
                break
            if ready is None:
                break
            n_rows += sum(batch.num_rows for _, batch in ready.batches)
            n_rows += sum(batch.n_rows for batch in ready.files.values())
            found.append(ready)
        return found

    def _read(self) -> Ready | None:
        """The next round; the one that drains when there are no more batches, if that is wanted."""
        came = {r.step.name: batch for r in self._readings if (batch := r.next()) is not None}
        last = not came
        if last:
            self._over = True
            if not self._drain:
                return None
        return self._planned(came, last=last)

    def _planned(self, came: dict[str, Any], *, last: bool) -> Ready:
        now, batches, moved = self._clock.now(), [], []
        before = {reading.step.name: reading.mark.watermark for reading in self._readings}
        for reading in self._readings:
            name = reading.step.name
            if name in came:
                batches += [(Ref(name, port), batch) for port, batch in reading.rows(came[name])]
            # With drain=False a later run may go on where a source ended, so the source still holds back.
            if reading.ended and self._drain:
                reading.end()
            reached = reading.mark.watermark
            if reached > before[name]:
                moved.append(WatermarkMoved(now, name, None if reached == AFTER_ALL else int(reached)))
        turns = self._marks.move({reading.step.name: reading.mark for reading in self._readings})
        counted = {name: taken(each) for name, each in self._source_accounts.items()}
        ready = Ready(
            RoundPlan(self._next, now, turns),
            batches,
            {reading.step.name: reading.position for reading in self._readings},
            {reading.step.name: reading.watermark for reading in self._readings},
            self._marks.reached(),
            counted,
            last,
            {name: batch for name, batch in came.items() if isinstance(batch, NativeBatch)},
            moved,
        )
        self._next += 1
        return ready

    def _carry(self, ready: Sequence[Ready]) -> None:
        """One job for all of them; one by one if a step fails, so that the rounds before it count."""
        began = self._clock.now()
        came = self._run(ready)
        if came is None:
            self._carry_from_here(ready)
            return
        crash_points.reached(crash_points.CARRIED)
        if came.failed is not None and len(ready) > 1:
            for each in ready:
                self._carry([each])
                if self._failure is not None:
                    return
            return
        if came.failed is not None:
            self._failure, self._over = came.failed, True
            return
        self._commit(ready, came, began)

    def _run(self, ready: Sequence[Ready]) -> Came | None:
        """The job; None when something failed in the JVM, which can tell that and not more.

        The readers and stages here say which file cannot be read, or which function failed on which row.
        """
        if not self._legs.legs:
            return Came()
        files = {each.plan.number: each.files for each in ready if each.files}
        try:
            came = self._jobs.run(self._sent(ready), self._task(ready), files)
        except PenstockError as failure:
            if files and isinstance(failure, NotSupported):  # an expression that is too large for Spark
                return None
            raise
        except Exception:
            if files:
                return None
            raise
        return None if any(told.fates[str(FAILED)] for told in came.fates.values()) else came

    def _carry_from_here(self, ready: Sequence[Ready]) -> None:
        """The same rounds one by one, read on the driver."""
        for each in ready:
            try:
                read = self._read_here(each)
            except PenstockError as failure:
                self._failure, self._over = failure, True
                return
            self._carry([read])
            if self._failure is not None:
                return

    def _read_here(self, ready: Ready) -> Ready:
        """A round whose files the driver reads after all, and from now on those of all others too."""
        batches = list(ready.batches)
        for reading in self._readings:
            if isinstance(reading, NativeReading) and reading.step.name in ready.files:
                reading.allowed = False
                given = reading.read_here(ready.files[reading.step.name])
                batches += [(Ref(reading.step.name, port), batch) for port, batch in given]
        return replace(ready, batches=batches, files={})

    def _task(self, ready: Sequence[Ready]) -> Task:
        rounds = tuple(each.plan for each in ready)
        return Task(rounds, self._done.rounds, self._done.state, self._checkpoint.files)

    def _sent(self, ready: Sequence[Ready]) -> list[Sent]:
        """What the sources gave, packed for the legs that read it."""
        return [
            Sent(edge.leg, edge.number, each.plan.number, part, body)
            for each in ready
            for ref, batch in each.batches
            for edge in self._edges(ref)
            if edge.leg != DRIVER
            for piece in pieces(batch, self._n_parts if edge.key is None else 1)
            for part, rows in self._leaving[edge.number].deal(piece, 0)
            for body in packed(rows)
        ]

    def _edges(self, ref: Ref | None = None) -> list[Edge]:
        """The edges out of sources, or of one port of a source."""
        sources = {step.name for step in self._plan.sources}
        return [e for e in self._legs.edges if e.ref.step in sources and ref in (None, e.ref)]

    def _commit(self, ready: Sequence[Ready], came: Came, began: int) -> None:
        """Write every round under its number; then say in the checkpoint that they are done."""
        last = ready[-1]
        for each in ready:
            self._write_round(each, came, began)
        state = {step: dict(places) for step, places in self._done.state.items()}
        for step, places in came.saved.items():
            state.setdefault(step, {}).update(places)
        self._done = Manifest(
            last.plan.number + 1,
            last.positions,
            {name: mark for name, mark in last.watermarks.items() if mark != BEFORE_ALL},
            last.reached,
            {name: asdict(each) for name, each in self.accounts.items()},
            state,
            drained=last.last,
        )
        nbytes = self._checkpoint.commit(self._done)
        if came.saved:
            self._events(StateSaved(self._clock.now(), last.plan.number, nbytes))

    def _write_round(self, ready: Ready, came: Came, began: int) -> None:
        number = ready.plan.number
        self._count_round(ready, came)
        written = dict.fromkeys(self._writings, 0)
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._writings}
        for edge in self._legs.edges:
            if edge.leg == DRIVER:
                rows = self._rows(edge, ready, came)
                if edge.step is None:
                    self.collected[edge.ref] += rows
                else:
                    batches[edge.step] += rows
        for name, writing in self._writings.items():
            written[name] = writing.write(number, batches[name])
        read = {name: counted.rows_in for name, counted in ready.counted.items()}
        now = self._clock.now()
        self._events(BatchDone(now, number, read, written, now - began))

    def _rows(self, edge: Edge, ready: Ready, came: Came) -> list[pa.RecordBatch]:
        schema = self._plan[edge.ref.step].outputs[edge.ref.port].schema
        here = [batch.rows for ref, batch in ready.batches if ref == edge.ref]
        there = came.rows.get(edge.number, {}).get(ready.plan.number, [])
        return here + [unpack(body, schema).rows for body in there]

    def _count_round(self, ready: Ready, came: Came) -> None:
        """Add up what the parts counted, and tell of it step by step."""
        number = ready.plan.number
        counted = {step.name: Accounts() for step in self._plan}
        told: list[Mapping[str, Accounts]] = [ready.counted]
        for round_, parts in came.counted:
            if round_ == number:
                told.append({name: Accounts(**each) for name, each in parts.items()})
        for source, batch in ready.files.items():
            found = came.fates.get((number, source), Fates())
            told.append(self._jobs.native[source].accounts(batch, found.fates, found.missed))
        for each in told:
            for name, accounts in each.items():
                add(counted[name], accounts)
        moved = {event.step: event for event in ready.moved}
        for name, accounts in counted.items():
            if name in moved:
                self._events(moved[name])
            self._count(name, accounts, number)

    def _count(self, step: str, counted: Accounts, number: int) -> None:
        add(self.accounts[step], counted)
        now = self._clock.now()
        if counted.late:
            self._events(RowsLate(now, step, counted.late))
        if counted.errors:
            policy = self._plan[step].op.on_error
            self._events(RowsErrored(now, step, counted.errors, policy, f"in batch {number}"))

    def _told(self, failure: PenstockError) -> PenstockError:
        if failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        return failure


def _drained(checkpoint: Checkpoint) -> PenstockError:
    from penstock.errors import CheckpointError

    return CheckpointError(
        "the run of this checkpoint has ended: all windows are closed, and it takes no more input",
        detail=str(checkpoint.folder),
        hint="start with an empty folder; next time drain=False keeps windows open",
    )
