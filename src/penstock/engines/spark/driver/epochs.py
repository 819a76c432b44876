"""The epoch planner: which batches make a round, and which watermarks its steps are given.

Watermarks are known on the driver, so several rounds can be planned before the first is run. What cannot be
read ends the reading, not the rounds before it: those are run first. Early firings follow the clock; on Spark
the clock of a round is the same for all partitions, so they are planned here too.
"""

from __future__ import annotations

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
from penstock.engines.spark.driver.sources import BackgroundSourceReader, RemoteSourceReader, open_source
from penstock.engines.spark.file_splits import RemoteBatch
from penstock.engines.spark.fragments import RoundClock, RoundPlan
from penstock.engines.spark.jvm_source import RemoteSource
from penstock.errors import PenstockError
from penstock.events import WatermarkMoved
from penstock.frozen import dataclass
from penstock.operators.ends import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref
from penstock.stages.rows.batch import Batch
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

MAX_ROUNDS = 64
MAX_ROWS = 500_000
"""A micro-batch ends after so many rounds, or so many rows."""
_LIGHT_ROWS = 16
"""So many rows count as one where workers make partials of windows as they read."""
_CLOCK_POLL_S = 0.02
"""Seconds between checks of the clock."""
OTHERS_S = 0.1
"""Seconds that rows of one source wait for those of another."""


