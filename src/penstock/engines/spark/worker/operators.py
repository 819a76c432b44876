"""Time windows that take rows and parts: whoever is before the exchange decides which it sends.

Rows are judged here by the watermark before their round; parts were judged where they were made, by the same
one. The state is that of keyed windows, so a run may go on from a checkpoint whatever was sent before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, field

from penstock.accounts import Accounts
from penstock.engines.checkpoint.state_files import StateFiles, StateHandles
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.spark.fragment_plan import FragmentPlan, JobTask, RoundClock, RoundPlan
from penstock.engines.spark.fragments import Edge
from penstock.engines.spark.wire import COUNTED, REASONS, SAVED, KeyPartitioner, WireRow, pack_pieces, report
from penstock.engines.spark.worker.input import FragmentInput
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported
from penstock.frozen import dataclass
from penstock.operators.op import ERRORS, LATE, Routing
from penstock.operators.windows import Windows
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Ref, Step
from penstock.stages.build import build_stage
from penstock.stages.patterns.partial_stores import PARTIALS
from penstock.stages.patterns.partials import FinalAggregateStage, PartialAggregateStage
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import merge_batches
from penstock.stages.stage import Site, Stage
from penstock.stages.window.stage import Emitted, WindowStage

WORTH = 2
"""Parts go over the exchange while there are at least so many rows to each."""


class AdaptiveFinalStage(FinalAggregateStage):
    """The stage behind the exchange."""

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Take rows in, as keyed windows do."""
        return WindowStage.on_batch(self, batch, watermark)

    def on_parts(self, parts: Batch) -> None:
        """Take parts in; those judged by a later watermark wait for it."""
        self._waiting.append(parts)
        self._merge_waiting()


class AdaptivePartials:
    """Before the exchange: the rows of each round as parts, or as they are where parts would not be fewer."""

    def __init__(self, step: Step, site: Site, accounts: Accounts) -> None:
        self.accounts = accounts
        assert isinstance(step.op, Windows), "only windows come in parts"
        self.step = step
        self._stage = PartialAggregateStage(step.op, step.up, site)
        self.format = self._stage.format
        self.waiting: list[Batch] = []
        self.worth = True

    def made(self, watermark: float) -> tuple[list[tuple[str, Batch]], list[Batch]]:
        """What the rows that wait become, by port; and rows that are better sent as they are."""
        waiting, self.waiting = self.waiting, []
        if not waiting or not self.worth:
            return [], waiting
        rows = merge_batches(waiting, self.step.up.schema) if len(waiting) > 1 else waiting[0]
        self._stage.restore({})  # a round that is done again is judged by the watermark of its own
        found = [*self._stage.on_batch(rows, watermark), *self._stage.flush()]
        assert all(port in (PARTIALS, LATE, ERRORS) for port, _ in found), "results leave behind the exchange"
        n_partitions = sum(batch.num_rows for port, batch in found if port == PARTIALS)
        self.worth = n_partitions * WORTH <= rows.num_rows
        return found, []


# A fragment at work on one part, inside a Python worker of Spark: the same stages as in process.
#
# Round by round, every step of the fragment takes its rows in, judged by the watermark before the round,
# then lets
# go what the watermark after it has passed; batches leave before the watermark they came with.


@dataclass(slots=True)
class _ChainedStep:
    """A step at its place in the fragment; `others` are the other replicas where every one gets every row."""

    step: Step
    stage: Stage
    accounts: Accounts
    others: tuple[Stage, ...] = ()
    waiting: list[Batch] = field(default_factory=list)


