"""A fragment at work on one partition, inside a Python worker of Spark: the same stages as in process.

Round by round, every step of the fragment takes its rows in, admitted by the watermark before the round, then
emits what the watermark after it has passed: batches leave before the watermark they came with.

Time windows take rows and partials alike: whoever is before the exchange decides which it sends. Rows are
admitted here by the watermark before their round; partials were admitted where they were made, by the same
one. The state is that of keyed windows, so a run may go on from a checkpoint whatever was sent before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, field

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.engines.checkpoint.state_files import StateFiles, StateHandles
from penstock.engines.frontiers import WatermarkAdvance
from penstock.engines.spark.fragments import Edge, FragmentPlan, JobTask, RoundClock, RoundPlan
from penstock.engines.spark.wire import Kind, WirePartitioner, WireRow, from_wire, pack_pieces, report
from penstock.engines.spark.worker.files import FileSplit
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported
from penstock.frozen import dataclass
from penstock.operators.op import ERRORS, LATE, Routing
from penstock.operators.windows import Windows
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Ref, Step
from penstock.stages.build import build_stage
from penstock.stages.patterns.partials import FinalAggregateStage, PartialAggregateStage
from penstock.stages.patterns.pattern import PARTIALS
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import merge_batches
from penstock.stages.stage import Stage, StageContext
from penstock.stages.window.stage import Emitted, WindowStage

ROWS_PER_PARTIAL = 2
"""Partials go over the exchange while there are at least this many rows to each."""


class FragmentInput:
    """What arrived for a partition of a fragment.

    rows      (round, step) -> batches
    partials  (round, step) -> packed partials; the stage knows their columns
    splits    round -> files that are to be read
    """

    def __init__(self, plan: FragmentPlan) -> None:
        self._consumers, self._partials = plan.consumers, plan.partials
        self.rows: dict[tuple[int, str], list[Batch]] = {}
        self.partials: dict[tuple[int, str], list[bytes]] = {}
        self.splits: dict[int, list[FileSplit]] = {}
        self.partition = 0

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Adds all wire rows of a batch."""
        self.add(from_wire(batch))

    def add(self, rows: Iterable[WireRow]) -> None:
        """Adds wire rows."""
        for row in rows:
            self.partition = row.partition
            if row.body is None or row.kind is Kind.WAKE:
                continue
            if row.kind is Kind.READ:
                self.splits.setdefault(row.round, []).append(FileSplit.from_bytes(row.body))
            elif row.edge in self._partials:
                self.partials.setdefault((row.round, self._partials[row.edge]), []).append(row.body)
            else:
                step, schema = self._consumers[row.edge]
                self.rows.setdefault((row.round, step), []).append(unpack_batch(row.body, schema))


