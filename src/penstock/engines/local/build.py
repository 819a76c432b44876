"""Tasks of a run: every task group becomes one task per replica, with a chain of steps and their stages.

The way from a plan to a running graph is plan -> task groups (`task_groups.py`) -> tasks (here) -> channels
between them (`connect.py`). Nothing is opened and no row is read on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.engines.ends import SinkWriter, SourceReader
from penstock.engines.frontiers import output_delay
from penstock.engines.local import task_groups
from penstock.engines.local.channels import RoundRobinOutput
from penstock.engines.local.options import Settings, available_cores
from penstock.engines.local.processes.pool import ProcessPool
from penstock.engines.local.progress import Progress
from penstock.engines.local.task_groups import Role, TaskGroup
from penstock.engines.local.tasks.chain import ChainedStep, CollectedRows, SinkStep, StageStep, StatelessStep
from penstock.engines.local.tasks.source import PushedInput, SourceTask
from penstock.engines.local.tasks.task import InputTask, Task
from penstock.errors import PenstockError
from penstock.frozen import Frozen, dataclass
from penstock.operators.ends import Sink, Source
from penstock.operators.op import JOIN, OUT, Routing
from penstock.operators.process import Process
from penstock.operators.windows import PANED, Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.build import build_join_stage, build_stage
from penstock.stages.stage import Stage, StageContext, StatelessStage
from penstock.timing.windows import SessionSpec

if TYPE_CHECKING:
    from penstock.engines.local.elastic.rescale import BucketAssignment
    from penstock.stages.patterns.pattern import Pattern


class Replicas(Frozen):
    """A task group with its tasks, one per replica."""

    group: TaskGroup
    tasks: list[Task]

    def chained_steps(self, step: str) -> list[ChainedStep]:
        """Return the chained steps of a step, one per task."""
        return [chained for task in self.tasks for chained in task.chain if chained.step.name == step]


@dataclass(slots=True)
class ExecutionGraph:
    """All tasks of a run.

    tasks             in topological order; those that only partition or collect come last
    replicas          the same tasks by group
    patterns          decomposed window step -> its stages and partitioners
    elastic_outputs   elastic step without keys -> the outputs that distribute rows to its replicas
    assignments       number of a group with keyed state that can rescale -> which replica owns which bucket
    earlier_accounts  step -> what earlier runs of the same checkpoint have counted
    """

    plan: Plan
    tasks: list[Task] = field(default_factory=list)
    replicas: list[Replicas] = field(default_factory=list)
    patterns: dict[str, Pattern] = field(default_factory=dict)
    readers: dict[str, SourceReader] = field(default_factory=dict)
    writers: dict[str, SinkWriter] = field(default_factory=dict)
    collections: dict[Ref, CollectedRows] = field(default_factory=dict)
    elastic_outputs: dict[str, list[RoundRobinOutput]] = field(default_factory=dict)
    assignments: dict[int, BucketAssignment] = field(default_factory=dict)
    earlier_accounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def accounts(self) -> Mapping[str, Accounts]:
        """Return what became of the rows of every step so far.

        Rows that were sent to a process operator after it had ended count as unrouted.
        """
        accounts = {step.name: Accounts() for step in self.plan}
        for name, counts in self.earlier_accounts.items():
            accounts.setdefault(name, Accounts()).add(Accounts(**counts))
        for task in self.tasks:
            count_task(task, accounts)
            if isinstance(task.steps[0].op, Process):
                unread = sum(channel.unread for channel in task.channels if not channel.feedback)
                accounts[task.steps[0].name].rows_in += unread
                accounts[task.steps[0].name].unrouted += unread
        return accounts

    def metrics(self) -> Mapping[str, Accounts]:
        """Return the accounts; those of joins say what cells they have."""
        accounts = dict(self.accounts())
        for chained in (chained for task in self.tasks for chained in task.chain):
            if chained.step.op.kind == JOIN:
                accounts[chained.step.name] = chained.measure(accounts[chained.step.name])  # type: ignore[attr-defined]
        return accounts


def count_task(task: Task, accounts: Mapping[str, Accounts]) -> None:
    """Add what became of the rows of the steps in a task; only it counts them, so at the end of its round it
    has counted that round and none after it.
    """
    for chained in task.chain:
        accounts[chained.step.name].add(chained.accounts)
        if chained.count_row_path is not None:
            chained.count_row_path(accounts[chained.step.name])


def is_forward(producer: Replicas, consumer: Replicas) -> bool:
    """Return whether each replica sends only to the replica with its own number."""
    if len(producer.tasks) != len(consumer.tasks) or len(consumer.tasks) == 1:
        return False
    return consumer.group.role is Role.FORWARD or consumer.group.head.routing is Routing.FORWARD


class TaskBuilder:
    """Builds the tasks of a plan; they are in `graph` when the constructor returns.

    inputs     source -> its batches, if a harness pushes them
    processes  worker processes for some of the steps
    observe    called with every stage, reader, writer and process operator before anybody else calls it
    """

    def __init__(
        self,
        plan: Plan,
        settings: Settings,
        progress: Progress,
        *,
        inputs: Mapping[str, PushedInput] | None,
        processes: ProcessPool | None,
        observe: Callable[[object], None],
    ) -> None:
        self.graph, self.progress = ExecutionGraph(plan), progress
        self._plan, self._clock, self._inputs = plan, progress.clock, inputs or {}
        self._processes, self._observe = processes, observe
        self._n_threads = settings.threads or available_cores()
        saved, fed = progress.checkpoint is not None, inputs is not None
        # Saved state must suit every engine, so it compares whole rows; pushed rows carry no reader's
        # numbers.
        self._ordered = frozenset[str]() if saved or fed else task_groups.totally_ordered_steps(plan)
        most = 1 if fed else settings.max_replicas
        groups = task_groups.split_into_groups(plan, saved=saved, max_replicas=most, ordered=self._ordered)
        if settings.preaggregate:
            groups = task_groups.preaggregate_groups(groups, self._ordered)
        for group in groups:
            try:
                self._add(group)
            except PenstockError as failure:
                raise failure.at(group.head.name, group.head.where) from None

    def add_forwarding(self, ref: Ref, width: int) -> Replicas:
        """Add tasks that only pass the rows of a port on, to be partitioned or collected behind them."""
        return self._add(TaskGroup(len(self.graph.replicas), (self._plan[ref.step],), width, Role.FORWARD))

    def _add(self, group: TaskGroup) -> Replicas:
        """Add the tasks of a group, one per replica."""
        head, graph, progress = group.head, self.graph, self.progress
        op = None if group.role is Role.FORWARD else head.op
        listener = progress if progress.has_listener and op is not None else None
        replicas = Replicas(group, [])
        for replica in range(group.width):
            chain: list[ChainedStep] = []
            number = len(graph.tasks)
            for step in group.steps:
                chain.append(self._chained_step(step, group, replica))
                chain[-1].listener = listener
                if len(chain) > 1:  # rows pass from one to the next by a direct call
                    before = next(chained for chained in chain if chained.step.name == step.feeds[0].step)
                    before.add_target(step.feeds[0].port, chain[-1].feed)
            if isinstance(op, Source):
                reader, pushed = graph.readers[head.name], self._inputs.get(head.name)
                round_group = 0 if progress.in_rounds else self._plan.sources.index(head)
                task: Task = SourceTask(number, chain, progress, reader, pushed, round_group)
            elif isinstance(op, Process):
                from penstock.engines.local.tasks.process import ProcessTask

                task = ProcessTask(number, replica, chain, progress)
                self._observe(task.loop)
            elif op is not None and op.kind == JOIN:
                from penstock.engines.local.tasks.join import JoinTask

                task = JoinTask(number, replica, chain, progress)
            else:
                task = InputTask(number, replica, chain, progress)
            graph.tasks.append(task)
            replicas.tasks.append(task)
        graph.replicas.append(replicas)
        return replicas

    def _chained_step(self, step: Step, group: TaskGroup, replica: int) -> ChainedStep:
        accounts = Accounts()
        if group.role is Role.FORWARD or isinstance(step.op, Process):
            return ChainedStep(step, accounts)
        if isinstance(step.op, Source):
            reader = SourceReader(self._plan, step, self._clock, accounts)
            self.graph.readers[step.name] = reader
            self._observe(reader)
            self.progress.reasons[step.name] = reader.reasons
            return ChainedStep(step, accounts)
        if isinstance(step.op, Sink):
            writer = SinkWriter(step, accounts)
            self.graph.writers[step.name] = writer
            self._observe(writer)
            return SinkStep(step, writer)
        if step.name in group.preaggregates or (step is group.head and group.role is not Role.WHOLE):
            return self._decomposed_step(step, group, replica)
        if step.op.kind == JOIN:
            return self._join_step(step, accounts)
        site, ordered = self._site(step, accounts), step.name in self._ordered
        if self._processes is None:
            stage = build_stage(step.op, step.up, site, totally_ordered=ordered)
        else:
            stage = self._processes.stage_of(step, replica, site, ordered=ordered)
        return self._stage_step(step, stage, accounts, output_delay(step))

    def _join_step(self, step: Step, accounts: Accounts) -> ChainedStep:
        """Return a join, with the threads of its cells."""
        from penstock.engines.local.tasks.join import CellThreads, JoinStep
        from penstock.operators.stream_join import CENTRALISED, HANDSHAKE, StreamJoin

        op = step.op
        assert isinstance(op, StreamJoin), "the only operator of its kind"
        # By itself a layout begins with one cell, and follows the rates that are measured.
        layout, sharing = op.layout if isinstance(op.layout, tuple) else (1, 1), 1
        n_most = max(step.degree.least, self._n_threads)
        if op.layout == HANDSHAKE:
            layout = (1, n_most)
        elif op.layout == CENTRALISED:
            sharing = n_most
        max_cells = n_most if op.layout == "auto" else 1
        n_cells = max(layout[0] * layout[1] * sharing, max_cells)
        threads = CellThreads(step.name, min(n_cells, self._n_threads))
        left, right = (port.stream for port in step.inputs)
        site = self._site(step, accounts)
        stage = build_join_stage(op, left, right, site, layout=layout, sharing=sharing, run_cells=threads.run)
        self._observe(stage)
        in_rounds = self.progress.in_rounds
        return JoinStep(
            step,
            accounts,
            stage,
            output_delay(step),
            in_rounds=in_rounds,
            threads=threads,
            max_cells=max_cells,
        )

    def _decomposed_step(self, step: Step, group: TaskGroup, replica: int) -> ChainedStep:
        """Return one half of decomposed windows: parallel or preaggregating, or the merge behind it."""
        from penstock.stages.patterns.partials import PartialAggregateStage
        from penstock.stages.patterns.pattern import decompose
        from penstock.stages.window.stage import WindowStage

        assert isinstance(step.op, Windows), "only windows are decomposed"
        degree, preaggregates = step.degree.least, step.name in group.preaggregates
        pattern = self.graph.patterns.get(step.name)
        if pattern is None:
            pattern = self.graph.patterns[step.name] = decompose(
                step.op,
                step.up,
                group.width if preaggregates else degree,
                lambda: self._site(step, Accounts()),
                pattern=PANED if preaggregates else None,
                totally_ordered=step.name in self._ordered,
                n_final=degree if step.up.key else 1,
            )
        schema, delay = None, 0
        if group.role is Role.PARALLEL or preaggregates:
            stage = pattern.replicas[replica]
        else:
            stage, first, delay = pattern.final_stages[replica], pattern.replicas[0], output_delay(step)
            schema = step.outputs[OUT].schema
            if isinstance(first, PartialAggregateStage):
                schema = first.format.schema
        # A stage that only restores order counts nothing.
        accounts = stage.site.accounts if isinstance(stage, WindowStage) else Accounts()
        return self._stage_step(step, stage, accounts, delay, schema)

    def _stage_step(
        self, step: Step, stage: Stage, accounts: Accounts, delay: int, schema: pa.Schema | None = None
    ) -> ChainedStep:
        self._observe(stage)
        # Why: with sessions one row of a round may extend a session so that it takes another, so they go
        # together.
        has_sessions = isinstance(step.op, Windows) and any(
            isinstance(spec, SessionSpec) for _, spec in step.op.specs
        )
        waits = self.progress.in_rounds or has_sessions
        if not waits and isinstance(stage, StatelessStage):
            return StatelessStep(step, accounts, stage)
        chained = StageStep(step, accounts, stage, delay, (schema or step.up.schema) if waits else None)
        if waits and self.progress.checkpoint is not None:
            from penstock.stages.patterns.partials import PartialAggregateStage

            if isinstance(stage, PartialAggregateStage):
                chained.flush = stage.flush
        return chained

    def _site(self, step: Step, accounts: Accounts) -> StageContext:
        read = self._plan.read_ports(step)
        listens = self.progress.has_listener
        reasons = self.progress.reasons.setdefault(step.name, []) if listens else None
        return StageContext(step.name, step.where, accounts, self._clock, read, reasons, step.history)


def needs_own_thread(
    task: Task, settings: Settings, graph: ExecutionGraph, processes: ProcessPool | None
) -> bool:
    """Return whether a task gets its own thread: as asked, or because it waits for a reader or process."""
    if settings.seed is not None:
        return False
    if settings.threads == 0 or (processes is not None and processes.serves(task)):
        return True
    return any(
        step.op.dedicated
        or step.name in settings.dedicated
        or (step.name in graph.readers and graph.readers[step.name].waits)
        for step in task.steps
    )
