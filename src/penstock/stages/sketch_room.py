"""Sketches of numbered things, such as sessions: what `cell_room.py` is for registers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.stages.batch import Ints
from penstock.stages.sketch import (
    Cell,
    Groups,
    Sketch,
    Summaries,
    columns_of,
    loaded_cells,
    merged,
    nbytes_of,
    saved_cells,
)
from penstock.stages.store import Arriving


class SketchRoom:
    """A cell per number in use; without sketches there are none, and nothing takes any time."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._sketches = tuple(sketches)
        self._cells: dict[int, Cell] = {}

    def __bool__(self) -> bool:
        return bool(self._sketches)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(map(nbytes_of, self._cells.values()))

    def fill(self, numbers: Ints, rows: Arriving) -> None:
        """Put each row into the sketches of its number."""
        if not self._sketches or not len(numbers):
            return
        groups = Groups([numbers])
        names = groups.names[0].tolist()
        held = [self._cells.get(name) for name in names]
        cells = groups.add(self._sketches, held, rows.values)
        self._cells.update(zip(names, cells, strict=True))

    def join(self, lost: Ints, kept: Ints) -> None:
        """Put the sketches of lost numbers into those they were joined to, which may be new."""
        if not self._sketches:
            return
        for gone, into in zip(lost.tolist(), kept.tolist(), strict=True):
            parts = [self._cells[each] for each in (into, gone) if each in self._cells]
            self._cells.pop(gone, None)
            if parts:
                self._cells[into] = merged(self._sketches, parts)

    def read(self, numbers: Ints) -> tuple[Summaries, ...]:
        """The summaries of some numbers, sketch by sketch."""
        return columns_of(self._sketches, self._of(numbers))

    def clear(self, numbers: Ints) -> None:
        """These numbers are not in use any more."""
        for number in numbers.tolist() if self._sketches else ():
            del self._cells[number]

    def pack(self, old: Ints) -> None:
        """What had the number old[i] now has the number i."""
        self._cells = dict(enumerate(self._of(old)))

    def saved(self, numbers: Ints) -> dict[str, pa.Array]:
        """The sketches of some numbers as Arrow columns."""
        return saved_cells(self._sketches, self._of(numbers))

    def load(self, saved: pa.RecordBatch, numbers: Ints) -> None:
        """Take up saved sketches, in their order, under other numbers."""
        self._cells.update(zip(numbers.tolist(), loaded_cells(self._sketches, saved), strict=False))

    def _of(self, numbers: Ints) -> list[Cell]:
        return [self._cells[number] for number in numbers.tolist()] if self._sketches else []
