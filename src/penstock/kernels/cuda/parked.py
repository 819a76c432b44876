"""Slices that the ring has no room for: cells on the host, each (slot, slice) once, in order of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass
from penstock.kernels.rules import Rule
from penstock.kernels.runs import join_loop

Array = npt.NDArray[Any]
MANY = 10_000
"""From so many cells on, putting them together is compiled."""


@dataclass(frozen=True, slots=True)
class States:
    """The cells of some slots and slices, one array of cells per register. All arrays of equal length."""

    slots: Array
    slices: Array
    cells: tuple[Array, ...]

    @staticmethod
    def none(rules: Sequence[Rule]) -> States:
        """No cells."""
        empty = np.empty(0, np.int64)
        return States(empty, empty, tuple(rule.blank(0) for rule in rules))

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(int(each.nbytes) for each in (self.slots, self.slices, *self.cells))

    def where(self, chosen: Any) -> States:
        """Those where a mask is true, at some positions, or in a slice."""
        return States(self.slots[chosen], self.slices[chosen], tuple(each[chosen] for each in self.cells))

    def split(self, slice_id: int) -> tuple[States, States]:
        """Those before a slice, and the others; where they are in order of slices."""
        at = int(np.searchsorted(self.slices, slice_id))
        return self.where(slice(0, at)), self.where(slice(at, None))


def joined(a: States, b: States, rules: Sequence[Rule]) -> States:
    """Both together in order of slices; what both have is merged."""
    slots, slices = np.concatenate([a.slots, b.slots]), np.concatenate([a.slices, b.slices])
    order = np.lexsort((slots, slices))
    slots, slices = slots[order], slices[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (slots[1:] != slots[:-1]) | (slices[1:] != slices[:-1])
    cells = [np.concatenate(pair)[order] for pair in zip(a.cells, b.cells, strict=True)]
    again = np.flatnonzero(~new)
    if len(again):
        home = np.flatnonzero(new)[np.cumsum(new)[again] - 1]
        for rule, each in zip(rules, cells, strict=True):
            join_loop(rule).at(len(again) > MANY)(home, again, each)
    return States(slots, slices, tuple(cells)).where(new)
