"""A sketch of a column: what a store keeps of it per slice or session beside its registers.

Registers are numbers in arrays; a sketch is an object of bounded size that takes values, a batch of them at a
time, and can be merged with others of its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.stages.batch import Ints
from penstock.stages.distinct import Distinct
from penstock.stages.ranks import Ranks
from penstock.stages.row_order import in_order
from penstock.stages.store import Values

SketchKind = type[Distinct] | type[Ranks]
Cell = list[Any]
"""The summaries of one slice or session, one for each sketch that is kept."""
Summaries = npt.NDArray[np.object_]
"""One summary for each of several windows."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """One sketch: what it is made as, and the place of its values in `Arriving.values`.

    Of Distinct the values are coupons (`coupons.py`), of Ranks float64.
    """

    kind: SketchKind
    column: int


class Groups:
    """Rows put together by some numbers of each, with one sort."""

    def __init__(self, keys: Sequence[Ints]) -> None:
        places = in_order(keys)
        self._order = None if (places[1:] > places[:-1]).all() else places
        self.keys = [self._sorted(key) for key in keys]
        new = np.logical_or.reduce([key[1:] != key[:-1] for key in self.keys])
        heads = np.append(0, np.flatnonzero(new) + 1) if len(places) else places
        self._numbers = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(places)))
        self.names = [key[heads] for key in self.keys]

    def _sorted(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array if self._order is None else array[self._order]

    def add(
        self, sketches: Sequence[Sketch], held: Sequence[Cell | None], values: Sequence[Values]
    ) -> list[Cell]:
        """The cell of each group with its rows in it; None is a new cell. Nulls are in no sketch."""
        found: list[list[Any]] = [[] for _ in held]
        for place, sketch in enumerate(sketches):
            given = values[sketch.column]
            data, groups = self._sorted(given.data), self._numbers
            if given.valid is not None:
                valid = self._sorted(given.valid)
                data, groups = data[valid], groups[valid]
            mine = [None if cell is None else cell[place] for cell in held]
            for cell, summary in zip(found, sketch.kind.added(mine, groups, data), strict=True):
                cell.append(summary)
        return found


def merged(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> Cell:
    """Several cells as one; one alone is itself."""
    if len(cells) == 1:
        return cells[0]
    return [sketch.kind.merged([cell[i] for cell in cells]) for i, sketch in enumerate(sketches)]


def nbytes_of(cell: Cell) -> int:
    """The memory of a cell, with about what Python needs for it."""
    return 128 + sum(128 + int(summary.nbytes) for summary in cell)


def columns_of(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> tuple[Summaries, ...]:
    """Cells turned round: for each sketch the summaries of all cells."""
    found = tuple(np.empty(len(cells), np.object_) for _ in sketches)
    for place, column in enumerate(found):
        for i, cell in enumerate(cells):
            column[i] = cell[place]
    return found


def saved_cells(sketches: Sequence[Sketch], cells: Sequence[Cell]) -> dict[str, pa.Array]:
    """Cells as Arrow columns."""
    return {
        f"sketch {place}": pa.array([cell[place].to_bytes() for cell in cells], pa.binary())
        for place in range(len(sketches))
    }


def loaded_cells(sketches: Sequence[Sketch], saved: pa.RecordBatch) -> list[Cell]:
    """Saved cells back, in their order."""
    columns = [
        [sketch.kind.from_bytes(data) for data in saved.column(f"sketch {place}").to_pylist()]
        for place, sketch in enumerate(sketches)
    ]
    return [list(cell) for cell in zip(*columns, strict=True)]
