"""A pattern driven as an engine would drive it, without threads: shares to replicas, then what joins them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.connect.protocol import SourceBatch
from penstock.operators.op import IN
from penstock.operators.windows import KeyedWindows
from penstock.stages.patterns.parallel import convert_state
from penstock.stages.patterns.partials import PartialAggregateStage
from penstock.stages.patterns.pattern import Partitioner, Pattern, decompose
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import SavedBytes, Stage, StageContext
from penstock.stages.window.stage import WindowStage
from penstock.timing.windows import SourceWatermark
from tests.support.windows import STEP, Case, PortTables, by_stage, stage_batch

Pieces = dict[int, SavedBytes]
"""Saved state by bucket."""


class Spread:
    """One step as several replicas; every stage counts for itself."""

    def __init__(self, case: Case, pattern: str, degree: int, *, joining: int = 1) -> None:
        self.case, self.clock = case, ManualClock()
        self.accounts: list[Accounts] = []
        self.name, self.degree, self.joining = pattern, degree, joining
        self.pattern = self.new_pattern()
        self.watermark = SourceWatermark(case.delay)
        self._saved: Pieces = {}
        self.out: dict[str, list[Batch]] = {port: [] for port in case.op.outputs({IN: case.up})}

    def new_pattern(self) -> Pattern:
        return decompose(
            self.case.op,
            self.case.up,
            self.degree,
            self.new_site,
            pattern=self.name,
            totally_ordered=self.case.has_numbers,
            n_final=self.joining,
        )

    def new_site(self) -> StageContext:
        self.accounts.append(Accounts())
        return StageContext(STEP, None, self.accounts[-1], self.clock)

    def push(self, source: SourceBatch) -> None:
        rows = stage_batch(source)
        for number, share in self.pattern.partitioner(rows):
            self._from_replica(self.pattern.replicas[number].on_batch(share, self.watermark.now))
        self.watermark.observe(int(rows.times.max()) if rows.num_rows else None)
        for replica in self.pattern.replicas:
            self._from_replica(replica.on_watermark(self.watermark.now))
        for joining in self.pattern.final_stages:
            self._keep(joining.on_watermark(self.watermark.now))

    def end(self) -> PortTables:
        for replica in self.pattern.replicas:
            self._from_replica(replica.drain())
        for joining in self.pattern.final_stages:
            self._keep(joining.drain())
        return self.result_so_far()

    def loosely(self, picks: Sequence[int]) -> PortTables:
        """All batches, with replicas out of step: `picks` says which goes on, the rest follows in turn."""
        queues = self._queues()
        reached = [float("-inf")] * len(queues)
        rest = [number for number, queue in enumerate(queues) for _ in queue]
        for number in (pick % len(queues) for pick in [*picks, *rest]):
            if queues[number]:
                batch, watermark = queues[number].pop(0)
                replica = self.pattern.replicas[number]
                if batch is not None:
                    self._from_replica(replica.on_batch(batch, watermark))
                    continue
                self._from_replica(replica.on_watermark(watermark))
                reached[number] = watermark
                for joining in self.pattern.final_stages:
                    self._keep(joining.on_watermark(min(reached)))
        return self.end()

    def _queues(self) -> list[list[tuple[Batch | None, float]]]:
        """What each replica is given, in order: rows with the watermark that judges them, or that alone."""
        queues: list[list[tuple[Batch | None, float]]] = [[] for _ in self.pattern.replicas]
        for source in self.case.batches:
            rows = stage_batch(source)
            for number, share in self.pattern.partitioner(rows):
                queues[number].append((share, self.watermark.now))
            self.watermark.observe(int(rows.times.max()) if rows.num_rows else None)
            for queue in queues:
                queue.append((None, self.watermark.now))
        return queues

    def result_so_far(self) -> PortTables:
        streams = self.case.op.outputs({IN: self.case.up})
        tables = {
            port: pa.Table.from_batches([batch.rows for batch in self.out[port]], schema=stream.schema)
            for port, stream in streams.items()
        }
        return PortTables(tables, total(self.accounts))

    def save(self) -> None:
        """Save what has changed since the last time."""
        for replica in self.pattern.replicas:
            if isinstance(replica, PartialAggregateStage):
                self._from_replica(replica.flush())
        keepers, _ = self.pattern.stateful_stages
        _save(keepers, self._saved)
        for stage in (*self.pattern.replicas, *self.pattern.final_stages):
            assert stage in keepers or not stage.snapshot()

    def move_to(self, degree: int, joining: int, pattern: str | None = None) -> None:
        """Save all state, and take it up with other numbers of replicas, or in another pattern."""
        self.save()
        before, self.degree, self.joining, self.name = self.pattern, degree, joining, pattern or self.name
        self.pattern = self.new_pattern()
        _copy_last_firing(before, self.pattern)
        self._reform()
        _restore(*self.pattern.stateful_stages, self._saved)

    def _reform(self) -> None:
        """Bring what is saved into the form that the pattern saves in, as an engine does."""
        (form,) = {stage.form for stage in self.pattern.stateful_stages[0] if isinstance(stage, WindowStage)}
        site = StageContext(STEP, None, Accounts(), self.clock)
        op, up, numbered = self.case.op, self.case.up, self.case.has_numbers
        self._saved = dict(convert_state(self._saved, form, op, up, site, totally_ordered=numbered))

    def _from_replica(self, outputs: Iterable[tuple[str, Batch]]) -> None:
        for port, batch in outputs:
            if port != self.pattern.between:
                self._keep([(port, batch)])
                continue
            assert self.pattern.final_partitioner is not None
            for number, share in self.pattern.final_partitioner(batch):
                self._keep(self.pattern.final_stages[number].on_batch(share, self.watermark.now))

    def _keep(self, outputs: Iterable[tuple[str, Batch]]) -> None:
        for port, batch in outputs:
            assert batch.num_rows == len(batch.times) > 0
            batch.rows.validate(full=True)
            self.out[port].append(batch)


def by_pattern(
    case: Case, pattern: str, degree: int, *, joining: int = 1, ticks: Sequence[int] = ()
) -> PortTables:
    spread = Spread(case, pattern, degree, joining=joining)
    for number, source in enumerate(case.batches):
        spread.clock.advance(ticks[number] if ticks else 0)
        spread.push(source)
    return spread.end()


def by_one(case: Case, ticks: Sequence[int] | None = None) -> PortTables:
    """Keyed windows with one replica."""
    options = {field.name: getattr(case.op, field.name) for field in fields(case.op) if field.init}
    if case.op.function is not None:
        options |= {"apply": case.op.function.call, "schema": case.op.function.schema}
    return by_stage(replace(case, op=KeyedWindows(**options)), ticks)


def total(parts: Sequence[Accounts]) -> Accounts:
    """What all stages of a step have counted."""
    whole: dict[str, Any] = {}
    misses: dict[str, int] = {}
    for part in parts:
        for name, n in part.late_by_window.items():
            misses[name] = misses.get(name, 0) + n
    for field in fields(Accounts):
        if field.name != "late_by_window":
            whole[field.name] = sum(getattr(part, field.name) for part in parts)
    return Accounts(**whole, late_by_window=misses)


def _save(stages: Sequence[Stage], saved: Pieces) -> None:
    """What changed since the last time; no two stages save the same bucket."""
    new = [stage.snapshot() for stage in stages]
    assert sum(map(len, new)) == len({bucket for entry in new for bucket in entry})
    for item in new:
        saved |= item


def _copy_last_firing(before: Pattern, now: Pattern) -> None:
    """When windows were last shown early is known to whoever makes the stages."""
    fired_at = next(stage.fired_at for stage in before.replicas if isinstance(stage, WindowStage))
    for stage in (*now.replicas, *now.final_stages):
        if isinstance(stage, WindowStage):
            stage.fired_at = fired_at


def _restore(stages: Sequence[Stage], deal: Partitioner, saved: Pieces) -> None:
    """Every bucket to the stages that need it now."""
    for number, stage in enumerate(stages):
        stage.restore({bucket: data for bucket, data in saved.items() if number in deal.owners(bucket)})
