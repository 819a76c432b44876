"""The epoch planner: which batches make a round, and which watermarks its steps are given.

Watermarks are known on the driver, so several rounds can be planned before the first is run. What cannot be
read ends the reading, not the rounds before it: those are run first. Early firings follow the clock; on Spark
the clock of a round is the same for all partitions, so they are planned here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from penstock.accounts import Accounts
from penstock.engines.checkpoint.checkpoint import Manifest
from penstock.engines.ends import JournalOf, SourceReader
from penstock.engines.frontiers import Frontiers
from penstock.engines.spark.driver.sources import RemoteSourceReader
from penstock.engines.spark.driver.waits import SourcePolling
from penstock.engines.spark.fragments import RoundClock, RoundPlan
from penstock.engines.spark.worker.files import RemoteBatch
from penstock.errors import PenstockError
from penstock.events import WatermarkMoved
from penstock.frozen import dataclass
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref
from penstock.stages.rows.batch import Batch
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

MAX_ROUNDS = 64
MAX_ROWS = 500_000
"""A micro-batch ends after so many rounds, or so many rows."""
_LIGHT_ROWS = 16
"""So many rows count as one where workers make partials of windows as they read."""


class EarlyTrigger:
    """Decides when window steps fire early; `fired` is when each last did so, or when the run began."""

    def __init__(self, plan: Plan, now: int) -> None:
        windows = {step.name: step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)}
        self._every = {
            name: windowing.early for name, windowing in windows.items() if windowing.early is not None
        }
        self._began = now
        self.fired = dict.fromkeys(self._every, now)

    def resume(self, fired: Mapping[str, int]) -> None:
        """Continues from another run; a clock that has been set back since then does not stop it."""
        self.fired |= {name: min(at, self._began) for name, at in fired.items() if name in self._every}

    def end_round(self, now: int) -> dict[str, int]:
        """Fires the steps whose time has come; returns the times of their last firings."""
        self.fired |= {name: now for name, every in self._every.items() if now - self.fired[name] >= every}
        return dict(self.fired)


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
        """Returns the number of rows of all sources, by how much there is to do for them."""
        here = sum(batch.num_rows for _, batch in self.batches)
        return here + sum(b.n_rows // (_LIGHT_ROWS if b.light else 1) for b in self.remote.values())


class EpochPlanner:
    """Reads the sources of a plan ahead of its jobs.

    clock    what sources see of time: it stands still during a round
    failure  what stopped the reading
    over     whether it has ended
    """

    def __init__(
        self,
        plan: Plan,
        readers: Sequence[SourceReader],
        accounts: Mapping[str, Accounts],
        *,
        clock: RoundClock,
        polling: SourcePolling,
        until: int | None,
        drain: bool,
    ) -> None:
        self._plan, self._readers, self._accounts = plan, readers, accounts
        self._clock, self._polling, self._until, self._drain = clock, polling, until, drain
        self._frontiers, self._early = Frontiers(plan), EarlyTrigger(plan, clock.now())
        self._next = self._begun = 0
        self._recorded: dict[int, dict[str, Any]] = {}
        self.failure: PenstockError | None = None
        self.over = False

    def resume(self, done: Manifest, recorded: Mapping[int, dict[str, Any]], journal: JournalOf) -> None:
        """Continues from another run; rounds that it had begun are planned as it recorded them."""
        self._next = self._begun = done.rounds
        self._recorded = dict(recorded)
        self._frontiers = Frontiers(self._plan, done.step_watermarks)
        self._early.resume(done.early_fired_at)
        self._polling.begin()
        for reader in self._readers:
            name = reader.step.name
            position = done.positions.get(name, (0, 0))
            reader.resume(position, done.source_watermarks.get(name, BEFORE_ALL), journal)

    def next_rounds(self) -> list[PlannedRound]:
        """Reads the next rounds: several where all input is bounded, one where it must be waited for."""
        most = MAX_ROUNDS if all(reader.bounded for reader in self._readers) else 1
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
        """Reads one round; the one that drains when there are no more batches, if that is wanted."""
        record = self._recorded.pop(self._next, None)
        names = self._polling.wait() if record is None else record["took"]
        if names is None:
            return None
        self._clock.us = self._polling.now() if record is None else record["now"]
        chosen = [reader for reader in self._readers if reader.step.name in names]
        batches = {r.step.name: batch for r in chosen if (batch := r.next()) is not None}
        last = not batches and all(reader.ended for reader in self._readers)
        if last:
            self.over = True
            if not self._drain:
                return None
        return self.plan_round(batches, last=last, idle=None if record is None else record["idle"])

    def plan_round(
        self, batches: Mapping[str, Any], *, last: bool = False, idle: Sequence[str] | None = None
    ) -> PlannedRound:
        """Plans the round of these batches; `last` closes everything.

        Which sources are `idle` is known of a round that is planned again.
        """
        now = self._clock.now()
        rows: list[tuple[Ref, Batch]] = []
        before = {reader.step.name: reader.frontier.watermark for reader in self._readers}
        for reader in self._readers:
            name = reader.step.name
            if name in batches:
                rows += [(Ref(name, port), batch) for port, batch in reader.rows(batches[name])]
            # Why: with drain=False a later run may go on where a source ended, so it still holds back.
            if (reader.ended or last) and self._drain:
                reader.end()
        frontiers = {reader.step.name: reader.frontier for reader in self._readers}
        if idle is not None:
            frontiers = {name: replace(known, idle=name in idle) for name, known in frontiers.items()}
        advances = self._frontiers.advance(frontiers)
        silent = [name for name, frontier in frontiers.items() if frontier.idle]
        self._polling.end_round(now, batches, silent)
        self._next += 1
        fired_before = dict(self._early.fired)
        return PlannedRound(
            RoundPlan(self._next - 1, now, advances, fired_before),
            rows,
            {reader.step.name: reader.position for reader in self._readers},
            {reader.step.name: reader.watermark for reader in self._readers},
            self._frontiers.watermarks(),
            {name: accounts.take() for name, accounts in self._accounts.items()},
            last,
            self._early.end_round(now),
            {name: batch for name, batch in batches.items() if isinstance(batch, RemoteBatch)},
            self._watermark_events(before, now),
            {reader.step.name: reader.reasons.pop() for reader in self._readers if reader.reasons},
            {"now": now, "took": list(batches), "idle": silent},
        )

    def read_here(self, round_: PlannedRound) -> PlannedRound:
        """Reads the remote batches of a round on the driver; from now on those of all other rounds too."""
        batches = list(round_.batches)
        for reader in self._readers:
            if isinstance(reader, RemoteSourceReader) and reader.step.name in round_.remote:
                reader.allowed = False
                rows = reader.read_here(round_.remote[reader.step.name])
                batches += [(Ref(reader.step.name, port), batch) for port, batch in rows]
        return replace(round_, batches=batches, remote={})

    def _watermark_events(self, before: Mapping[str, float], now: int) -> dict[str, WatermarkMoved]:
        moved = {}
        for reader in self._readers:
            name, reached = reader.step.name, reader.frontier.watermark
            if reached > before[name]:
                moved[name] = WatermarkMoved(now, name, None if reached == AFTER_ALL else int(reached))
        return moved
