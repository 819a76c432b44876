"""What each pattern can take: keyed windows everything, parallel ones time windows, the others only parts.

Time windows are known before their rows, so they can be dealt; where a session or a count window begins
depends on all rows before. Parts are cells of registers, so paned and map-reduce windows need aggregates
that registers hold, whatever order rows come in.
"""

from __future__ import annotations

from penstock.errors import GraphError
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.stream import Stream
from penstock.operators.windows import PATTERNS, Windows
from penstock.stages.folding import why_python
from penstock.stages.lifting import Lifting
from penstock.stages.lowering import Sheet, lower
from penstock.timing.windows import TimeWindow

KEYED, PARALLEL, PANED, MAP_REDUCE = PATTERNS


def unfit(pattern: str, op: Windows, up: Stream, *, numbered: bool) -> tuple[str, str] | None:
    """(what the pattern cannot take, why), or None if it can take everything."""
    if pattern == KEYED:
        return None
    for _, window in op.resolved(up).windows:
        if not isinstance(window, TimeWindow):
            return str(window), "which windows a row is in depends on other rows, so windows cannot be dealt"
    if pattern == PARALLEL:
        return None
    if op.function is not None:
        return str(op.function), "it sees all rows of a window at once, which here are never together"
    aggregates = op.aggregates or {}
    sheet = Sheet(up, numbered=numbered, foldings=Lifting(aggregates, up).foldings)
    for name, aggregate in aggregates.items():
        why = _whole(aggregate, sheet)
        if why is not None:
            return f"{name}={aggregate}", why
    return None


def able(op: Windows, up: Stream, *, numbered: bool) -> tuple[str, ...]:
    """The patterns that can take the step."""
    return tuple(name for name in PATTERNS if unfit(name, op, up, numbered=numbered) is None)


def refusal(pattern: str, op: Windows, up: Stream, *, numbered: bool) -> GraphError | None:
    """The error that names the patterns that can, or None if this one can take the step."""
    found = unfit(pattern, op, up, numbered=numbered)
    if found is None:
        return None
    what, why = found
    others = " or ".join(f'pattern="{name}"' for name in able(op, up, numbered=numbered))
    return GraphError(f'pattern="{pattern}" cannot compute {what}', detail=why, hint=f"use {others}")


def _whole(aggregate: Aggregate, sheet: Sheet) -> str | None:
    """Why an aggregate needs the rows of whole windows, or None if parts will do."""
    if isinstance(aggregate, Fold) and not aggregate.commutative:
        return "commutative=False asks for rows in order, and parts are combined in any order"
    if isinstance(aggregate, Fold):
        return why_python(aggregate, sheet.up)
    if lower(aggregate, sheet) is None:
        return "it is made from the rows of a window, and parts hold numbers only"
    return None
