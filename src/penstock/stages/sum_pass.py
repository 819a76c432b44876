"""Count and sum rows in one pass, where that is all there is to do: the commonest aggregate by far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.frozen import dataclass
from penstock.kernels import cells as placing
from penstock.kernels.arena import Arena
from penstock.kernels.keyed_sums import sum_keyed
from penstock.kernels.rings import Rings
from penstock.kernels.sums import sum_single
from penstock.stages.batch import Ints
from penstock.stages.pace import Pace
from penstock.stages.register import Kind, Register
from penstock.stages.store import Values

ENOUGH = 4
"""So many rows per slot pay for sums per slot beside the rings."""


@dataclass(frozen=True, slots=True)
class SumPass:
    """The column that is summed; `run` as in `FoldPass`."""

    values: Values
    rings: Rings
    arena: Arena

    def run(
        self, pace: Pace, row: int, slots: Ints | None, times: Ints, room: Sequence[Any], cells: Sequence[Any]
    ) -> int:
        """Count and sum from `row` on, as far as there is room; give the row it stopped at."""
        flat = (cells[0].reshape(-1), cells[1].reshape(-1))
        given, work = (times, self.values.data, row), len(times) - row
        if slots is None:
            return int(pace(sum_single, *given, *room, *flat, work=work))
        n_slots = len(self.rings.table)
        pairs, slice_ = np.zeros((n_slots, 2)), np.array([placing.NEVER], np.int64)
        stopped = int(pace(sum_keyed, slots, *given, *room, *flat, slice_, pairs.reshape(-1), work=work))
        waiting = np.flatnonzero(pairs[:, 0])
        if len(waiting):  # these found no room
            places = self.rings.place(waiting, np.full(len(waiting), slice_[0]))
            self.arena.cells[0][places, 0] += pairs[waiting, 0].astype(np.int64)
            self.arena.cells[1][places, 0] += pairs[waiting, 1]
        return stopped


def sum_pass(
    registers: Sequence[Register], values: Sequence[Values], rings: Rings, arena: Arena, slots: Ints | None
) -> SumPass | None:
    """A pass that does everything, or None where there is more to do than to count and sum one column.

    Counts of columns without nulls are nothing to do: they are kept as the number of nulls.
    """
    if len(registers) < 2 or registers[1].kind is not Kind.FLOAT_SUM:
        return None
    if any(register.kind is not Kind.COUNT for register in registers[2:]):
        return None
    columns = [register.column for register in registers[1:]]
    if any(column is None or values[column].valid is not None for column in columns):
        return None
    if slots is not None and len(slots) < ENOUGH * len(rings.table):
        return None
    assert columns[0] is not None, "a sum is of a column"
    return SumPass(values[columns[0]], rings, arena)