class AdaptiveFinalStage(FinalAggregateStage):
    """The window stage behind the exchange, which takes rows and partials."""

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Takes rows in, as keyed windows do."""
        return WindowStage.on_batch(self, batch, watermark)

    def on_partials(self, partials: Batch) -> None:
        """Takes partials in; those admitted by a later watermark wait for it."""
        self._waiting.append(partials)
        self._merge_waiting()


class AdaptivePartials:
    """Before the exchange: turns the rows of each round into partials, as long as those are fewer."""

    def __init__(self, step: Step, site: StageContext, accounts: Accounts) -> None:
        self.accounts = accounts
        assert isinstance(step.op, Windows), "only windows have partials"
        self.step = step
        self._stage = PartialAggregateStage(step.op, step.up, site)
        self.format = self._stage.format
        self.pending: list[Batch] = []
        self.worthwhile = True

    def aggregate(self, watermark: float) -> tuple[list[tuple[str, Batch]], list[Batch]]:
        """Returns the outputs of the pending rows, by port, and the rows that are better sent as they are."""
        pending, self.pending = self.pending, []
        if not pending or not self.worthwhile:
            return [], pending
        rows = merge_batches(pending, self.step.up.schema) if len(pending) > 1 else pending[0]
        self._stage.restore({})  # a round that is done again is admitted by its own watermark
        outputs = [*self._stage.on_batch(rows, watermark), *self._stage.flush()]
        assert all(port in (PARTIALS, LATE, ERRORS) for port, _ in outputs), (
            "results leave behind the exchange"
        )
        n_partials = sum(batch.num_rows for port, batch in outputs if port == PARTIALS)
        self.worthwhile = n_partials * ROWS_PER_PARTIAL <= rows.num_rows
        return outputs, []


@dataclass(slots=True)
class _ChainedStep:
    """A step in its fragment; `replicas` are the other copies of a step whose every replica gets all rows."""

    step: Step
    stage: Stage
    accounts: Accounts
    replicas: tuple[Stage, ...] = ()
    pending: list[Batch] = field(default_factory=list)


class FragmentTask:
    """The stages of a fragment on one partition."""

    def __init__(self, plan: FragmentPlan, partition: int) -> None:
        self._plan, self.partition = plan, partition
        self._clock = RoundClock()
        self._reasons: dict[str, list[str]] = {}
        steps = plan.fragment.steps
        self._steps = {s.name: self._chained_step(s) for s in steps if find_spark_sql(s.op) is None}
        self._only_in_jvm = {s.name: s for s in steps if s.name not in self._steps}
        self._partitioners = {
            edge.number: WirePartitioner(edge.key, plan.schemas[edge.ref], plan.n_partitions)
            for edges in plan.edges.values()
            for edge in edges
        }
        self._partials = {step.name: self._adaptive_partials(step, edge) for step, edge in plan.sends}
        self.at = 0  # the number of the current step, for failures

    def _chained_step(self, step: Step) -> _ChainedStep:
        accounts = Accounts()
        site = self._site(step, accounts)
        if isinstance(step.op, Windows) and step.name in self._plan.partials.values():
            return _ChainedStep(step, AdaptiveFinalStage(step.op, step.up, site), accounts)
        copied = step.routing == Routing.BROADCAST and not step.op.stateful
        replicas = tuple(
            build_stage(step.op, step.up, site) for _ in range(1, step.degree.least if copied else 1)
        )
        return _ChainedStep(step, build_stage(step.op, step.up, site), accounts, replicas)

    def _site(self, step: Step, accounts: Accounts) -> StageContext:
        reasons = self._reasons.setdefault(step.name, [])
        return StageContext(
            step.name, step.where, accounts, self._clock, self._plan.ports[step.name], reasons
        )

    def _adaptive_partials(self, step: Step, edge: Edge) -> AdaptivePartials:
        accounts = Accounts()
        partials = AdaptivePartials(step, self._site(step, accounts), accounts)
        key, schema = partials.format.key, partials.format.schema
        self._partitioners[edge.number] = WirePartitioner(key, schema, self._plan.n_partitions)
        return partials

    def restore(self, state: StateHandles, files: StateFiles) -> None:
        """Restores the buckets of this partition from the state files."""
        for name, places in state.items():
            own = {b: place for b, place in places.items() if b % self._plan.n_partitions == self.partition}
            if own and name in self._steps:
                self._steps[name].stage.restore(files.read(own, name))

    def run_round(self, round_: RoundPlan, inputs: FragmentInput) -> list[WireRow]:
        """Runs the rows of one round through all steps; returns what leaves, and what was counted."""
        self._clock.us = round_.now
        output: list[WireRow] = []
        for _, name in inputs.rows:
            self._refuse_outside_jvm(name)
        for number, chained in enumerate(self._steps.values()):
            self.at = number
            step, stage = chained.step, chained.stage
            batches = [*inputs.rows.pop((round_.number, step.name), []), *chained.pending]
            chained.pending = []
            if isinstance(stage, WindowStage) and step.name in round_.fired:
                stage.fired_at = round_.fired[step.name]
            for body in inputs.partials.pop((round_.number, step.name), []):
                assert isinstance(stage, AdaptiveFinalStage), "partials go to windows that take them"
                partials = unpack_batch(body, stage.format.schema)
                if partials.num_rows:
                    stage.on_partials(partials)
            for port, batch in self._run_step(chained, batches, round_.advances[step.name]):
                if batch.num_rows:
                    output += self._emit(Ref(step.name, port), batch, round_.number)
        output += self._emit_partials(round_)
        accounts = {name: chained.accounts for name, chained in self._steps.items()}
        accounts |= {name: partials.accounts for name, partials in self._partials.items()}
        counts = {name: asdict(counted.take()) for name, counted in accounts.items()}
        output.append(report(Kind.ACCOUNTS, round_.number, self.partition, counts))
        reasons = {name: texts.pop() for name, texts in self._reasons.items() if texts}
        return [*output, report(Kind.REASONS, round_.number, self.partition, reasons)] if reasons else output

    def run_rows(self, ref: Ref, batch: Batch, round_: RoundPlan) -> list[WireRow]:
        """Runs rows through the fragment that were read, or computed by the JVM, as those of a port."""
        output = list(self._emit(ref, batch, round_.number))
        return output + self.run_round(round_, FragmentInput(self._plan))

    def _run_step(
        self, chained: _ChainedStep, batches: list[Batch], advance: WatermarkAdvance
    ) -> Iterator[tuple[str, Batch]]:
        if len(batches) > 1:
            batches = [merge_batches(batches, chained.step.up.schema)]
        for stage in (chained.stage, *chained.replicas):
            for batch in batches:
                yield from stage.on_batch(batch, advance.before)
            yield from stage.drain() if advance.over else stage.on_watermark(advance.after)

    def _emit(self, ref: Ref, batch: Batch, round_: int) -> Iterator[WireRow]:
        """Hands a batch to the steps of this fragment that read it, and packs it for those of others."""
        for name in self._plan.fragment.inside.get(ref, ()):
            self._refuse_outside_jvm(name)
            self._steps[name].pending.append(batch)
        for edge in self._plan.edges.get(ref, ()):
            if edge.fragment == self._plan.fragment.number and edge.step is not None:
                self._steps[edge.step].pending.append(batch)
            elif edge.step in self._partials:
                self._partials[edge.step].pending.append(batch)
            else:
                yield from self._pack(edge, batch, round_)

    def _refuse_outside_jvm(self, name: str) -> None:
        """Raises if rows reached a step whose expressions only the JVM can compute."""
        if name in self._only_in_jvm:
            step = self._only_in_jvm[name]
            raise NotSupported(
                f"{find_spark_sql(step.op)} runs in the JVM, and a batch had to be read outside of it",
                step=name,
                where=step.where,
                detail="a row of it failed, a time was null or out of range, or a column had to be cast",
                hint="filter such rows before, or use functions of Penstock: ps.col(...)",
            )

    def _pack(self, edge: Edge, batch: Batch, round_: int) -> Iterator[WireRow]:
        for partition, rows in self._partitioners[edge.number].partition(batch, self.partition):
            for body in pack_pieces(rows):
                yield WireRow(edge.fragment, Kind.BATCH, edge.number, round_, partition, body)

    def _emit_partials(self, round_: RoundPlan) -> Iterator[WireRow]:
        """Packs what is sent to windows behind the exchange: partials, or rows where those are not more."""
        for number, (step, edge) in enumerate(self._plan.sends, len(self._steps)):
            self.at = number
            outputs, rows = self._partials[step.name].aggregate(round_.advances[step.name].before)
            for port, batch in outputs:
                if port == PARTIALS:
                    yield from self._pack(edge, batch, round_.number)
                else:
                    yield from self._emit(Ref(step.name, port), batch, round_.number)
            for batch in rows:
                yield from self._pack(self._plan.rows_edge(step.name), batch, round_.number)

    def save(self, task: JobTask) -> list[WireRow]:
        """Writes the state that has changed; returns where it is."""
        if not self._plan.fragment.keyed:
            return []
        pieces = {name: dict(chained.stage.snapshot()) for name, chained in self._steps.items()}
        places = task.files.write(task.version, f"{self._plan.fragment.number}-{self.partition}", pieces)
        written = {step: list(by_bucket.items()) for step, by_bucket in places.items() if by_bucket}
        return [report(Kind.STATE, task.rounds[-1].number, self.partition, written)] if written else []
