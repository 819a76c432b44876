"""The parts of a fold's rows: lifted already, or the columns to lift them from while they are combined.

Where lift is compiled, no array of parts is ever made for windows of time: one loop reads the columns, lifts
a row and combines it into its cell. Stores that must keep what a row gave ask for `data`, which lifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels.folds import Functions, lift_loop
from penstock.stages.batch import Mask
from penstock.stages.store import Values

Floats = npt.NDArray[np.float64]


class Unlifted(Values):
    """The columns of a fold whose lift is compiled and fails on none of these rows.

    Rows that are not valid have the values of one that is, so that lift does not fail on them either.
    """

    __slots__ = ("columns", "of")
    of: Functions
    columns: tuple[Floats, ...]

    def __init__(self, of: Functions, columns: tuple[Floats, ...], valid: Mask | None) -> None:
        for name, value in (("of", of), ("columns", columns), ("valid", valid)):
            object.__setattr__(self, name, value)

    @property
    def data(self) -> Floats:
        """The parts, lifted now: float64[n, width]."""
        parts = np.empty((len(self.columns[0]), self.of.width))
        lift_loop(self.of).at(True)(*self.columns, parts)
        return parts

    def at(self, places: npt.NDArray[Any]) -> Unlifted:
        """The rows at some places."""
        valid = None if self.valid is None else self.valid[places]
        return Unlifted(self.of, tuple(column[places] for column in self.columns), valid)

    def lifted(self) -> Values:
        """The same with its parts made, to be kept."""
        return Values(self.data, self.valid)


def settled(values: tuple[Values, ...]) -> tuple[Values, ...]:
    """Values that can be kept: parts are lifted."""
    return tuple(each.lifted() if isinstance(each, Unlifted) else each for each in values)
