"""The name of a figure: which way on which case. Everything that speaks of figures speaks of cells."""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """One figure of a result: this way on this case."""

    case: str
    way: str
