"""The plan as task groups: which steps run in one task, and with how many replicas.

A group is a chain of fused steps (`plan/plan.py`). Sources, sinks and process operators exist once,
whatever the parallelism says, so a chain is split where a single step meets replicated ones. A window step
that is decomposed (`stages/patterns`) is two groups: the parallel replicas, and the tasks that merge their
results.

Two decisions about window steps are made here as well, before any task exists:

total order     whether rows of equal time are ordered by the numbers that their reader gave them
preaggregation  whether windows by key are combined per slice and key before the exchange (AIR, 4.3)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import Enum

from penstock.frozen import Frozen
from penstock.operators.ends import Sink, Source
from penstock.operators.op import ERRORS, JOIN, LATE, LATE_RIGHT, Routing
from penstock.operators.process import Process
from penstock.operators.rows import Accumulate, Filter, Map, Relay, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import KEYED, PANED, Windows, why_not_pattern
from penstock.plan.plan import Plan, Step, group_fused

_ONE_TASK = (Source.kind, Sink.kind, Process.kind, JOIN)
"""Kinds of operators with one task; the parallelism of a join is the number of its cells."""


class Role(Enum):
    """What the tasks of a group do for its first step."""

    WHOLE = "whole"
    PARALLEL = "parallel"
    MERGE = "merge"
    FORWARD = "forward"


class TaskGroup(Frozen):
    """A chain of steps that run in one task, and the number of replicas of it.

    number         its position in the topology, producers first
    width          number of tasks
    role           PARALLEL and MERGE are the two halves of decomposed windows; tasks that only FORWARD the
                   rows of a step, to be partitioned or collected behind them, run no step of their own
    preaggregates  window steps at the end of the chain whose rows are combined here, before they go by key
    """

    number: int
    steps: tuple[Step, ...]
    width: int
    role: Role = Role.WHOLE
    preaggregates: tuple[str, ...] = ()

    @property
    def head(self) -> Step:
        """Return the first step."""
        return self.steps[0]

    def runs(self, step: str) -> bool:
        """Return whether the step runs in this group."""
        return self.role is not Role.FORWARD and any(member.name == step for member in self.steps)

    def emits_partials_of(self, step: str) -> bool:
        """Return whether this group emits partial results of a window step, which another group merges."""
        return step in self.preaggregates or (self.role is Role.PARALLEL and self.runs(step))


def split_into_groups(
    plan: Plan, *, saved: bool = False, max_replicas: int = 1, ordered: Collection[str] = ()
) -> list[TaskGroup]:
    """Split a plan into task groups.

    saved         whether the run has a checkpoint
    max_replicas  upper bound for elastic steps
    ordered       window steps whose rows are totally ordered
    """
    result: list[TaskGroup] = []
    for fused in group_fused(plan):
        for chain in _split_chain(fused, max_replicas):
            head, degree = chain[0], chain[0].degree.least
            if head.op.kind in _ONE_TASK:
                halves = [(1, Role.WHOLE)]
            elif is_decomposed(head, saved=saved, ordered=head.name in ordered):
                halves = [(degree, Role.PARALLEL), (degree if head.up.key else 1, Role.MERGE)]
            elif is_elastic(head):
                halves = [(max(degree, min(head.degree.most, max_replicas)), Role.WHOLE)]
            else:
                halves = [(degree, Role.WHOLE)]
            for width, role in halves:
                steps = chain[:1] if role is Role.PARALLEL else chain
                result.append(TaskGroup(len(result), tuple(steps), width, role))
    return result


def _split_chain(steps: list[Step], max_replicas: int) -> Iterator[list[Step]]:
    """Split a fused chain where a step with a single task meets replicated ones."""
    chain: list[Step] = []
    for step in steps:
        replicated = step.degree.least > 1 or (step.degree.elastic and max_replicas > 1)
        if chain and replicated and (isinstance(step.op, Sink) or chain[0].op.kind in _ONE_TASK):
            yield chain
            chain = []
        chain.append(step)
    yield chain


def is_decomposed(step: Step, *, saved: bool, ordered: bool = False) -> bool:
    """Return whether a window step runs as a pattern of two groups instead of replicas by key.

    All patterns give the same results, so a pattern that does not fit falls back to replicas by key. A single
    replica needs no pattern, unless its state is saved: any number of replicas may restore it later.
    """
    if not isinstance(step.op, Windows) or step.op.pattern == KEYED:
        return False
    if step.degree.least == 1 and not saved:
        return False
    return why_not_pattern(step.op.pattern, step.op, step.up, totally_ordered=ordered) is None


def is_elastic(step: Step) -> bool:
    """Return whether the number of replicas of a group that begins with the step can change during a run."""
    if not step.degree.elastic or step.op.kind in _ONE_TASK or is_broadcast(step):
        return False
    return bool(step.up.key) or not is_keyed(step)


def is_keyed(step: Step) -> bool:
    """Return whether rows of one key must meet in one replica."""
    return step.routing is Routing.KEY_BY or isinstance(step.op, Windows) or step.op.stateful


def is_broadcast(step: Step) -> bool:
    """Return whether every replica receives every row."""
    return step.routing is Routing.BROADCAST and not step.op.stateful and step.op.kind not in _ONE_TASK


def can_rescale(group: TaskGroup) -> bool:
    """Return whether keyed state moves between the replicas of a group while rows flow (`elastic/`)."""
    return group.role is Role.WHOLE and group.width > group.head.degree.least and is_keyed(group.head)


_AT_MOST_ONE_ROW = (Map, Filter, WithColumns, TableJoin, Split, Relay, Accumulate)
"""Operators that emit at most one row for a row, so that a row keeps its reader's number."""


