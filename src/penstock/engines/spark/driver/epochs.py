"""The epoch planner: which batches make a round, and which watermarks its steps are given.

The driver knows how far every batch moves the watermark, from footers, or because a job has read the batch
ahead, so several rounds can be planned before the first is run. What cannot be read ends the reading, not the
rounds before it: those are run first. Early firings follow the clock; on Spark the clock of a round is the
same for all partitions, so they are planned here too.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch, SourcePosition
from penstock.engines.checkpoint.manifest import Manifest
from penstock.engines.ends import JournalOf
from penstock.engines.frontiers import Frontiers
from penstock.engines.protocol import RunOptions
from penstock.engines.spark.driver.read_ahead import ReadBatch
from penstock.engines.spark.driver.rounds import Size, SourcePolling, SourceRound, max_size
from penstock.engines.spark.driver.sources import RemoteSourceReader, StreamSourceReader, open_source
from penstock.engines.spark.file_splits import RemoteBatch, UnreadBatch
from penstock.engines.spark.fragments import RoundClock, RoundPlan
from penstock.engines.wire import failure_from_dict
from penstock.errors import PenstockError
from penstock.events import WatermarkMoved
from penstock.frozen import dataclass
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref
from penstock.stages.rows.batch import Batch
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from penstock.engines.spark.driver.jobs import SparkJobs


_NOTHING: Size = (0, 0, 0, 0)


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
    positions: dict[str, SourcePosition]
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


class EpochPlanner:
    """Reads the sources of a plan ahead of its jobs.

    readers  of all sources, in order; what they see of time stands still during a round
    polling  when a round is due
    failure  what stopped the reading
    refusal  what is raised for another batch, if there may be none
    over     whether it has ended
    """

    def __init__(
        self,
        plan: Plan,
        jobs: SparkJobs,
        folder: Path,
        *,
        clock: Clock,
        stopping: threading.Event,
        options: RunOptions,
    ) -> None:
        self._plan, self._now, self._clock = plan, clock.now, RoundClock(clock.now())
        self._until, self._drain, self._jobs = options.until, options.drain, jobs
        self._max_size = max_size(options)
        self._next = self._begun = 0
        self._recorded: dict[int, dict[str, Any]] = {}
        self._earlier: dict[int, dict[str, Any]] = {}
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
        self.polling = SourcePolling(plan, self.readers, clock, stopping)
        self._frontiers = Frontiers(plan)
        self.failure: PenstockError | None = None
        self.refusal: PenstockError | None = None
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
            position = done.positions.get(name, SourcePosition())
            if isinstance(reader, StreamSourceReader):
                reader.expected_offsets = done.streams.get(name)
            reader.resume(position, done.source_watermarks.get(name, BEFORE_ALL), journal)

    def resume_end(self, ends: Mapping[str, int], committed: int) -> None:
        """Close everything where an earlier run had begun to, if a sink has committed that round.

        Else nothing has come of it, and the run goes on as if it had not ended.

        ends  source -> the round in which it ended in process
        """
        last = max(ends.values(), default=-1)
        if len(ends) == len(self.readers) and self._next <= last:
            self._recorded[last] = {"now": self._now(), "took": [], "idle": [], "last": True}
        for number in [number for number, record in self._recorded.items() if record["last"]]:
            if number > committed:
                del self._recorded[number]
        self._earlier = dict(self._recorded)

    def records_of(self, rounds: Sequence[PlannedRound]) -> dict[int, dict[str, Any]]:
        """Return what is to be recorded of rounds, and what is known of those behind them.

        Sinks may have committed rounds that an earlier run had begun, and this one may end before them.
        """
        last = rounds[-1].plan.number
        behind = {number: record for number, record in self._earlier.items() if number > last}
        return {of.plan.number: of.record for of in rounds} | behind

    @property
    def n_planned(self) -> int:
        """Return how many rounds have been planned, of this run and of those before it."""
        return self._next

    def _next_now(self) -> int:
        """Return the time of the round that is taken next, as it was recorded if it was taken before."""
        record = self._recorded.get(self._next)
        return self._now() if record is None else int(record["now"])

    def next_rounds(self) -> list[PlannedRound]:
        """Plan the next rounds: as many as are ready now, up to the limits of a micro-batch."""
        source_rounds, rounds = self._take_rounds(), []
        try:
            self._read_ahead(source_rounds)
            for round_ in source_rounds:
                rounds.append(self._plan_round(round_))  # noqa: PERF401  # those before a failure count
        except PenstockError as failure:
            self.failure, self.over = failure, True
        return rounds

    def _take_rounds(self) -> list[SourceRound]:
        """Take batches, round by round; a failure ends the run behind the rounds before it.

        A micro-batch that an earlier run had begun is taken as it was: its number is known outside.
        """
        source_rounds: list[SourceRound] = []
        size, n_again = _NOTHING, len(self._recorded)
        while not self.over:
            is_ready = self.polling.ready and self._fits(size)
            may_go_on = len(source_rounds) < n_again if n_again else is_ready
            if source_rounds and not may_go_on:
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
            size = tuple(map(operator.add, size, round_.size))
            source_rounds.append(round_)
        return source_rounds

    def _fits(self, size: Size) -> bool:
        """Return whether a micro-batch that has so much may take another round."""
        return all(map(operator.lt, size, self._max_size))

    def _take(self) -> SourceRound | None:
        """Take one round; the one that drains when there are no more batches, if that is wanted."""
        record = self._recorded.pop(self._next, None)
        if record is not None and record["last"]:
            # The run was drained here, whatever its sources still had, or have now.
            self._clock.us, self.over, self._drain = record["now"], True, True
            return self._build_round({}, last=True, idle=record["idle"])
        names = self.polling.wait() if record is None else record["took"]
        if names is None:
            return None
        self._clock.us = self._now() if record is None else record["now"]
        chosen = [reader for reader in self.readers if reader.step.name in names]
        batches = {r.step.name: batch for r in chosen if (batch := r.next()) is not None}
        signed = {} if record is None else record.get("streams", {})
        for reader in chosen:
            if isinstance(reader, StreamSourceReader) and reader.step.name in signed:
                reader.check_batch(reader.n_batches - 1, signed[reader.step.name])
        if batches and self.refusal is not None:
            raise self.refusal.at(next(iter(batches)), None)
        last = not batches and all(reader.ended for reader in self.readers)
        if last:
            self.over = True
            if not self._drain or self.refusal is not None:
                return None
        return self._build_round(batches, last=last, idle=None if record is None else record["idle"])

    def _build_round(
        self, batches: dict[str, Any], *, last: bool, idle: Sequence[str] | None = None
    ) -> SourceRound:
        self._next += 1
        return SourceRound(
            self._next - 1,
            self._clock.us,
            batches,
            {reader.step.name: reader.position for reader in self.readers},
            frozenset(reader.step.name for reader in self.readers if reader.ended),
            last,
            idle,
        )

    def _read_ahead(self, source_rounds: Sequence[SourceRound]) -> None:
        """Let a job read the batches whose times nobody knows; afterwards they have been read."""
        unread = [
            (round_, source, batch)
            for round_ in source_rounds
            for source, batch in round_.batches.items()
            if isinstance(batch, UnreadBatch) and source in self._timed
        ]
        if not unread:
            return
        stamps = {reader.step.name: reader.stamp_at for reader in self.readers}
        splits = [
            split
            for round_, source, batch in unread
            for split in self._jobs.source_splits(
                source, round_.batch_number(source), batch, stamps[source](round_.now)
            )
        ]
        rows = self._jobs.read(splits)
        for round_, source, _ in unread:
            round_.batches[source] = rows.batch(source, round_.batch_number(source))

    def plan_rest(self) -> Iterator[list[PlannedRound]]:
        """Plan what is taken before everything is closed, though the run was stopped: by micro-batches.

        That is what an earlier run had begun, since sinks that have committed a round take nothing more for
        it, and what is left of sources that have an end wherever they are told to end.
        """
        self._until = None
        while self._recorded:
            self.over = False
            rounds = self.next_rounds()
            if rounds:
                yield rounds
            if self.failure is not None:
                raise self.failure
            if not rounds or rounds[-1].last:
                return
        if self.refusal is not None:
            return
        source_rounds, size = list[SourceRound](), _NOTHING
        for reader in self.readers:
            for batch in reader.finish():
                self._clock.us = self._now()
                source_rounds.append(self._build_round({reader.step.name: batch}, last=False))
                size = tuple(map(operator.add, size, source_rounds[-1].size))
                if not self._fits(size):
                    yield self._plan_rounds(source_rounds)
                    source_rounds, size = [], _NOTHING
        if source_rounds:
            yield self._plan_rounds(source_rounds)

    def _plan_rounds(self, source_rounds: Sequence[SourceRound]) -> list[PlannedRound]:
        self._read_ahead(source_rounds)
        return [self._plan_round(round_) for round_ in source_rounds]

    def plan_pushed(self, batches: Mapping[str, Any], *, last: bool) -> PlannedRound:
        """Plan a round, now, of batches that no reader gave; `last` closes everything."""
        self._clock.us, self._drain = self._now(), self._drain or last
        return self._plan_round(self._build_round(dict(batches), last=last))

    def _plan_round(self, source_round: SourceRound) -> PlannedRound:
        """Plan the round of batches that were source_round, and read if they had to be."""
        now, batches = source_round.now, source_round.batches
        self._clock.us = now
        rows: list[tuple[Ref, Batch]] = []
        before = {reader.step.name: reader.frontier.watermark for reader in self.readers}
        for reader in self.readers:
            name = reader.step.name
            if name in batches:
                rows += [(Ref(name, port), batch) for port, batch in reader.rows(batches[name])]
            if reader.follows_clock:
                reader.follow_clock()
            # Why: with drain=False a later run may go on where a source ended, so it still holds back.
            if (name in source_round.ended or source_round.last) and self._drain:
                reader.end()
        frontiers = {reader.step.name: reader.frontier for reader in self.readers}
        reached = {name: frontier.watermark for name, frontier in frontiers.items()}
        if source_round.idle is not None:
            frontiers = {
                name: replace(known, idle=name in source_round.idle) for name, known in frontiers.items()
            }
        advances = self._frontiers.advance(frontiers)
        silent = [name for name, frontier in frontiers.items() if frontier.idle]
        self.polling.deadlines.end_round(now, [name for name, batch in batches.items() if _has_rows(batch)])
        fired_before = dict(self._fired)
        self._fired |= {name: now for name, every in self._early.items() if now - self._fired[name] >= every}
        numbers = {source: source_round.batch_number(source) for source in batches}
        streams = {
            reader.step.name: reader.sign_batch(numbers[reader.step.name])
            for reader in self.readers
            if isinstance(reader, StreamSourceReader) and reader.step.name in numbers
        }
        return PlannedRound(
            RoundPlan(source_round.number, now, advances, fired_before, numbers),
            rows,
            source_round.positions,
            {reader.step.name: reader.watermark for reader in self.readers},
            self._frontiers.watermarks(),
            {name: accounts.take() for name, accounts in self._accounts.items()},
            source_round.last,
            dict(self._fired),
            {name: b for name, b in batches.items() if isinstance(b, RemoteBatch | UnreadBatch)},
            {name: batch for name, batch in batches.items() if isinstance(batch, ReadBatch)},
            {
                name: WatermarkMoved(now, name, None if at == AFTER_ALL else int(at))
                for name, at in reached.items()
                if at > before[name]
            },
            {reader.step.name: reader.reasons.pop() for reader in self.readers if reader.reasons},
            {
                "now": now,
                "took": list(batches),
                "idle": silent,
                "last": source_round.last,
                "streams": streams,
            },
        )

    def give_up(self, round_: PlannedRound, failure: PenstockError) -> None:
        """Let the files of a source change that could not be read in a round."""
        for reader in self.readers:
            if reader.step.name == failure.step and isinstance(round_.remote.get(failure.step), UnreadBatch):
                reader.give_up(round_.plan.batches[failure.step])

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
                splits = self._jobs.source_splits(name, number, batch, round_.plan.now)
                read[name] = self._jobs.read(splits).batch(name, number)
                failure = read[name].report.failure
                if failure is not None:
                    raise failure_from_dict(failure)
        remote = [(name, batch) for name, batch in round_.remote.items() if isinstance(batch, UnreadBatch)]
        return replace(round_, read=read, remote=dict(remote))


def _has_rows(batch: Any) -> bool:
    """Return whether a batch has rows, or files that nobody has read yet."""
    if isinstance(batch, UnreadBatch):
        return bool(batch.files)
    return bool(batch.num_rows if isinstance(batch, SourceBatch) else batch.n_rows)
