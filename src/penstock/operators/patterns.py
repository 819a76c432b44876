"""Which pattern spreads a window step over replicas: what each can take, and which one "auto" means.

Time windows are known before their rows, so they can be sent to replicas; where a session or a count window
begins depends on all rows before. Partials are cells of accumulators, so paned and map-reduce windows need
aggregates that accumulators hold, whatever order rows come in. Of those that can, keys come first, because a
row then goes to one replica and nothing is merged again; the others are for what WindFlow has them for: too
few keys to go round, down to none (section 2.1).
"""

from __future__ import annotations

from dataclasses import fields

from penstock.errors import GraphError
from penstock.frozen import dataclass
from penstock.operators.aggregates import Fold
from penstock.operators.choices import why_rows
from penstock.operators.op import Stream
from penstock.operators.windows import PATTERNS, Windows
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

KEYED, PARALLEL, PANED, MAP_REDUCE = PATTERNS
DECOMPOSED = {
    KEYED: "all rows of a key go to one replica",
    PARALLEL: "windows go to replicas in turn, and a row to all that have one of its windows; "
    "results are put in order by key",
    PANED: "PLQ + WLQ: slices go to replicas in turn, and windows are combined from them by key",
    MAP_REDUCE: "MAP + REDUCE: rows go to replicas in turn, and partials of slices are merged by key",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """A pattern by name, and why it was chosen."""

    pattern: str
    reason: str


def choose_pattern(
    op: Windows, up: Stream, degree: int, *, totally_ordered: bool = False, n_keys: int | None = None
) -> Choice:
    """Choose the pattern for a number of replicas; `n_keys` is the number of keys, if it is known."""
    if degree == 1:
        return Choice(KEYED, "there is one replica")
    if up.key and (n_keys is None or n_keys >= degree):
        return Choice(KEYED, f"the keys ({', '.join(up.key)}) spread the rows, and nothing is combined after")
    few = "there is no key" if not up.key else f"there are {n_keys} keys for {degree} replicas"
    patterns = possible_patterns(op, up, totally_ordered=totally_ordered)
    if PANED in patterns:
        windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]
        longest = max(slicing.longest for slicing in Slicing.groups(windows))
        if longest == 1:
            return Choice(MAP_REDUCE, f"{few}, and windows do not overlap: the rows of each are shared out")
        return Choice(
            PANED, f"{few}, and windows overlap: each is made of up to {longest} slices, which are shared out"
        )
    if PARALLEL in patterns:
        return Choice(PARALLEL, f"{few}, and results are made from the rows of whole windows")
    return Choice(KEYED, f"{few}, but sessions and count windows can only be spread by key")


def why_not_pattern(
    pattern: str, op: Windows, up: Stream, *, totally_ordered: bool
) -> tuple[str, str] | None:
    """Return (what the pattern cannot take, why), or None if it can take everything."""
    if pattern == KEYED:
        return None
    for _, window in op.resolve(up).windows:
        if not isinstance(window, TimeWindow):
            why = "which windows a row is in depends on other rows, so windows cannot be sent to replicas"
            return str(window), why
    if pattern == PARALLEL:
        return None
    if op.function is not None:
        return str(op.function), "it sees all rows of a window at once, which here are never together"
    for name, aggregate in (op.aggregates or {}).items():
        reason = why_rows(aggregate, up, totally_ordered=totally_ordered)
        if isinstance(aggregate, Fold) and not aggregate.commutative:
            reason = "commutative=False asks for rows in order, and partials are merged in any order"
        elif reason is not None and not isinstance(aggregate, Fold):
            reason = "it is computed from the rows of a window, and partials hold numbers only"
        if reason is not None:
            return f"{name}={aggregate}", reason
    return None


def possible_patterns(op: Windows, up: Stream, *, totally_ordered: bool) -> tuple[str, ...]:
    """Return the patterns that can take the step."""
    return tuple(
        name for name in PATTERNS if why_not_pattern(name, op, up, totally_ordered=totally_ordered) is None
    )


def pattern_refusal(pattern: str, op: Windows, up: Stream, *, totally_ordered: bool) -> GraphError | None:
    """Return the error that names the patterns that can, or None if this one can take the step."""
    problem = why_not_pattern(pattern, op, up, totally_ordered=totally_ordered)
    if problem is None:
        return None
    culprit, why = problem
    possible = " or ".join(
        f'pattern="{name}"' for name in possible_patterns(op, up, totally_ordered=totally_ordered)
    )
    return GraphError(f'pattern="{pattern}" cannot compute {culprit}', detail=why, hint=f"use {possible}")


def as_pattern(pattern: str, op: Windows, *, because: str | None = None) -> Windows:
    """Return the same step as an operator of the pattern, with the reason if it was chosen and not named."""
    if op.pattern == pattern and op.because == because:
        return op
    options = {field.name: getattr(op, field.name) for field in fields(op) if field.init}
    return PATTERNS[pattern](**options | {"because": because})