def totally_ordered_steps(plan: Plan) -> frozenset[str]:
    """Return the window steps that depend on the order of rows of equal time and get totally ordered rows.

    Behind one source whose reader numbers its rows, and through steps that emit at most one row for a row,
    each row carries another number. So first, last and count windows need not compare whole rows, even if the
    rows come from several replicas. Only Penstock's own readers are trusted: a user's reader may repeat a
    number.
    """
    if len(plan.sources) != 1:
        return frozenset()
    ordered = []
    for step in plan:
        if isinstance(step.op, Windows):
            aggregates = (step.op.aggregates or {}).values()
            takes_ends = any(type(aggregate).__name__ in ("First", "Last") for aggregate in aggregates)
            if (takes_ends or step.op.resolve(step.up).has_counts) and _has_numbered_rows(plan, step):
                ordered.append(step.name)
    return frozenset(ordered)


def _has_numbered_rows(plan: Plan, step: Step) -> bool:
    from penstock.connect.readers.files import FileReader
    from penstock.connect.readers.iterables import IterableReader
    from penstock.connect.readers.program import TableReader

    while len(step.feeds) == 1:
        step = plan[step.feeds[0].step]
        if isinstance(step.op, Source):
            numbering = (FileReader, IterableReader, TableReader)
            return isinstance(step.op.reader, numbering)
        if not isinstance(step.op, _AT_MOST_ONE_ROW):
            return False
    return False


def preaggregate_groups(groups: Sequence[TaskGroup], ordered: Collection[str] = ()) -> list[TaskGroup]:
    """Return the groups with windows by key preaggregated in the groups that feed them, where possible.

    The first half of paned windows (`stages/patterns`) moves to the end of the chain that produces the rows:
    it keeps one accumulator cell per slice and key, and only cells of ended slices are exchanged by key. Late
    rows are decided there, by the watermark of the step; so a step qualifies only if a single chain feeds it,
    not where streams with different watermarks meet.
    """
    result = list(groups)
    for group in groups:
        step, op = group.head, group.head.op
        if not isinstance(op, Windows) or op.pattern != KEYED or step.routing is not Routing.KEY_BY:
            continue
        if step.degree.elastic or step.degree.least == 1 or not step.up.key or len(step.data_feeds) != 1:
            continue
        (ref,) = step.data_feeds
        is_side_output = ref.port in (LATE, LATE_RIGHT, ERRORS)
        totally_ordered = step.name in ordered
        if is_side_output or why_not_pattern(PANED, op, step.up, totally_ordered=totally_ordered):
            continue
        # The group whose last step feeds the windows; none if the rows leave in the middle of a chain.
        for producer in result:
            own = producer.steps[: len(producer.steps) - len(producer.preaggregates)]
            if own and own[-1].name == ref.step and not producer.emits_partials_of(ref.step):
                break
        else:
            continue
        if group.role is Role.WHOLE and group.width > 1:
            result[producer.number] = replace(
                producer,
                steps=(*producer.steps, step),
                preaggregates=(*producer.preaggregates, step.name),
            )
            result[group.number] = replace(result[group.number], role=Role.MERGE)
    return result
