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
from penstock.kernels.cells import write_cells
from penstock.kernels.folds import add_loop, cells_loop
from penstock.kernels.loops import Loop
from penstock.kernels.rules import Cells, Rule
from penstock.stages.batch import Ints
from penstock.stages.combine_failure import CombineFailed, under
from penstock.stages.parts import Unlifted
from penstock.stages.register import Kind, Register
from penstock.stages.store import Values

Run = Callable[..., Any]
"""run(loop, *arguments): run a loop at the speed that fits the amount of data."""

Places = tuple[Ints, Ints]
"""(runs, cells) of rows, as `kernels.registers` reads them."""


class Filling:
    """The rows of a batch with the cells they go to; what registers share of one column is made once.

    cells  int64[n]     of the rows, each of which has one; need not be written where a run has its own
    runs   int64[k, 3]  over all rows; None: each row goes by its cell
    """

    def __init__(
        self,
        run: Run,
        cells: Ints,
        times: Ints,
        order: Ints,
        values: Sequence[Values],
        runs: Ints | None = None,
    ) -> None:
        self._run, self._times, self._order, self._values = run, times, order, values
        self._places = _apart(cells) if runs is None else (runs, cells)
        self._written = runs is None
        self._valid_cells: dict[int, Ints] = {}
        self._ordered: dict[int, Ints] = {}

    def fill(self, register: Register, state: Cells) -> None:
        """Add the rows to a register's cells."""
        if register.kind is Kind.ROWS:
            self._run(rows_into.add_ones, *self._places, state)
        elif register.kind is Kind.LATEST:
            self._run(rows_into.add_greatest, *self._places, self._times, 0, state)
        else:
            assert register.column is not None, f"a register of kind {register.kind} is of a column"
            self._fill_column(register, register.column, state)

    def _fill_column(self, register: Register, column: int, state: Cells) -> None:
        if register.kind is Kind.COUNT:
            valid = self._values[column].valid
            if valid is not None:
                self._run(rows_into.add_ones, *_apart(self._cells[~valid]), state)
            return
        if register.kind is Kind.FOLD:
            self._fold(register.rule, column, state)
            return
        places, flip = self._placed(column), register.flip
        data = self._valid(column, self._values[column].data)
        if register.kind is Kind.MOMENTS:
            self._run(rows_into.add_moments, *places, data, register.rule.blank(1), state)
        elif register.kind in _SUMS:
            self._run(_SUMS[register.kind], *places, data, state)
        elif register.kind in (Kind.LAST, Kind.FIRST):
            times, order = self._valid(column, self._times), self._valid(column, self._order)
            self._run(rows_into.add_latest, *places, times, order, data, flip, state)
        else:
            self._run(_EXTREMES[register.kind], *places, self._in_order(column, data), flip, state)

    def _in_order(self, column: int, data: npt.NDArray[Any]) -> Ints:
        """Values to be compared: floats as integers of the same order."""
        if data.dtype == np.int64:
            return data
        if column not in self._ordered:
            self._ordered[column] = np.empty(len(data), np.int64)
            self._run(rows_into.order_floats, data.view(np.int64), self._ordered[column])
        return self._ordered[column]

    def _fold(self, rule: Rule, column: int, state: Cells) -> None:
        """Combine parts into their cells, lifting them in the same loop where that can be compiled."""
        values, at = self._values[column], np.zeros(1, np.int64)
        cells, loop, given = self._of_valid(column), add_loop(rule), None
        if isinstance(values, Unlifted) and cells_loop(values.of).compiles:
            loop, given = cells_loop(values.of), values.columns
        given = (values.data.reshape(-1, rule.width),) if given is None else given
        try:
            with under(rule, at):
                self._run(loop, cells, *(self._valid(column, each) for each in given), state, at)
        except CombineFailed as failed:
            if values.valid is not None and failed.place is not None:
                failed.place = int(np.flatnonzero(values.valid)[failed.place])
            raise

    @property
    def _cells(self) -> Ints:
        """The cell of every row."""
        if not self._written:
            self._run(write_cells, *self._places)
            self._written = True
        return self._places[1]

    def _placed(self, column: int) -> Places:
        """The places of the rows whose value is not null."""
        return self._places if self._values[column].valid is None else _apart(self._of_valid(column))

    def _of_valid(self, column: int) -> Ints:
        if column not in self._valid_cells:
            self._valid_cells[column] = self._valid(column, self._cells)
        return self._valid_cells[column]

    def _valid(self, column: int, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        valid = self._values[column].valid
        return array if valid is None else array[valid]


def _apart(cells: Ints) -> Places:
    """Rows that go each by its cell."""
    return rows_into.all_apart(len(cells)), cells


def counts_of(register: Register, state: Cells, n_rows: Cells) -> Cells:
    """The register's cells as others read them: of COUNT the rows less the nulls."""
    return np.asarray(n_rows - state) if register.kind is Kind.COUNT else state


_SUMS: dict[Kind, Loop] = {
    Kind.INT_SUM: rows_into.add_wide,
    Kind.FLOAT_SUM: rows_into.add_floats,
}
_EXTREMES: dict[Kind, Loop] = {
    Kind.MOST: rows_into.add_greatest,
    Kind.LEAST: rows_into.add_greatest,
    Kind.MOST_OF: rows_into.add_counted,
    Kind.LEAST_OF: rows_into.add_counted,
}
