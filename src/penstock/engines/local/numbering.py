"""Which window steps get rows that carry the reader's number alone, each another one.

Rows of one time are then in order by it, so first, last and count windows need no rows to compare, also where
rows come from several replicas. That is so behind one source whose reader numbers rows, through steps that
give at most one row for a row. It holds for readers of Penstock's own; a user's may number rows twice.
"""

from __future__ import annotations

from penstock.operators.accumulator import Accumulator
from penstock.operators.filter import Filter
from penstock.operators.map import Map, Select
from penstock.operators.source import Source
from penstock.operators.split import Relay, Split
from penstock.operators.static_join import StaticJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan
from penstock.plan.step import Step

_ONE_FOR_ONE = (Map, Filter, Select, StaticJoin, Split, Relay, Accumulator)


def numbered_steps(plan: Plan) -> frozenset[str]:
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
    from penstock.connect.readers.files import FileReader
    from penstock.connect.readers.following import FollowingReader
    from penstock.connect.readers.iterable import IterableReader
    from penstock.connect.readers.rows import BatchesReader
    from penstock.connect.readers.table import TableReader

    known = (FileReader, FollowingReader, IterableReader, BatchesReader, TableReader)
    return isinstance(reader, known)