@dataclass(slots=True)
class PlannedRound:
    """A round that has been read: what its sources gave, and what its steps are to do.

    accounts  source -> what became of its rows
    last      it closes everything
    fired     window step -> when it has last fired early, once the round is done
    remote    source -> the batch that is read outside of the driver
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
    remote: dict[str, RemoteBatch] = field(default_factory=dict)
    moved: dict[str, WatermarkMoved] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def load(self) -> int:
        """Return the number of rows of all sources, by how much there is to do for them."""
        here = sum(batch.num_rows for _, batch in self.batches)
        return here + sum(b.n_rows // (_LIGHT_ROWS if b.light else 1) for b in self.remote.values())


class SourcePolling:
    """Decides when a round is due, and which sources give a batch to it. `stopping` ends the wait.

    A round takes a batch of every source. One that is silent is waited for, but not for ever: the others
    continue beside it. Where idle sources or early firings are asked for, a round without rows is due when
    the clock says so, once for every such moment.

    follows_clock  whether rounds depend on the clock: a run that resumes must then repeat them as they were
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
        clocked = [at for at in times.values() if at is not None and (at.column is None or at.max_future)]
        self.follows_clock = bool(self._background or self._idle or clocked)
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
        remote: Mapping[str, RemoteSource],
        folder: Path,
        *,
        clock: Clock,
        stopping: threading.Event,
        options: RunOptions,
    ) -> None:
        self._plan, self._now, self._clock = plan, clock.now, RoundClock(clock.now())
        self._until, self._drain = options.until, options.drain
        self._accounts = {step.name: Accounts() for step in plan.sources}
        self.readers = [
            open_source(plan, step, self._clock, self._accounts[step.name], remote, folder)
            for step in plan.sources
        ]
        windows = {step.name: step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)}
        self._early = {name: of.early for name, of in windows.items() if of.early is not None}
        # Window step -> when it last fired early, or when the run began.
        self._fired = dict.fromkeys(self._early, self._clock.us)
        self.polling = SourcePolling(plan, self.readers, clock, stopping, self._early.values())
        self._frontiers = Frontiers(plan)
        self._next = self._begun = 0
        self._recorded: dict[int, dict[str, Any]] = {}
        self.failure: PenstockError | None = None
        self.over = False

    def resume(self, done: Manifest, recorded: Mapping[int, dict[str, Any]], journal: JournalOf) -> None:
        """Continue from another run; rounds that it had begun are planned as it recorded them."""
        self._next = self._begun = done.rounds
        self._recorded = dict(recorded)
        self._frontiers = Frontiers(self._plan, done.step_watermarks)
        # Why the least: a clock that has been set back since then does not stop early firings.
        fired = done.early_fired_at
        self._fired |= {name: min(fired[name], at) for name, at in self._fired.items() if name in fired}
        self.polling.begin()
        for reader in self.readers:
            name = reader.step.name
            position = done.positions.get(name, (0, 0))
            reader.resume(position, done.source_watermarks.get(name, BEFORE_ALL), journal)

    def next_rounds(self) -> list[PlannedRound]:
        """Read the next rounds: several where all input is bounded, one where it must be waited for."""
        most = MAX_ROUNDS if all(reader.bounded for reader in self.readers) else 1
        rounds: list[PlannedRound] = []
        load = 0
        while len(rounds) < most and load < MAX_ROWS and not self.over:
            if self._until is not None and self._next - self._begun >= self._until:
                self.over = True
                break
            try:
                round_ = self._read()
            except PenstockError as failure:
                self.failure, self.over = failure, True
                break
            if round_ is None:
                break
            load += round_.load
            rounds.append(round_)
        return rounds

    def _read(self) -> PlannedRound | None:
        """Read one round; the one that drains when there are no more batches, if that is wanted."""
        record = self._recorded.pop(self._next, None)
        names = self.polling.wait() if record is None else record["took"]
        if names is None:
            return None
        self._clock.us = self._now() if record is None else record["now"]
        chosen = [reader for reader in self.readers if reader.step.name in names]
        batches = {r.step.name: batch for r in chosen if (batch := r.next()) is not None}
        last = not batches and all(reader.ended for reader in self.readers)
        if last:
            self.over = True
            if not self._drain:
                return None
        return self._plan_round(batches, last=last, idle=None if record is None else record["idle"])

    def plan_pushed(self, batches: Mapping[str, Any], *, last: bool) -> PlannedRound:
        """Plan a round, now, of batches that no reader gave; `last` closes everything."""
        self._clock.us = self._now()
        return self._plan_round(batches, last=last)

    def _plan_round(
        self, batches: Mapping[str, Any], *, last: bool, idle: Sequence[str] | None = None
    ) -> PlannedRound:
        """Plan the round of these batches; which sources are `idle` is known of one that is planned again."""
        now = self._clock.us
        rows: list[tuple[Ref, Batch]] = []
        before = {reader.step.name: reader.frontier.watermark for reader in self.readers}
        for reader in self.readers:
            name = reader.step.name
            if name in batches:
                rows += [(Ref(name, port), batch) for port, batch in reader.rows(batches[name])]
            # Why: with drain=False a later run may go on where a source ended, so it still holds back.
            if (reader.ended or last) and self._drain:
                reader.end()
        frontiers = {reader.step.name: reader.frontier for reader in self.readers}
        reached = {name: frontier.watermark for name, frontier in frontiers.items()}
        if idle is not None:
            frontiers = {name: replace(known, idle=name in idle) for name, known in frontiers.items()}
        advances = self._frontiers.advance(frontiers)
        silent = [name for name, frontier in frontiers.items() if frontier.idle]
        self.polling.end_round(now, batches, silent)
        self._next += 1
        fired_before = dict(self._fired)
        self._fired |= {name: now for name, every in self._early.items() if now - self._fired[name] >= every}
        return PlannedRound(
            RoundPlan(self._next - 1, now, advances, fired_before),
            rows,
            {reader.step.name: reader.position for reader in self.readers},
            {reader.step.name: reader.watermark for reader in self.readers},
            self._frontiers.watermarks(),
            {name: accounts.take() for name, accounts in self._accounts.items()},
            last,
            dict(self._fired),
            {name: batch for name, batch in batches.items() if isinstance(batch, RemoteBatch)},
            {
                name: WatermarkMoved(now, name, None if at == AFTER_ALL else int(at))
                for name, at in reached.items()
                if at > before[name]
            },
            {reader.step.name: reader.reasons.pop() for reader in self.readers if reader.reasons},
            {"now": now, "took": list(batches), "idle": silent},
        )

    def read_here(self, round_: PlannedRound) -> PlannedRound:
        """Read the remote batches of a round on the driver; from now on those of all other rounds too."""
        batches = list(round_.batches)
        for reader in self.readers:
            if isinstance(reader, RemoteSourceReader) and reader.step.name in round_.remote:
                reader.allowed = False
                rows = reader.read_here(round_.remote[reader.step.name])
                batches += [(Ref(reader.step.name, port), batch) for port, batch in rows]
        return replace(round_, batches=batches, remote={})
