"""A plan as nodes: every chained, with its stage, in its node. `wiring.py` puts channels between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.frontiers import output_delay
from penstock.engines.local.options import THREAD
from penstock.engines.local.processes import ProcessPool
from penstock.engines.local.progress import Progress
from penstock.engines.local.tasks.chain import (
    ChainedStep,
    CollectedRows,
    CollectStep,
    ForwardStep,
    RoundStageStep,
    SinkStep,
    StageStep,
    StatelessStep,
)
from penstock.engines.local.tasks.operator import PipelinedTask, RoundTask
from penstock.engines.local.tasks.source import ReaderInput, SourceInput, SourceStep, SourceTask
from penstock.engines.local.tasks.task import Task
from penstock.engines.local.topology.network import ExecutionGraph, Replicas
from penstock.engines.local.topology.tasks import (
    Role,
    TaskGroup,
    preaggregate_groups,
    split_into_groups,
    totally_ordered_steps,
)
from penstock.engines.sinks import SinkWriter
from penstock.engines.sources import SourceReader
from penstock.errors import PenstockError
from penstock.operators.choices.patterns import PANED
from penstock.operators.process import Process
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.window_specs import SessionSpec
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.stage import Site, Stage
from penstock.stages.stateless import StatelessStage

if TYPE_CHECKING:
    from penstock.stages.patterns.pattern import Pattern


class TaskBuilder:
    """Makes the nodes of a plan.

    in_rounds     rows go round by round, all sources at one round_group
    feeds         by source, where somebody feeds the run by hand
    most          replicas of an elastic step, at most
    processes          worker processes for some of the steps
    watch         is shown whoever works, before anybody calls it
    preaggregate  windows by key are combined before they are dealt (`ahead.py`)
    """

    def __init__(
        self,
        plan: Plan,
        clock: Clock,
        progress: Progress,
        *,
        in_rounds: bool,
        drain: bool,
        feeds: Mapping[str, SourceInput] | None = None,
        most: int = 1,
        processes: ProcessPool | None = None,
        watch: Callable[[object], None] = lambda worker: None,
        preaggregate: bool = False,
    ) -> None:
        self._watch = watch
        self._clock, self._progress, self._in_rounds, self._drain = clock, progress, in_rounds, drain
        self._feeds, self._processes = feeds or {}, processes or ProcessPool(plan, THREAD, clock)
        self.graph = ExecutionGraph(plan)
        self._plan = plan
        self._n_nodes = 0
        saved = progress.checkpoint is not None
        # Saved state is by columns, which any engine can take up; what is pushed by hand has no numbers.
        self._numbered = frozenset[str]() if saved or feeds is not None else totally_ordered_steps(plan)
        groups = split_into_groups(plan, saved=saved, most=most, numbered=self._numbered)
        for group in preaggregate_groups(groups, self._numbered) if preaggregate else groups:
            try:
                self._add(group, partial(self._node, group))
            except PenstockError as failure:
                raise failure.at(group.head.name, group.head.where) from None

    def _add(self, group: TaskGroup, make: Callable[[int], Task]) -> Replicas:
        bench = Replicas(group, [])
        for replica in range(group.width):
            bench.nodes.append(make(replica))
            self._n_nodes += 1
        self.graph.replicas.append(bench)
        return bench

    def collecting(self, ref: Ref) -> Replicas:
        """A node of its own for rows that several replicas give."""
        chained = CollectStep(self._plan[ref.step], self.collection(ref))
        return self._between(ref, 1, Role.COLLECT, lambda: chained)

    def dealing(self, ref: Ref, width: int) -> Replicas:
        """Nodes that only deal the rows of a port to the replicas of another step."""
        return self._between(ref, width, Role.PARTITION, lambda: ForwardStep(self._plan[ref.step], ref.port))

    def _between(self, ref: Ref, width: int, role: Role, chained: Callable[[], ChainedStep]) -> Replicas:
        step, make = self._plan[ref.step], RoundTask if self._in_rounds else PipelinedTask
        group = TaskGroup(len(self.graph.replicas), (step,), width, role)

        def node(replica: int) -> Task:
            return make(self._n_nodes, (step,), replica, [chained()], self._progress)

        return self._add(group, node)

    def collection(self, ref: Ref) -> CollectedRows:
        """Where the rows of a port are kept."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        return self.graph.collections.setdefault(ref, CollectedRows(schema))

    def _node(self, group: TaskGroup, replica: int) -> Task:
        chain = [self._seat(step, group, replica) for step in group.steps]
        for chained in chain:
            chained.told = self._progress if self._progress.has_listener else None
        head, number, progress = chain[0], self._n_nodes, self._progress
        if isinstance(head, SourceStep):
            name = head.step.name
            feed = self._feeds.get(name) or ReaderInput(head.reader)
            round_group = 0 if self._in_rounds else self._plan.sources.index(head.step)
            return SourceTask(
                number, group.steps, chain, feed, progress, round_group=round_group, drain=self._drain
            )
        if isinstance(head.step.op, Process):
            from penstock.engines.local.tasks.process import PipelinedProcessTask, RoundProcessTask

            loop = RoundProcessTask if self._in_rounds else PipelinedProcessTask
            node = loop(number, group.steps, chain, progress)
            self._watch(node.loop)
            return node
        make = RoundTask if self._in_rounds else PipelinedTask
        return make(number, group.steps, replica, chain, progress)

    def _seat(self, step: Step, group: TaskGroup, replica: int) -> ChainedStep:
        accounts = Accounts()
        if isinstance(step.op, Source):
            reader = SourceReader(self._plan, step, self._clock, accounts)
            self.graph.readers[step.name] = reader
            self._watch(reader)
            self._progress.reasons[step.name] = reader.reasons
            return SourceStep(step, reader, accounts)
        if isinstance(step.op, Sink):
            writer = SinkWriter(step, accounts)
            self.graph.writers[step.name] = writer
            self._watch(writer)
            return SinkStep(step, writer)
        if isinstance(step.op, Process):
            from penstock.engines.local.tasks.process import ProcessStep

            return ProcessStep(step, accounts)
        if step.name in group.preaggregates or (step is group.head and group.role is not Role.WHOLE):
            return self._spread_seat(step, group, replica)
        site, numbered = self._site(step, accounts), step.name in self._numbered
        stage = self._processes.stage_of(step, replica, site, totally_ordered=numbered)
        return self._stage_seat(step, stage, accounts, output_delay(step))

    def _spread_seat(self, step: Step, group: TaskGroup, replica: int) -> ChainedStep:
        pattern = self._pattern(step, group)
        if group.role is Role.PARALLEL or step.name in group.preaggregates:
            stage = pattern.replicas[replica]
            return self._stage_seat(step, stage, _accounts(stage), 0)
        stage = pattern.final_stages[replica]
        schema = None if pattern.between is None else _schema_between(pattern, step)
        return self._stage_seat(step, stage, _accounts(stage), output_delay(step), schema)

    def _pattern(self, step: Step, group: TaskGroup) -> Pattern:
        if step.name not in self.graph.patterns:
            from penstock.stages.patterns.pattern import decompose

            assert isinstance(step.op, Windows), "only windows are spread"
            degree, ahead = step.degree.least, step.name in group.preaggregates
            self.graph.patterns[step.name] = decompose(
                step.op,
                step.up,
                group.width if ahead else degree,
                lambda: self._site(step, Accounts()),
                pattern=PANED if ahead else None,
                totally_ordered=step.name in self._numbered,
                n_final=degree if step.up.key else 1,
            )
        return self.graph.patterns[step.name]

    def _stage_seat(
        self, step: Step, stage: Stage, accounts: Accounts, by: int, schema: pa.Schema | None = None
    ) -> ChainedStep:
        self._watch(stage)
        if self._in_rounds or _has_sessions(step):
            chained = RoundStageStep(step, stage, accounts, by, schema or step.up.schema)
            if self._progress.checkpoint is not None:
                from penstock.stages.patterns.partials import PartialStage

                if isinstance(stage, PartialStage):
                    chained.flush = stage.flush
            return chained
        if isinstance(stage, StatelessStage):
            return StatelessStep(step, stage, accounts)
        return StageStep(step, stage, accounts, by)

    def _site(self, step: Step, accounts: Accounts) -> Site:
        read = frozenset(port for port in step.outputs if self._plan.is_read(Ref(step.name, port)))
        has_listener, known = self._progress.has_listener, self._progress.reasons
        reasons = known.setdefault(step.name, []) if has_listener else None
        return Site(step.name, step.where, accounts, self._clock, read, reasons)


def _has_sessions(step: Step) -> bool:
    """Whether rows of a round must come together: one may bring another into a session that is open."""
    return isinstance(step.op, Windows) and any(isinstance(spec, SessionSpec) for _, spec in step.op.named())


def _accounts(stage: Stage) -> Accounts:
    """The accounts that a stage counts in; one that only puts results in order has none."""
    site = getattr(stage, "site", None)
    found: Accounts = Accounts() if site is None else site.accounts
    return found


def _schema_between(pattern: Pattern, step: Step) -> pa.Schema:
    """The columns of what replicas give to those that join it."""
    found = getattr(pattern.replicas[0], "format", None)
    schema: pa.Schema = step.outputs["out"].schema if found is None else found.schema
    return schema
