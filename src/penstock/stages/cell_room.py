"""Registers of numbered things: a cell per register and number, for stores that do not cut time in slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.kernels.rules import RULES, Cells, Rule
from penstock.kernels.runs import join_loop
from penstock.stages.batch import Ints
from penstock.stages.combine_failure import CombineFailed, under
from penstock.stages.filling import Filling, Run, counts_of
from penstock.stages.register import Kind, Register
from penstock.stages.store import Arriving


class CellRoom:
    """The cells of some registers. Invariant: cells that are not in use are neutral."""

    def __init__(self, registers: Sequence[Register], run: Run) -> None:
        self._asked, self._run = tuple(registers), run
        # COUNT is kept as the number of nulls, so the rows are counted in any case.
        others = dict.fromkeys(register for register in registers if register.kind is not Kind.ROWS)
        self._kept = (Register(Kind.ROWS), *others)
        self._cells: list[Cells] = [register.rule.blank(0) for register in self._kept]

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(cells.nbytes for cells in self._cells)

    def fit(self, capacity: int) -> None:
        """Have cells for the numbers below `capacity`."""
        more = capacity - len(self._cells[0])
        if more > 0:
            pairs = zip(self._kept, self._cells, strict=True)
            self._cells = [np.concatenate([cells, each.rule.blank(more)]) for each, cells in pairs]

    def fill(self, numbers: Ints, rows: Arriving) -> None:
        """Add each row to the cells of its number."""
        order = rows.order[0] if rows.order else np.zeros(len(rows.slots), np.int64)
        filling = Filling(self._run, np.ascontiguousarray(numbers), rows.times, order, rows.values)
        for register, cells in zip(self._kept, self._cells, strict=True):
            filling.fill(register, cells)

    def join(self, lost: Ints, kept: Ints) -> None:
        """Put the cells of lost numbers into those they were joined to."""
        if len(lost):
            for register, cells in zip(self._kept, self._cells, strict=True):
                self._join(register.rule, cells, lost, kept)
            self.clear(lost)

    def _join(self, rule: Rule, cells: Cells, lost: Ints, kept: Ints) -> None:
        """Join the cells of one register; where a user's combine fails, it is done again pair by pair."""
        before = None if rule in RULES else (cells[lost], cells[kept])
        at = np.zeros(1, np.int64)
        try:
            with under(rule, at):
                self._run(join_loop(rule), kept, lost, cells)
        except CombineFailed:
            assert before is not None, "only users' rules fail"
            cells[lost], cells[kept] = before
            with under(rule, at):
                for at[0] in range(len(lost)):
                    self._run(join_loop(rule), kept[at], lost[at], cells)
            raise

    def read(self, numbers: Ints) -> tuple[Cells, ...]:
        """The cells of the registers that were asked for."""
        held = dict(zip(self._kept, self._cells, strict=True))
        n_rows = self._cells[0][numbers]
        return tuple(counts_of(register, held[register][numbers], n_rows) for register in self._asked)

    def clear(self, numbers: Ints) -> None:
        """These numbers are not in use any more."""
        for register, cells in zip(self._kept, self._cells, strict=True):
            cells[numbers] = register.rule.neutral

    def pack(self, old: Ints, capacity: int) -> None:
        """What had the number old[i] now has the number i."""
        pairs = zip(self._kept, self._cells, strict=True)
        self._cells = [
            np.concatenate([cells[old], each.rule.blank(capacity - len(old))]) for each, cells in pairs
        ]

    def saved(self, numbers: Ints) -> dict[str, pa.Array]:
        """The cells of some numbers as Arrow columns."""
        return {
            f"{place}.{part}": pa.array(cells[numbers, part], from_pandas=False)
            for place, cells in enumerate(self._cells)
            for part in range(cells.shape[1])
        }

    def load(self, saved: pa.RecordBatch, numbers: Ints) -> None:
        """Take up saved cells, in their order, under other numbers."""
        for place, cells in enumerate(self._cells):
            for part in range(cells.shape[1]):
                cells[numbers, part] = saved.column(f"{place}.{part}").to_numpy()
