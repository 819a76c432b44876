"""The plan: a checked graph, its steps in an order in which every step comes after what feeds it.

Engines lower a plan and nothing else. It holds only the steps that some sink, or some collected pipe, needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from penstock.connect.readers.program import table
from penstock.errors import PenstockError, Where
from penstock.frozen import Frozen
from penstock.operators.ends import Sink, Source
from penstock.operators.op import NO_HISTORY, OUT, Degree, Op, Routing, StepHistory, Stream
from penstock.operators.rows import Split
from penstock.operators.table_join import TableJoin

if TYPE_CHECKING:
    from penstock.blocks import Derivation


class Ref(Frozen):
    """One output port of a step."""

    step: str
    port: str = OUT

    def __str__(self) -> str:
        return self.step if self.port == OUT else f"{self.step}.{self.port}"


class Input(Frozen):
    """One input port of a step and what feeds it; several feeds are merged.

    `control` ports change an operator's state and carry no data downstream; only they may close a loop.
    """

    port: str
    feeds: tuple[Ref, ...]
    stream: Stream
    control: bool = False


class Step(Frozen):
    """An operator in its place.

    name     unique in the graph; names errors, events, state and the picture
    op       what it does
    inputs   data ports in the operator's order, then control ports
    outputs  port -> stream, `late` and `errors` among them where the operator has them
    degree   replicas
    routing  how rows reach the replicas; None for a source
    fuse     whether it asks to run in one task with the step before it
    where    the user's line that wrote it
    history  what it was in earlier runs of its checkpoint
    """

    name: str
    op: Op
    inputs: tuple[Input, ...]
    outputs: Mapping[str, Stream]
    degree: Degree
    routing: Routing | None
    fuse: bool
    where: Where | None
    history: StepHistory = NO_HISTORY

    @property
    def as_source(self) -> Source:
        """Return what the step does, if it is a source."""
        assert isinstance(self.op, Source), "only sources read"
        return self.op

    @property
    def up(self) -> Stream:
        """Return what flows into the only data port."""
        return self.inputs[0].stream

    @property
    def feeds(self) -> tuple[Ref, ...]:
        """Return everything that flows in, on any port."""
        return tuple(ref for port in self.inputs for ref in port.feeds)

    @property
    def data_feeds(self) -> tuple[Ref, ...]:
        """Return what flows in on data ports."""
        return tuple(ref for port in self.inputs if not port.control for ref in port.feeds)


class Plan(Frozen):
    """What an engine runs.

    graph     the graph's name
    steps     in order: feeds first
    collects  output ports whose rows are collected in memory, beside the sinks
    derived   the graph in building blocks, and the rules applied; None where nothing merges, until asked
    sources   the steps that read, in the order they were written: this ranks rows of equal time
    sinks     the steps that write
    """

    graph: str
    steps: tuple[Step, ...]
    collects: tuple[Ref, ...] = ()
    derived: Derivation | None = field(default=None, repr=False, compare=False)
    sources: tuple[Step, ...] = field(init=False, repr=False, compare=False)
    sinks: tuple[Step, ...] = field(init=False, repr=False, compare=False)
    _by_name: Mapping[str, Step] = field(init=False, repr=False, compare=False)
    _readers: Mapping[Ref, tuple[tuple[str, str], ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sources = tuple(step for step in self.steps if isinstance(step.op, Source))
        object.__setattr__(self, "sources", sources)
        object.__setattr__(self, "sinks", tuple(step for step in self.steps if isinstance(step.op, Sink)))
        object.__setattr__(self, "_by_name", {step.name: step for step in self.steps})
        readers: dict[Ref, list[tuple[str, str]]] = {}
        for step in self.steps:
            for port in step.inputs:
                for ref in port.feeds:
                    readers.setdefault(ref, []).append((step.name, port.port))
        object.__setattr__(self, "_readers", {ref: tuple(ports) for ref, ports in readers.items()})

    def __getitem__(self, name: str) -> Step:
        return self._by_name[name]

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def readers(self, ref: Ref) -> tuple[tuple[str, str], ...]:
        """Return the (step, port) of everyone who reads an output port."""
        return self._readers.get(ref, ())

    def is_read(self, ref: Ref) -> bool:
        """Return whether rows on this port go anywhere."""
        return ref in self._readers or ref in self.collects

    def read_ports(self, step: Step) -> frozenset[str]:
        """Return the output ports of a step whose rows go anywhere."""
        return frozenset(port for port in step.outputs if self.is_read(Ref(step.name, port)))


def group_fused(plan: Plan) -> list[list[Step]]:
    """Return the steps by task, each task's in order: WindFlow's rule for chaining (WindFlow, 2.2.2).

    A step is fused with the step before it when it asks to be, rows are forwarded between equal degrees, it
    has one feed, and nobody else reads the step that feeds it: where streams fork or merge, a task ends. As
    in the algebra, a split is no task but belongs to what feeds it, and rows that flow back into a control
    port do not count. Invariant: a group is a chain, entered at its first step and left at its last, but for
    those.
    """
    rank = {step.name: index for index, step in enumerate(plan)}
    n_readers = Counter(
        ref.step
        for step in plan
        for port in step.inputs
        for ref in port.feeds
        if not (port.control and rank.get(ref.step, -1) >= rank[step.name])
    )
    # Steps whose rows go to several readers, also by another branch of what feeds a split.
    forking = {name for name, count in n_readers.items() if count > 1}
    forking |= {s.name for s in plan if isinstance(s.op, Split) and s.feeds[0].step in forking}
    tasks: list[list[Step]] = []
    task_of: dict[str, list[Step]] = {}
    for step in plan:
        task: list[Step] = []
        feed = step.feeds[0].step if len(step.feeds) == 1 and not step.inputs[0].control else None
        forwarded = step.fuse and step.routing is Routing.FORWARD and feed not in forking
        if forwarded and feed in rank and plan[feed].degree == step.degree:
            task = task_of[feed]
        if not task:
            tasks.append(task)
        task.append(step)
        task_of[step.name] = task
    return tasks


def load_tables(plan: Plan) -> Plan:
    """Return the plan with every joined table read into memory.

    A table is read once, before the run, and travels with the step, so that workers need not see its file and
    all replicas share it.
    """
    steps = []
    for step in plan:
        if not isinstance(step.op, TableJoin):
            steps.append(step)
            continue
        try:
            steps.append(replace(step, op=replace(step.op, table=table(step.op.load()))))
        except PenstockError as problem:
            raise problem.at(step.name, step.where) from None
    return replace(plan, steps=tuple(steps))
