"""Rows into registers: each register's pass over the rows of a batch, once their cells are known.

COUNT is kept as the number of nulls, so that columns without any cost nothing; `counts_of` turns it round
when windows leave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.kernels import registers as rows_into
from penstock.kernels.folds import add_loop
from penstock.kernels.loops import Loop
from penstock.kernels.rules import Cells
from penstock.stages.batch import Ints
from penstock.stages.register import Kind, Register
from penstock.stages.store import Values

Run = Callable[..., Any]
"""run(loop, *arguments): run a loop at the speed that fits the amount of data."""


class Filling:
    """The rows of a batch with the cells they go to; what registers share of one column is made once."""

    def __init__(self, run: Run, cells: Ints, times: Ints, order: Ints, values: Sequence[Values]) -> None:
        self._run, self._cells, self._times, self._order = run, cells, times, order
        self._values = values
        self._valid_cells: dict[int, Ints] = {}

    def fill(self, register: Register, state: Cells) -> None:
        """Add the rows to a register's cells."""
        if register.kind is Kind.ROWS:
            self._run(rows_into.add_ones, self._cells, state)
        elif register.kind is Kind.LATEST:
            self._run(rows_into.add_greatest, self._cells, self._times, 0, state)
        else:
            assert register.column is not None, f"a register of kind {register.kind} is of a column"
            self._fill_column(register, register.column, state)

    def _fill_column(self, register: Register, column: int, state: Cells) -> None:
        cells, flip = self._of_valid(column), register.flip
        if register.kind is Kind.COUNT:
            valid = self._values[column].valid
            if valid is not None:
                self._run(rows_into.add_ones, self._cells[~valid], state)
            return
        if register.kind is Kind.FOLD:
            self._run(add_loop(register.rule), cells, self._parts(column, register.rule.width), state)
            return
        data = self._valid(column, self._values[column].data)
        if register.kind in _LOOPS:
            self._run(_LOOPS[register.kind], cells, data, state)
        elif register.kind in (Kind.LAST, Kind.FIRST):
            times, order = self._valid(column, self._times), self._valid(column, self._order)
            self._run(rows_into.add_latest, cells, times, order, data, flip, state)
        else:
            counted = register.kind in (Kind.MOST_OF, Kind.LEAST_OF)
            self._run(rows_into.add_counted if counted else rows_into.add_greatest, cells, data, flip, state)

    def _parts(self, column: int, width: int) -> npt.NDArray[np.float64]:
        """The parts of rows, which all have one mask, side by side."""
        parts = (self._values[place].data for place in range(column, column + width))
        return np.stack([self._valid(column, part) for part in parts], axis=1)

    def _of_valid(self, column: int) -> Ints:
        if column not in self._valid_cells:
            self._valid_cells[column] = self._valid(column, self._cells)
        return self._valid_cells[column]

    def _valid(self, column: int, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        valid = self._values[column].valid
        return array if valid is None else array[valid]


def counts_of(register: Register, state: Cells, n_rows: Cells) -> Cells:
    """The register's cells as others read them: of COUNT the rows less the nulls."""
    return np.asarray(n_rows - state) if register.kind is Kind.COUNT else state


_LOOPS: dict[Kind, Loop] = {
    Kind.INT_SUM: rows_into.add_wide,
    Kind.FLOAT_SUM: rows_into.add_floats,
    Kind.MOMENTS: rows_into.add_moments,
}
