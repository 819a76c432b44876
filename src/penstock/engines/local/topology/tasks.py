"""Which steps run in one node, and in how many copies: the plan's fused lines, cut where a copy may not be.

Sources read once, sinks write once and an own loop is one operator, so these have one node, whatever the
degree. A window step that is spread by windows, slices or parts of windows (`stages/patterns`) is two groups:
the replicas, and those that put their work together again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import Enum

from penstock.frozen import dataclass
from penstock.operators.accumulate import Accumulate
from penstock.operators.choices.patterns import KEYED, PANED, why_not_pattern
from penstock.operators.columns import WithColumns
from penstock.operators.map import Filter, Map
from penstock.operators.op import ERRORS, LATE, LATE_RIGHT, Routing
from penstock.operators.process import Process
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.split import Relay, Split
from penstock.operators.table_join import TableJoin
from penstock.operators.windows import Windows
from penstock.plan.fusion import fused_with, groups
from penstock.plan.plan import Plan, Step

_ALONE = (Source, Sink, Process)


class Role(Enum):
    """What of its first step a group does."""

    WHOLE = "whole"
    PARALLEL = "parallel"
    MERGE = "merge"
    PARTITION = "partition"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A line of steps.

    number  its place, feeds first
    width   how many nodes
    part    for spread windows: the replicas, or what is behind them; or nodes that only deal or collect
    ahead   window steps at the end of the line whose rows are combined here, before they go by key
    """

    number: int
    steps: tuple[Step, ...]
    width: int
    role: Role = Role.WHOLE
    preaggregates: tuple[str, ...] = ()

    @property
    def head(self) -> Step:
        """The first step."""
        return self.steps[0]

    def has(self, step: str) -> bool:
        """Whether the step works here."""
        if self.role in (Role.PARTITION, Role.COLLECT):
            return False
        return any(each.name == step for each in self.steps)

    def emits_partials_of(self, step: str) -> bool:
        """Whether what leaves here for a window step is put together behind."""
        return step in self.preaggregates or (self.role is Role.PARALLEL and self.has(step))


def is_decomposed(step: Step, *, saved: bool, numbered: bool = False) -> bool:
    """Whether a window step is more than replicas by key; `numbered` if its rows are (`numbering.py`).

    The answer is the same for all patterns, so what a pattern cannot take is spread by key. One replica needs
    no pattern, unless its state is saved, for any number of replicas to take up.
    """
    if not isinstance(step.op, Windows) or step.op.pattern == KEYED:
        return False
    if step.degree.least == 1 and not saved:
        return False
    return why_not_pattern(step.op.pattern, step.op, step.up, totally_ordered=numbered) is None


def split_into_groups(
    plan: Plan, *, saved: bool = False, most: int = 1, numbered: Collection[str] = ()
) -> list[TaskGroup]:
    """The groups of a plan.

    saved     it has a checkpoint
    most      replicas at most of what is elastic
    numbered  window steps whose rows come with numbers
    """
    found: list[TaskGroup] = []
    for steps in groups(plan, fused_with(plan)):
        for line in _lines(steps, most):
            spread = is_decomposed(line[0], saved=saved, numbered=line[0].name in numbered)
            for width, part in _parts(line, spread=spread, most=most):
                kept = line[:1] if part is Role.PARALLEL else line
                found.append(TaskGroup(len(found), tuple(kept), width, part))
    return found


def _lines(steps: list[Step], most: int) -> Iterator[list[Step]]:
    """A fused line, cut before and behind what has one node while the others have several."""
    line: list[Step] = []
    for step in steps:
        several = step.degree.least > 1 or (step.degree.elastic and most > 1)
        if line and several and (isinstance(step.op, Sink) or isinstance(line[0].op, _ALONE)):
            yield line
            line = []
        line.append(step)
    yield line


def _parts(line: list[Step], *, spread: bool, most: int) -> list[tuple[int, Role]]:
    head, degree = line[0], line[0].degree.least
    if isinstance(head.op, _ALONE):
        return [(1, Role.WHOLE)]
    if spread:
        return [(degree, Role.PARALLEL), (degree if head.up.key else 1, Role.MERGE)]
    if is_elastic(head):
        return [(max(degree, min(head.degree.most, most)), Role.WHOLE)]
    return [(degree, Role.WHOLE)]


def is_elastic(step: Step) -> bool:
    """Whether a group that begins with the step, and is not spread, can have more replicas and fewer."""
    if not step.degree.elastic or isinstance(step.op, _ALONE) or is_broadcast(step):
        return False
    return bool(step.up.key) or not is_keyed(step)


