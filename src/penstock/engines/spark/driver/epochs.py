"""The epoch planner: which batches make a round, and which watermarks its steps are given.

The driver knows how far every batch moves the watermark, from footers, or because a job has read the batch
ahead, so several rounds can be planned before the first is run. What cannot be read ends the reading, not the
rounds before it: those are run first. Early firings follow the clock; on Spark the clock of a round is the
same for all partitions, so they are planned here too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.checkpoint.checkpoint import Manifest
from penstock.engines.ends import JournalOf, SourceReader
from penstock.engines.frontiers import Frontiers
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.driver.sources import (
    BackgroundSourceReader,
    ReadBatch,
    ReadJobs,
    RemoteSourceReader,
    merge_reports,
    open_source,
)
from penstock.engines.spark.file_splits import RemoteBatch, UnreadBatch
from penstock.engines.spark.fragments import RoundClock, RoundPlan
from penstock.engines.spark.source_task import SourceReport
from penstock.engines.wire import failure_from_dict
from penstock.errors import PenstockError
from penstock.events import WatermarkMoved
from penstock.frozen import dataclass
from penstock.operators.ends import Source
from penstock.operators.windows import Windows
from penstock.options import SparkOptions
from penstock.plan.plan import Plan, Ref
from penstock.stages.rows.batch import Batch
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

MAX_ROUNDS = 512
MAX_ROWS = 1_000_000
"""A micro-batch ends after so many rounds, or so many rows."""
_BYTES_PER_ROW = 64
"""What a row is taken to have where only the size of a file is known."""
_CLOCK_POLL_S = 0.02
"""Seconds between checks of the clock."""
OTHERS_S = 0.1
"""Seconds that rows of one source wait for those of another."""


@dataclass(slots=True)
class TakenRound:
    """The batches of a round, before anything is known of their rows.

    number     of the round
    now        what the clock said
    batches    source -> its batch
    positions  source -> the number of batches taken from it, and of the rows in them
    ended      the sources that have no more batches
    last       it closes everything
    idle       the idle sources, if it is known already
    """

    number: int
    now: int
    batches: dict[str, Any]
    positions: dict[str, tuple[int, int]]
    ended: frozenset[str]
    last: bool = False
    idle: Sequence[str] | None = None

    @property
    def load(self) -> int:
        """Return the number of rows of all sources, by how much there is to do for them."""
        return sum(_count_load(batch) for batch in self.batches.values())


def _count_load(batch: Any) -> int:
    if isinstance(batch, UnreadBatch):
        return batch.n_bytes // _BYTES_PER_ROW
    if isinstance(batch, RemoteBatch):
        return batch.n_rows // batch.rows_as_one
    return int(batch.n_rows if isinstance(batch, ReadBatch) else batch.num_rows)


@dataclass(slots=True)
class PlannedRound:
    """A round that has been planned: what its sources gave, and what its steps are to do.

    accounts  source -> what became of its rows
    last      it closes everything
    fired     window step -> when it has last fired early, once the round is done
    remote    source -> the batch that the job of the round reads
    read      source -> the batch that was read ahead
    moved     source -> where its watermark went
    reasons   source -> why a row of it failed
    record    what the round is made of, so that it can be planned again: the clock, who gave a batch, who is
              idle
    """

    plan: RoundPlan
    batches: list[tuple[Ref, Batch]]
    positions: dict[str, tuple[int, int]]
    watermarks: dict[str, float]
    reached: dict[str, float]
    accounts: dict[str, Accounts]
    last: bool = False
    fired: dict[str, int] = field(default_factory=dict)
    remote: dict[str, RemoteBatch | UnreadBatch] = field(default_factory=dict)
    read: dict[str, ReadBatch] = field(default_factory=dict)
    moved: dict[str, WatermarkMoved] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)


class SourcePolling:
    """Decides when a round is due, and which sources give a batch to it. `stopping` ends the wait.

    A round takes a batch of every source. One that is silent is waited for, but not for ever: the others
    continue beside it. Where idle sources or early firings are asked for, a round without rows is due when
    the clock says so, once for every such moment.
    """

    def __init__(
        self,
        plan: Plan,
        readers: Sequence[SourceReader],
        clock: Clock,
        stopping: threading.Event,
        early: Collection[int],
    ) -> None:
        self._readers, self._clock, self._stopping = readers, clock, stopping
        self._background = [reader for reader in readers if isinstance(reader, BackgroundSourceReader)]
        self._arrived = threading.Condition()
        self._early = min(early, default=None)
        times = {step.name: step.op.resolve() for step in plan if isinstance(step.op, Source)}
        self._idle = {name: at.idle for name, at in times.items() if at is not None and at.idle is not None}
        self._deadlines: dict[str, int] = {}

    def begin(self) -> None:
        """Start to read the sources that do not end by themselves."""
        for reader in self._background:
            reader.begin(self._arrived)
        self.end_round(self._clock.now(), self._idle, ())

    def end_round(self, now: int, batches: Collection[str], idle: Collection[str]) -> None:
        """Set the deadlines for the next round, after one with batches of these sources."""
        self._deadlines = {name: at for name, at in self._deadlines.items() if at > now}
        if batches and self._early is not None:
            self._deadlines["early results"] = now + self._early
        for name, after in self._idle.items():
            if name in batches:
                self._deadlines[name] = now + after
            elif name in idle:
                self._deadlines.pop(name, None)

    @property
    def ready(self) -> bool:
        """Return whether every source has a batch that need not be waited for, or has ended."""
        return not any(reader.silent for reader in self._background)

    def wait(self) -> list[str] | None:
        """Wait until a round is due; return the sources that give a batch, or None if the run is to stop.

        No source gives a batch to a round that the clock asks for.
        """
        waited_since: float | None = None
        while silent := [reader for reader in self._background if reader.silent]:
            if self._stopping.is_set():
                return None
            if any(at <= self._clock.now() for at in self._deadlines.values()):
                break
            if any(not reader.ended and reader not in silent for reader in self._readers):
                waited_since = waited_since or time.monotonic()
                if time.monotonic() - waited_since >= OTHERS_S:
                    break
            with self._arrived:
                self._arrived.wait(_CLOCK_POLL_S)
        return [reader.step.name for reader in self._readers if reader not in silent]


class EpochPlanner:
    """Reads the sources of a plan ahead of its jobs.

    readers  of all sources, in order; what they see of time stands still during a round
    polling  when a round is due
    failure  what stopped the reading
    over     whether it has ended
    """

    def __init__(
        self,
        plan: Plan,
        jobs: ReadJobs,
        folder: Path,
        *,
        clock: Clock,
        stopping: threading.Event,
        options: RunOptions,
    ) -> None:
        self._plan, self._now, self._clock = plan, clock.now, RoundClock(clock.now())
        self._until, self._drain, self._jobs = options.until, options.drain, jobs
        self._limits = limits_of(options)
        self._next = self._begun = 0
        self._recorded: dict[int, dict[str, Any]] = {}
        self._accounts = {step.name: Accounts() for step in plan.sources}
        self.readers = [
            open_source(plan, step, self._clock, self._accounts[step.name], jobs, folder, self._next_now)
            for step in plan.sources
        ]
        self._timed = {reader.step.name for reader in self.readers if reader.timed}
        windows = {step.name: step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)}
        self._early = {name: of.early for name, of in windows.items() if of.early is not None}
        # Window step -> when it last fired early, or when the run began.
        self._fired = dict.fromkeys(self._early, self._clock.us)
        self.polling = SourcePolling(plan, self.readers, clock, stopping, self._early.values())
        self._frontiers = Frontiers(plan)
        self.failure: PenstockError | None = None
        self.over = False

    def resume(self, done: Manifest, recorded: Mapping[int, dict[str, Any]], journal: JournalOf) -> None:
        """Continue from another run; rounds that it had begun are planned as it recorded them."""
        self._next = self._begun = done.rounds
        self._recorded = {number: record for number, record in recorded.items() if number >= done.rounds}
        self._frontiers = Frontiers(self._plan, done.step_watermarks)
        # Why the least: a clock that has been set back since then does not stop early firings.
        fired = done.early_fired_at
        self._fired |= {name: min(fired[name], at) for name, at in self._fired.items() if name in fired}
        self.polling.begin()
        for reader in self.readers:
            name = reader.step.name
            position = done.positions.get(name, (0, 0))
            reader.resume(position, done.source_watermarks.get(name, BEFORE_ALL), journal)

    def _next_now(self) -> int:
        """Return the time of the round that is taken next, as it was recorded if it was taken before."""
        record = self._recorded.get(self._next)
        return self._now() if record is None else int(record["now"])

    def next_rounds(self) -> list[PlannedRound]:
        """Plan the next rounds: as many as are ready now, up to the limits of a micro-batch."""
        taken = self._take_rounds()
        try:
            self._read_ahead(taken)
        except PenstockError as failure:
            self.failure, self.over = failure, True
            return []
        rounds = []
        for round_ in taken:
            try:
                rounds.append(self._plan_round(round_))
            except PenstockError as failure:
                self.failure, self.over = failure, True
                break
        return rounds

    def _take_rounds(self) -> list[TakenRound]:
        """Take batches, round by round; what cannot be taken ends the run behind the rounds before it.

        A micro-batch that an earlier run had begun is taken as it was: its number is known outside.
        """
        taken: list[TakenRound] = []
        used, n_again = Limits(), len(self._recorded)
        while not self.over:
            may_go_on = len(taken) < n_again if n_again else self.polling.ready and used.within(self._limits)
            if taken and not may_go_on:
                break
            if self._until is not None and self._next - self._begun >= self._until:
                self.over = True
                break
            try:
                round_ = self._take()
            except PenstockError as failure:
                self.failure, self.over = failure, True
                break
            if round_ is None:
                break
            used = used.plus(round_)
            taken.append(round_)
        return taken

    def _take(self) -> TakenRound | None:
        """Take one round; the one that drains when there are no more batches, if that is wanted."""
        record = self._recorded.pop(self._next, None)
        names = self.polling.wait() if record is None else record["took"]
        if names is None:
            return None
        if record is not None and record["last"]:
            names = [reader.step.name for reader in self.readers]  # they say that they have ended
        self._clock.us = self._now() if record is None else record["now"]
        chosen = [reader for reader in self.readers if reader.step.name in names]
        batches = {r.step.name: batch for r in chosen if (batch := r.next()) is not None}
        last = not batches and all(reader.ended for reader in self.readers)
        if last:
            self.over = True
            if not self._drain:
                return None
        return self._taken(batches, last=last, idle=None if record is None else record["idle"])

    def _taken(self, batches: dict[str, Any], *, last: bool, idle: Sequence[str] | None = None) -> TakenRound:
        self._next += 1
        return TakenRound(
            self._next - 1,
            self._clock.us,
            batches,
            {reader.step.name: reader.position for reader in self.readers},
            frozenset(reader.step.name for reader in self.readers if reader.ended),
            last,
            idle,
        )

    def _read_ahead(self, taken: Sequence[TakenRound]) -> None:
        """Let a job read the batches whose times nobody knows; afterwards they have been read."""
        unread = [
            (round_, source, batch)
            for round_ in taken
            for source, batch in round_.batches.items()
            if isinstance(batch, UnreadBatch) and source in self._timed
        ]
        if not unread:
            return
        splits = [
            split
            for round_, source, batch in unread
            for split in self._jobs.source_splits(source, _number(round_, source), batch, round_.now)
        ]
        rows = self._jobs.read(splits)
        reports = merge_reports(rows.reports)
        for round_, source, _ in unread:
            number = _number(round_, source)
            report = reports.get((source, number)) or SourceReport(source, number)
            round_.batches[source] = ReadBatch(number, report, rows)

    def plan_pushed(self, batches: Mapping[str, Any], *, last: bool) -> PlannedRound:
        """Plan a round, now, of batches that no reader gave; `last` closes everything."""
        self._clock.us = self._now()
        return self._plan_round(self._taken(dict(batches), last=last))

    def _plan_round(self, taken: TakenRound) -> PlannedRound:
        """Plan the round of batches that were taken, and read if they had to be."""
        now, batches = taken.now, taken.batches
        self._clock.us = now
        rows: list[tuple[Ref, Batch]] = []
        before = {reader.step.name: reader.frontier.watermark for reader in self.readers}
        for reader in self.readers:
            name = reader.step.name
            if name in batches:
                rows += [(Ref(name, port), batch) for port, batch in reader.rows(batches[name])]
            # Why: with drain=False a later run may go on where a source ended, so it still holds back.
            if (name in taken.ended or taken.last) and self._drain:
                reader.end()
        frontiers = {reader.step.name: reader.frontier for reader in self.readers}
        reached = {name: frontier.watermark for name, frontier in frontiers.items()}
        if taken.idle is not None:
            frontiers = {name: replace(known, idle=name in taken.idle) for name, known in frontiers.items()}
        advances = self._frontiers.advance(frontiers)
        silent = [name for name, frontier in frontiers.items() if frontier.idle]
        self.polling.end_round(now, batches, silent)
        fired_before = dict(self._fired)
        self._fired |= {name: now for name, every in self._early.items() if now - self._fired[name] >= every}
        numbers = {source: _number(taken, source) for source in batches}
        return PlannedRound(
            RoundPlan(taken.number, now, advances, fired_before, numbers),
            rows,
            taken.positions,
            {reader.step.name: reader.watermark for reader in self.readers},
            self._frontiers.watermarks(),
            {name: accounts.take() for name, accounts in self._accounts.items()},
            taken.last,
            dict(self._fired),
            {name: b for name, b in batches.items() if isinstance(b, RemoteBatch | UnreadBatch)},
            {name: batch for name, batch in batches.items() if isinstance(batch, ReadBatch)},
            {
                name: WatermarkMoved(now, name, None if at == AFTER_ALL else int(at))
                for name, at in reached.items()
                if at > before[name]
            },
            {reader.step.name: reader.reasons.pop() for reader in self.readers if reader.reasons},
            {"now": now, "took": list(batches), "idle": silent, "last": taken.last},
        )

    def look_at_rows(self, round_: PlannedRound) -> PlannedRound:
        """Read the batches of a round by source stages, since its job failed; from now on all others too.

        Why: where footers speak for rows, a task knows neither all columns of a row nor what is wrong with a
        file. The rows have been counted already.
        """
        read = dict(round_.read)
        for reader in self.readers:
            name = reader.step.name
            if isinstance(reader, RemoteSourceReader) and isinstance(round_.remote.get(name), RemoteBatch):
                reader.allowed = False
                batch, number = round_.remote[name], round_.plan.batches[name]
                rows = self._jobs.read(self._jobs.source_splits(name, number, batch, round_.plan.now))
                report = merge_reports(rows.reports).get((name, number)) or SourceReport(name, number)
                if report.failure is not None:
                    raise failure_from_dict(report.failure)
                read[name] = ReadBatch(number, report, rows)
        remote = [(name, batch) for name, batch in round_.remote.items() if isinstance(batch, UnreadBatch)]
        return replace(round_, read=read, remote=dict(remote))


def _number(round_: TakenRound, source: str) -> int:
    """Return the number of a source's batch in a round; a batch that was pushed by hand has the round's."""
    n_batches, _ = round_.positions[source]
    batch = round_.batches[source]
    if isinstance(batch, ReadBatch):
        return batch.number
    return n_batches - 1 if n_batches else round_.number


@dataclass(frozen=True, slots=True)
class Limits:
    """How much input a micro-batch takes, or has taken: a round that began is always taken whole."""

    rounds: int = 0
    rows: int = 0
    nbytes: int = 0
    files: int = 0

    def within(self, limits: Limits) -> bool:
        """Return whether one more round may be taken."""
        return (
            self.rounds < limits.rounds
            and self.rows < limits.rows
            and self.nbytes < limits.nbytes
            and self.files < limits.files
        )

    def plus(self, round_: TakenRound) -> Limits:
        """Return what has been taken with this round."""
        files = [
            file
            for batch in round_.batches.values()
            if isinstance(batch, RemoteBatch | UnreadBatch)
            for file in batch.files
        ]
        nbytes = sum(b.n_bytes for b in round_.batches.values() if isinstance(b, RemoteBatch | UnreadBatch))
        return Limits(self.rounds + 1, self.rows + round_.load, self.nbytes + nbytes, self.files + len(files))


def limits_of(options: RunOptions) -> Limits:
    """Return the limits that the options of a run ask for."""
    asked = options.engine if isinstance(options.engine, SparkOptions) else SparkOptions()
    return Limits(
        MAX_ROUNDS,
        asked.max_rows_per_batch or MAX_ROWS,
        asked.max_bytes_per_batch or sys.maxsize,
        asked.max_files_per_batch or sys.maxsize,
    )
