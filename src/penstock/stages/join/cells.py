"""Cells: the stored rows of a join in m x n parts, and who compares what with what (DP-Join, 4.1 and 4.3).

The left is spread over m parts and the right over n, by the bucket of each row; cell (i, j) compares left
part i with right part j, whichever of them is new. So every pair meets in one cell. The rows of a part are
one object that all cells of its row or column read, without a copy (4.4.2). One owner stores and forgets rows
between two searches, at the same watermark for all cells, so a row is gone for all of them at once and nobody
has to count who has let it go.

layout (1, n), (n, n), (m, n)  linear, square, rectangular
keys                           rows that are equal in some columns have one bucket, so m n parts of both sides
                               and only the cells (i, i) have work: nothing is compared twice, or sent twice
copies                         where the homes of some rows are elsewhere (`cell_places.py`), those are a part
                               of their own on each side, and two copies are never compared
sharing                        several workers share the stored rows of each cell; with one cell this is the
                               centralised form, CellJoin (4.1)
handshake                      a pipeline of n cells; both sides flow through it in opposite directions (4.2)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.frozen import Frozen
from penstock.stages import policy
from penstock.stages.join.bounds import ALL_OVER, LEFT_SIDE, NONE_OVER, RIGHT_SIDE, Bound
from penstock.stages.join.cell_places import NO_BUCKET
from penstock.stages.join.conditions import CLOCK
from penstock.stages.join.join_rows import JoinRows, take_join_rows
from penstock.stages.join.model import JoinLoad, Layout, pipeline_latency
from penstock.stages.join.row_store import ALONE, RowStore, Share
from penstock.stages.rows.batch import Ints
from penstock.timing.windows import BEFORE_ALL

Search = Callable[[], list[tuple[RowStore, Ints, Ints]]]
"""The work of a cell: it returns stores, and places of new rows and of stored ones that may be pairs."""
RunCells = Callable[[Sequence[Search]], Iterable[Any]]
"""Runs the work of cells; what they return is in their order."""


def run_in_turn(searches: Sequence[Search]) -> list[Any]:
    """Run the searches of cells one after the other."""
    return [search() for search in searches]


class Cell(Frozen):
    """What one worker has to search for new rows.

    rows    which of the new rows; None for all
    stored  the rows of the other side
    share   which part of these is its own
    """

    rows: Ints | None
    stored: RowStore
    share: Share


class CellGrid:
    """The stored rows of both sides, by part.

    layout   (m, n)
    sharing  the number of workers that share a cell
    has_copies  whether copies of rows are kept apart from rows at home; then there is one cell
    """

    def __init__(self, layout: Layout, *, has_keys: bool, sharing: int = 1, has_copies: bool = False) -> None:
        self._has_keys, self.sharing, self.layout, self._has_copies = has_keys, sharing, layout, has_copies
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        m, n = self.layout
        if self._has_copies:
            m = n = _COPIES + 1
        elif self._has_keys:
            m = n = m * n
        self.parts = ([RowStore() for _ in range(m)], [RowStore() for _ in range(n)])

    @property
    def n_cells(self) -> int:
        """Return how many searches of a new row there are."""
        m, n = self.layout
        return m * n * self.sharing

    @property
    def n_scanned(self) -> int:
        """Return how many rows without an index are in a part, at most."""
        return max(part.n_scanned for parts in self.parts for part in parts)

    def describe(self) -> str:
        """Return the layout in words."""
        m, n = self.layout
        return f"{m} x {n} cells" if self.sharing == 1 else f"1 cell, shared by {self.sharing}"

    def predict_latency(self, load: JoinLoad) -> float:
        """Return the average seconds from a row to its pairs, as the model has it."""
        return load.latency(self.layout)

    def begin_at(self, watermark: float) -> None:
        """Take note of the watermark at which rows come back."""

    def take_moved(self, side: int, watermark: float) -> Iterator[tuple[int, JoinRows]]:
        """Yield rows that leave their cell for another at a watermark: none do."""
        yield from ()

    def rearrange(self, layout: Layout, run: policy.JitPolicy) -> None:
        """Spread the rows over other parts; as no search is under way, no pair is lost or found twice."""
        before, self.layout = self.parts, layout
        self.clear()
        for side, parts in enumerate(before):
            for part in parts:
                for rows in part.take_all():
                    self.store(side, rows, run)

    def store(self, side: int, rows: JoinRows, run: policy.JitPolicy) -> int | None:
        """Store rows of one side, each in its part; return the slot of the first if all are in one."""
        parts = self.parts[side]
        if len(parts) == 1:
            return parts[0].add(rows, run)
        part_of = self._parts_of(rows.buckets, len(parts))
        for number, part in enumerate(parts):
            at = np.flatnonzero(part_of == number)
            if len(at):
                part.add(rows.take(at), run)
        return None

    def cells(self, side: int, rows_of_side: JoinRows, places: Ints) -> Iterator[Cell]:
        """Yield the cells that new rows of a side meet; `places` says which of the rows look for partners."""
        buckets = rows_of_side.buckets[places]
        own, opposite = self.parts[side], self.parts[1 - side]
        shares = [ALONE] if self.sharing == 1 else [Share(n, self.sharing) for n in range(self.sharing)]
        part_of = self._parts_of(buckets, len(own))
        for part in range(len(own)):
            rows = None if len(own) == 1 else np.flatnonzero(part_of == part)
            if self._has_copies:
                met = opposite[:_COPIES] if part == _COPIES else opposite
            else:
                met = [opposite[part]] if self._has_keys else opposite
            for stored in met:
                if len(stored) and (len(buckets) if rows is None else len(rows)):
                    yield from (Cell(rows, stored, share) for share in shares)

    def _parts_of(self, buckets: Ints, n_parts: int) -> Ints:
        """Return the part of each row of a side."""
        if self._has_copies:
            return np.where(buckets == NO_BUCKET, _COPIES, 0)
        return buckets % n_parts


_COPIES = 1
"""The part of a side that has copies; the one before it has rows at home."""


class HandshakePipeline(CellGrid):
    """The stored rows of both sides, by how far they have come through a pipeline of cells (DP-Join, 4.2).

    Rows of the left enter at one end and those of the right at the other. A row is in the cell that its age
    says: it goes on when the next part of its window has passed, and before it is over it is in the last one.
    Two rows meet as soon as they have come to one cell, or past each other. Counted from the end where each
    side enters, the rows of cells a and b have met if a + b >= n - 1; so a row that goes on from a to c meets
    the rows of other cells b with n - 1 - c <= b < n - 1 - a: each pair once, whichever of the two moves.

    Where a row is depends on its clock and the watermark only, so of what has met only n is saved.

    before     the cell from which the rows come that look for partners; -1 for new rows
    watermark  at which rows are where they are
    """

    def __init__(self, n_cells: int, bound: Bound) -> None:
        self._bound, self.watermark, self.before = bound, BEFORE_ALL, -1
        super().__init__((1, n_cells), has_keys=False)

    def clear(self) -> None:
        """Implement `CellGrid.clear`."""
        n_cells = self.layout[1]
        self.parts = ([RowStore() for _ in range(n_cells)], [RowStore() for _ in range(n_cells)])
        self.watermark = BEFORE_ALL

    def describe(self) -> str:
        """Implement `CellGrid.describe`."""
        return f"handshake pipeline of {self.layout[1]} cells"

    def predict_latency(self, load: JoinLoad) -> float:
        """Implement `CellGrid.predict_latency`."""
        left, right = (self._bound.span(side) / 1e6 for side in (LEFT_SIDE, RIGHT_SIDE))
        return pipeline_latency((left, right), self.layout[1])

    def begin_at(self, watermark: float) -> None:
        """Implement `CellGrid.begin_at`."""
        self.watermark = watermark

    def store(self, side: int, rows: JoinRows, run: policy.JitPolicy) -> int | None:
        """Implement `CellGrid.store`: each in the cell of its age."""
        cell_of = self._find_cells(side, rows.codes[CLOCK])
        for cell, part in enumerate(self.parts[side]):
            at = np.flatnonzero(cell_of == cell)
            if len(at):
                part.add(rows.take(at), run)
        return None

    def cells(self, side: int, rows_of_side: JoinRows, places: Ints) -> Iterator[Cell]:
        """Implement `CellGrid.cells`."""
        reached, last = self._find_cells(side, rows_of_side.codes[CLOCK][places]), self.layout[1] - 1
        for cell, stored in enumerate(self.parts[1 - side]):
            if len(stored) and self.before < last - cell:
                rows = np.flatnonzero(reached >= last - cell)
                if len(rows):
                    yield Cell(rows, stored, ALONE)

    def take_moved(self, side: int, watermark: float) -> Iterator[tuple[int, JoinRows]]:
        """Implement `CellGrid.take_moved`: yield the cell that rows leave, and these, which are removed."""
        self.watermark = watermark
        lots = []
        for cell, part in enumerate(self.parts[side][:-1]):
            over = part.expire(self._cut(side, cell))
            if len(over):
                lots.append((cell, take_join_rows(part, over)))
        yield from lots

    def _find_cells(self, side: int, clock: Ints) -> Ints:
        """Return how far rows have come."""
        cells = np.zeros(len(clock), np.int64)
        for cell in range(self.layout[1] - 1):
            cells += clock < self._cut(side, cell)
        return cells

    def _cut(self, side: int, cell: int) -> int:
        """Return the clock before which rows are beyond a cell."""
        if math.isinf(self.watermark):
            return ALL_OVER if self.watermark > 0 else NONE_OVER
        return int(self.watermark) - (cell + 1) * self._bound.span(side) // self.layout[1]