def is_keyed(step: Step) -> bool:
    """Whether rows of one key must meet in one replica."""
    return step.routing is Routing.KEY_BY or isinstance(step.op, Windows) or step.op.stateful


def can_rescale(group: TaskGroup) -> bool:
    """Whether its replicas can be more while rows flow, and state by key then moves."""
    return group.role is Role.WHOLE and group.width > group.head.degree.least and is_keyed(group.head)


def is_broadcast(step: Step) -> bool:
    """Whether every replica works on every row."""
    return step.routing is Routing.BROADCAST and not step.op.stateful and not isinstance(step.op, _ALONE)


# Which window steps get rows that carry the reader's number alone, each another one.
#
# Rows of one time are then in order by it, so first, last and count windows need no rows to compare, also
# where rows come from several replicas. That is so behind one source whose reader numbers rows, through
# steps that give at most one row for a row. It holds for readers of Penstock's own; a user's may number
# rows twice.

_ONE_FOR_ONE = (Map, Filter, WithColumns, TableJoin, Split, Relay, Accumulate)


def totally_ordered_steps(plan: Plan) -> frozenset[str]:
    """The window steps to which the order of rows of one time matters, and whose rows are numbered."""
    asking = [step for step in plan if isinstance(step.op, Windows) and _minds_order(step.op, step)]
    if not asking or len(plan.sources) != 1:
        return frozenset()
    return frozenset(step.name for step in asking if _is_numbered(plan, step))


def _minds_order(op: Windows, step: Step) -> bool:
    aggregates = (op.aggregates or {}).values()
    ends = any(type(each).__name__ in ("First", "Last") for each in aggregates)
    return ends or op.resolved(step.up).counted


def _is_numbered(plan: Plan, step: Step) -> bool:
    while len(step.feeds) == 1:
        step = plan[step.feeds[0].step]
        if isinstance(step.op, Source):
            return _numbers_rows(step.op.reader)
        if not isinstance(step.op, _ONE_FOR_ONE):
            return False
    return False


def _numbers_rows(reader: object) -> bool:
    from penstock.connect.readers.directory_watcher import DirectoryWatcher
    from penstock.connect.readers.files import FileReader
    from penstock.connect.readers.iterable import IterableReader
    from penstock.connect.readers.rows import BatchesReader, TableReader

    known = (FileReader, DirectoryWatcher, IterableReader, BatchesReader, TableReader)
    return isinstance(reader, known)


# Windows by key, combined before they are dealt: AIR's local aggregation before a key-by shuffle (4.3).
#
# Where rows are, one cell per (slice, key) takes them in; what goes by key to the replicas is such cells,
# once their slice has ended, and no rows. These are the two halves of paned windows (`stages/patterns`),
# the first at the end of the line that the rows come from. Rows are judged there, by the watermark that
# the step has: so it is done where one line feeds the step, and not where streams of different watermarks
# flow together.

_SIDES = (LATE, LATE_RIGHT, ERRORS)


def preaggregate_groups(groups: Sequence[TaskGroup], numbered: Collection[str] = ()) -> list[TaskGroup]:
    """The same groups, with windows combined at the end of the lines that feed them, wherever that can be.

    numbered  window steps whose rows come with numbers
    """
    found = list(groups)
    for group in groups:
        fits = _can_combine_ahead(group.head, numbered=group.head.name in numbered)
        if group.role is Role.WHOLE and group.width > 1 and fits:
            feeder = _feeder(found, group.head)
            if feeder is not None:
                found[feeder.number] = replace(
                    feeder,
                    steps=(*feeder.steps, group.head),
                    preaggregates=(*feeder.preaggregates, group.head.name),
                )
                found[group.number] = replace(found[group.number], role=Role.MERGE)
    return found


def _can_combine_ahead(step: Step, *, numbered: bool) -> bool:
    """Whether a step is windows by key with a fixed number of replicas, of aggregates that come in parts."""
    op = step.op
    if not isinstance(op, Windows) or op.pattern != KEYED or step.routing is not Routing.KEY_BY:
        return False
    if step.degree.elastic or step.degree.least == 1 or not step.up.key or len(step.data_feeds) != 1:
        return False
    return (
        step.data_feeds[0].port not in _SIDES
        and why_not_pattern(PANED, op, step.up, totally_ordered=numbered) is None
    )


def _feeder(groups: Sequence[TaskGroup], step: Step) -> TaskGroup | None:
    """The line whose last step feeds the step; None if the rows leave in the middle of one."""
    (ref,) = step.data_feeds
    for group in groups:
        own = group.steps[: len(group.steps) - len(group.preaggregates)]
        if own and own[-1].name == ref.step and not group.emits_partials_of(ref.step):
            return group
    return None
