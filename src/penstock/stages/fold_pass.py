"""One pass for a user's fold: rows are lifted and combined into slices by one loop, if there is nothing else.

The loop is compiled for the fold (`kernels/fold_slices.py`). Folds beside other registers, with nulls or in
Python go register by register.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.frozen import dataclass
from penstock.kernels.fold_slices import keyed_loop, single_loop
from penstock.kernels.rules import Cells, Rule
from penstock.stages.batch import Ints
from penstock.stages.combine_failure import among, under
from penstock.stages.filling import Run
from penstock.stages.parts import Unlifted
from penstock.stages.register import Kind, Register
from penstock.stages.store import Values


@dataclass(frozen=True, slots=True)
class FoldPass:
    """The rows of a batch and the rule of the only register beside their number."""

    rule: Rule
    rows: Unlifted

    def run(
        self, run: Run, row: int, slots: Ints | None, times: Ints, room: tuple[Any, ...], cells: list[Cells]
    ) -> int:
        """Fold the rows from `row` on; gives the row it stopped at. `room` is as in `cells.place`."""
        of, at = self.rows.of, np.zeros(1, np.int64)
        loop = single_loop(of) if slots is None else keyed_loop(of)
        given = (*(() if slots is None else (slots,)), times, *self.rows.columns, row)
        into = (cells[0].reshape(-1), cells[1], at)
        with among(slots, times), under(self.rule, at):
            return int(run(loop, *given, *room, *into, work=len(times) - row))


def fold_pass(registers: Sequence[Register], values: Sequence[Values], *, keyed: bool) -> FoldPass | None:
    """The pass that does everything for these rows, if one does.

    Counts of columns without nulls are nothing to do: they are kept as the number of nulls.
    """
    folds = [each for each in registers[1:] if each.kind is Kind.FOLD]
    others = [each for each in registers[1:] if each.kind is not Kind.FOLD]
    if len(folds) != 1 or registers[1] is not folds[0] or folds[0].column is None:
        return None
    if any(each.kind is not Kind.COUNT or each.column is None for each in others):
        return None
    if any(each.column is None or values[each.column].valid is not None for each in registers[1:]):
        return None
    rows = values[folds[0].column]
    if not isinstance(rows, Unlifted):
        return None
    loop = keyed_loop(rows.of) if keyed else single_loop(rows.of)
    return FoldPass(folds[0].rule, rows) if loop.compiles else None