class FragmentTask:
    """The stages of a fragment on one part."""

    def __init__(self, plan: FragmentPlan, part: int) -> None:
        self._plan, self.part = plan, part
        self._clock = RoundClock()
        self._reasons: dict[str, list[str]] = {}
        self._seats = {s.name: self._seat(s) for s in plan.fragment.steps if find_spark_sql(s.op) is None}
        self._in_the_jvm = {s.name: s for s in plan.fragment.steps if s.name not in self._seats}
        self._partitioners = {
            edge.number: KeyPartitioner(edge.key, plan.schemas[edge.ref], plan.n_partitions)
            for edges in plan.edges.values()
            for edge in edges
        }
        self._panes = {step.name: self._before(step, edge) for step, edge in plan.sends}
        self.at = 0  # the step at hand, for failures

    def _seat(self, step: Step) -> _ChainedStep:
        accounts = Accounts()
        site = self._site(step, accounts)
        if isinstance(step.op, Windows) and step.name in self._plan.joins.values():
            return _ChainedStep(step, AdaptiveFinalStage(step.op, step.up, site), accounts)
        copied = step.routing == Routing.BROADCAST and not step.op.stateful
        others = tuple(
            build_stage(step.op, step.up, site) for _ in range(1, step.degree.least if copied else 1)
        )
        return _ChainedStep(step, build_stage(step.op, step.up, site), accounts, others)

    def _site(self, step: Step, accounts: Accounts) -> Site:
        reasons = self._reasons.setdefault(step.name, [])
        return Site(step.name, step.where, accounts, self._clock, self._plan.read[step.name], reasons)

    def _before(self, step: Step, edge: Edge) -> AdaptivePartials:
        """What makes parts for windows behind the exchange."""
        accounts = Accounts()
        made = AdaptivePartials(step, self._site(step, accounts), accounts)
        self._partitioners[edge.number] = KeyPartitioner(
            made.format.key, made.format.schema, self._plan.n_partitions
        )
        return made

    def restore(self, state: StateHandles, files: StateFiles) -> None:
        """Take up the buckets of this part."""
        for name, places in state.items():
            mine = {b: place for b, place in places.items() if b % self._plan.n_partitions == self.part}
            if mine and name in self._seats:
                self._seats[name].stage.restore(files.read(mine, name))

    def round(self, round_: RoundPlan, inbox: FragmentInput) -> list[WireRow]:
        """Carry the rows of one round through; gives what leaves, and what was counted."""
        self._clock.us = round_.now
        sent: list[WireRow] = []
        for _, name in inbox.rows:
            self._refuse(name)
        for number, seat in enumerate(self._seats.values()):
            self.at = number
            came = inbox.rows.pop((round_.number, seat.step.name), [])
            batches, seat.waiting = [*came, *seat.waiting], []
            if isinstance(seat.stage, WindowStage) and seat.step.name in round_.shown:
                seat.stage.fired_at = round_.shown[seat.step.name]
            for body in inbox.parts.pop((round_.number, seat.step.name), []):
                assert isinstance(seat.stage, AdaptiveFinalStage), "parts go to windows that take them"
                parts = unpack_batch(body, seat.stage.format.schema) if isinstance(body, bytes) else body
                if parts.num_rows:
                    seat.stage.on_parts(parts)
            for port, batch in self._step(seat, batches, round_.advances[seat.step.name]):
                if batch.num_rows:
                    sent += self._out(Ref(seat.step.name, port), batch, round_.number)
        sent += self._in_parts(round_)
        counting = {name: seat.accounts for name, seat in self._seats.items()}
        counting |= {name: panes.accounts for name, panes in self._panes.items()}
        counted = {name: asdict(accounts.take()) for name, accounts in counting.items()}
        sent.append(report(COUNTED, round_.number, self.part, counted))
        reasons = {name: found.pop() for name, found in self._reasons.items() if found}
        return [*sent, report(REASONS, round_.number, self.part, reasons)] if reasons else sent

    def given(self, ref: Ref, batch: Batch, round_: RoundPlan) -> list[WireRow]:
        """Carry rows that somebody else made in the place of a step, or of a source."""
        sent = list(self._out(ref, batch, round_.number))
        return sent + self.round(round_, FragmentInput(self._plan))

    def _step(
        self, seat: _ChainedStep, batches: list[Batch], advance: WatermarkAdvance
    ) -> Iterator[tuple[str, Batch]]:
        if len(batches) > 1:
            batches = [merge_batches(batches, seat.step.up.schema)]
        for stage in (seat.stage, *seat.others):
            for batch in batches:
                yield from stage.on_batch(batch, advance.before)
            yield from stage.drain() if advance.over else stage.on_watermark(advance.after)

    def _out(self, ref: Ref, batch: Batch, round_: int) -> Iterator[WireRow]:
        for name in self._plan.fragment.inside.get(ref, ()):
            self._refuse(name)
            self._seats[name].waiting.append(batch)
        for edge in self._plan.edges.get(ref, ()):
            if edge.fragment == self._plan.fragment.number and edge.step is not None:
                self._seats[edge.step].waiting.append(batch)
            elif edge.step in self._panes:
                self._panes[edge.step].waiting.append(batch)
            else:
                yield from self._dealt(edge, batch, round_)

    def _refuse(self, name: str) -> None:
        """Raise if rows have come to a step whose expressions only the JVM knows."""
        if name in self._in_the_jvm:
            step = self._in_the_jvm[name]
            raise NotSupported(
                f"{find_spark_sql(step.op)} runs in the JVM, and a batch had to be read outside of it",
                step=name,
                where=step.where,
                detail="a row of it failed, a time was null or out of range, or a column had to be cast",
                hint="filter such rows before, or use functions of Penstock: ps.col(...)",
            )

    def _dealt(self, edge: Edge, batch: Batch, round_: int) -> Iterator[WireRow]:
        for part, rows in self._partitioners[edge.number].partition(batch, self.part):
            for body in pack_pieces(rows):
                yield WireRow(edge.fragment, edge.number, round_, part, body)

    def _in_parts(self, round_: RoundPlan) -> Iterator[WireRow]:
        """What windows behind the exchange are sent: parts, or rows where parts would not be fewer."""
        for number, (step, edge) in enumerate(self._plan.sends, len(self._seats)):
            self.at = number
            found, rows = self._panes[step.name].made(round_.advances[step.name].before)
            for port, batch in found:
                if port == PARTIALS:
                    yield from self._dealt(edge, batch, round_.number)
                else:
                    yield from self._out(Ref(step.name, port), batch, round_.number)
            for batch in rows:
                yield from self._dealt(self._plan.rows_edge(step.name), batch, round_.number)

    def saved(self, task: JobTask) -> list[WireRow]:
        """Write what changed in the state; gives where it is."""
        if not self._plan.fragment.keyed:
            return []
        pieces = {name: dict(seat.stage.snapshot()) for name, seat in self._seats.items()}
        places = task.files.write(task.version, f"{self._plan.fragment.number}-{self.part}", pieces)
        found = {step: list(where.items()) for step, where in places.items() if where}
        return [report(SAVED, task.rounds[-1].number, self.part, found)] if found else []
