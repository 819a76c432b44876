"""Which pattern to take when the user leaves it open: from keys, overlap and function, with the reason.

Keys come first, because a row then goes to one replica and nothing is put together again. The other patterns
are for the case that WindFlow has them for: too few keys to go round, down to none (section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.stream import Stream
from penstock.operators.windows import Windows
from penstock.stages.patterns.limits import KEYED, MAP_REDUCE, PANED, PARALLEL, able
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow


@dataclass(frozen=True, slots=True)
class Choice:
    """A pattern by name, and why, for explain()."""

    pattern: str
    reason: str


def choose_pattern(
    op: Windows, up: Stream, degree: int, *, numbered: bool = False, n_keys: int | None = None
) -> Choice:
    """The pattern for so many replicas; `n_keys` is how many keys there are, if that is known."""
    if degree == 1:
        return Choice(KEYED, "there is one replica")
    if up.key and (n_keys is None or n_keys >= degree):
        return Choice(KEYED, f"the keys ({', '.join(up.key)}) spread the rows, and nothing is combined after")
    few = "there is no key" if not up.key else f"there are {n_keys} keys for {degree} replicas"
    patterns = able(op, up, numbered=numbered)
    if PANED in patterns:
        return _in_parts(op, up, few)
    if PARALLEL in patterns:
        return Choice(PARALLEL, f"{few}, and results are made from the rows of whole windows")
    return Choice(KEYED, f"{few}, but sessions and count windows can only be spread by key")


def _in_parts(op: Windows, up: Stream, few: str) -> Choice:
    windows = [window for _, window in op.resolved(up).windows if isinstance(window, TimeWindow)]
    longest = max(slicing.longest for slicing in Slicing.groups(windows))
    if longest == 1:
        return Choice(MAP_REDUCE, f"{few}, and windows do not overlap: the rows of each are shared out")
    return Choice(
        PANED, f"{few}, and windows overlap: each is made of up to {longest} slices, which are shared out"
    )
