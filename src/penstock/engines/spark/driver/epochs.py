"""When window steps show their open windows early.

That is told by the clock, and on Spark the clock of a round is the same for all parts: so it is known on the
driver, and told to the workers with every round, whoever has shown windows before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from penstock.accounts import Accounts
from penstock.engines.checkpoint.checkpoint import Manifest
from penstock.engines.frontiers import Frontiers
from penstock.engines.sources import JournalOf, SourceReader
from penstock.engines.spark.driver.polling import SourcePolling
from penstock.engines.spark.fragment_plan import RoundClock, RoundPlan
from penstock.engines.spark.jvm.source import JvmReader, RemoteBatch
from penstock.errors import PenstockError
from penstock.events import WatermarkMoved
from penstock.frozen import dataclass
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref
from penstock.stages.rows.batch import Batch
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL


class EarlyTrigger:
    """Keeps count of it for a plan. `shown` says of each step when it was the last time, or that it began."""

    def __init__(self, plan: Plan, now: int) -> None:
        windows = {step.name: step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)}
        self._every = {name: each.early for name, each in windows.items() if each.early is not None}
        self._began = now
        self.shown = dict.fromkeys(self._every, now)

    def resume(self, shown: Mapping[str, int]) -> None:
        """Go on from another run; a clock that has been put back since then does not stop it."""
        self.shown |= {name: min(at, self._began) for name, at in shown.items() if name in self._every}

    def after(self, now: int) -> dict[str, int]:
        """A round ends: the steps whose time has come show their windows. Gives what `shown` is then."""
        self.shown |= {name: now for name, every in self._every.items() if now - self.shown[name] >= every}
        return dict(self.shown)


# Reading ahead on the driver: which batches make a round, and what every step is told in it.
#
# Watermarks are known here, so several rounds can be planned before the first is carried. What cannot be read
# ends the reading, not the rounds before it: those are carried first.

MOST_ROUNDS = 64
MOST_ROWS = 500_000
"""A turn ends after so many rounds, or so many rows."""
_LIGHT = 16
"""So many rows count as one where workers make parts of windows of them as they read."""


@dataclass(slots=True)
class PlannedRound:
    """A round that has been read: what its sources gave, and what its steps are told.

    shown    window step -> when it has last shown open windows, once the round is done
    files    source -> the batch that Spark is to read
    moved    source -> where its watermark went
    reasons  source -> why a row of it failed
    told     what the round is made of, so that it can be made again: the clock, who gave a batch, who is idle
    """

    plan: RoundPlan
    batches: list[tuple[Ref, Batch]]
    positions: dict[str, tuple[int, int]]
    watermarks: dict[str, float]
    reached: dict[str, float]
    counted: dict[str, Accounts]
    last: bool = False
    shown: dict[str, int] = field(default_factory=dict)
    files: dict[str, RemoteBatch] = field(default_factory=dict)
    moved: dict[str, WatermarkMoved] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def load(self) -> int:
        """Rows of all sources, by what there is to do for them."""
        here = sum(batch.num_rows for _, batch in self.batches)
        return here + sum(batch.n_rows // (_LIGHT if batch.light else 1) for batch in self.files.values())


class EpochPlanner:
    """The sources of a plan at work. `failure` is what stopped the reading; `over` says that it has ended.

    clock  what sources see of time: it stands still during a round
    """

    def __init__(
        self,
        plan: Plan,
        readers: Sequence[SourceReader],
        accounts: Mapping[str, Accounts],
        *,
        clock: RoundClock,
        patience: SourcePolling,
        until: int | None,
        drain: bool,
    ) -> None:
        self._plan, self._readers, self._accounts = plan, readers, accounts
        self._clock, self._patience, self._until, self._drain = clock, patience, until, drain
        self._frontiers, self._showing = Frontiers(plan), EarlyTrigger(plan, clock.now())
        self._next = self._begun = 0
        self._foreseen: dict[int, dict[str, Any]] = {}
        self.failure: PenstockError | None = None
        self.over = False

    def resume(self, done: Manifest, foreseen: Mapping[int, dict[str, Any]], journal: JournalOf) -> None:
        """Go on from where another run had come to; rounds that it had begun are the same again."""
        self._next = self._begun = done.rounds
        self._foreseen = dict(foreseen)
        self._frontiers = Frontiers(self._plan, done.step_watermarks)
        self._showing.resume(done.early_fired_at)
        self._patience.begin()
        for reader in self._readers:
            name = reader.step.name
            position = done.positions.get(name, (0, 0))
            reader.resume(position, done.source_watermarks.get(name, BEFORE_ALL), journal)

    def rounds(self) -> list[PlannedRound]:
        """The next rounds: several where the input ends by itself, one where it must be waited for."""
        most = MOST_ROUNDS if all(reader.bounded for reader in self._readers) else 1
        found: list[PlannedRound] = []
        load = 0
        while len(found) < most and load < MOST_ROWS and not self.over:
            if self._until is not None and self._next - self._begun >= self._until:
                self.over = True
                break
            try:
                ready = self._read()
            except PenstockError as failure:
                self.failure, self.over = failure, True
                break
            if ready is None:
                break
            load += ready.load
            found.append(ready)
        return found

    def _read(self) -> PlannedRound | None:
        """The next round; the one that drains when there are no more batches, if that is wanted."""
        known = self._foreseen.pop(self._next, None)
        names = self._patience.awaited() if known is None else known["took"]
        if names is None:
            return None
        self._clock.us = self._patience.now() if known is None else known["now"]
        taken_from = [reader for reader in self._readers if reader.step.name in names]
        came = {r.step.name: batch for r in taken_from if (batch := r.next()) is not None}
        last = not came and all(reader.ended for reader in self._readers)
        if last:
            self.over = True
            if not self._drain:
                return None
        return self.planned(came, last=last, idle=None if known is None else known["idle"])

    def planned(
        self, came: Mapping[str, Any], *, last: bool = False, idle: Sequence[str] | None = None
    ) -> PlannedRound:
        """The round of these batches; `last` closes everything. Who is `idle` is known of a round that is
        done again.
        """
        now = self._clock.now()
        batches: list[tuple[Ref, Batch]] = []
        before = {reader.step.name: reader.frontier.watermark for reader in self._readers}
        for reader in self._readers:
            name = reader.step.name
            if name in came:
                batches += [(Ref(name, port), batch) for port, batch in reader.rows(came[name])]
            # With drain=False a later run may go on where a source ended, so the source still holds back.
            if (reader.ended or last) and self._drain:
                reader.end()
        frontiers = {reader.step.name: reader.frontier for reader in self._readers}
        if idle is not None:
            frontiers = {name: replace(frontier, idle=name in idle) for name, frontier in frontiers.items()}
        advances = self._frontiers.advance(frontiers)
        silent = [name for name, frontier in frontiers.items() if frontier.idle]
        self._patience.went(now, came, silent)
        self._next += 1
        before_it = dict(self._showing.shown)
        return PlannedRound(
            RoundPlan(self._next - 1, now, advances, before_it),
            batches,
            {reader.step.name: reader.position for reader in self._readers},
            {reader.step.name: reader.watermark for reader in self._readers},
            self._frontiers.watermarks(),
            {name: each.take() for name, each in self._accounts.items()},
            last,
            self._showing.after(now),
            {name: batch for name, batch in came.items() if isinstance(batch, RemoteBatch)},
            self._moved(before, now),
            {reader.step.name: reader.reasons.pop() for reader in self._readers if reader.reasons},
            {"now": now, "took": list(came), "idle": silent},
        )

    def read_here(self, ready: PlannedRound) -> PlannedRound:
        """A round whose files the driver reads after all, and from now on those of all others too."""
        batches = list(ready.batches)
        for reader in self._readers:
            if isinstance(reader, JvmReader) and reader.step.name in ready.files:
                reader.allowed = False
                given = reader.read_here(ready.files[reader.step.name])
                batches += [(Ref(reader.step.name, port), batch) for port, batch in given]
        return replace(ready, batches=batches, files={})

    def _moved(self, before: Mapping[str, float], now: int) -> dict[str, WatermarkMoved]:
        found = {}
        for reader in self._readers:
            name, reached = reader.step.name, reader.frontier.watermark
            if reached > before[name]:
                found[name] = WatermarkMoved(now, name, None if reached == AFTER_ALL else int(reached))
        return found
