"""Cells: the stored rows of a join in m x n parts, and who compares what with what (DP-Join, 4.1 and 4.3).

The left is spread over m parts and the right over n, by the bucket of each row; cell (i, j) compares left
part i with right part j, whichever of them is new. So every pair meets in one cell. The rows of a part are
one object that all cells of its row or column read, without a copy (4.4.2). One owner stores and forgets rows
between two searches, at the same watermark for all cells, so a row is gone for all of them at once and nobody
has to count who has let it go.

layout (1, n), (n, n), (m, n)  linear, square, rectangular
keys                           rows that are equal in some columns have one bucket, so m n parts of both sides
                               and only the cells (i, i) have work: nothing is compared twice, or sent twice
sharing                        several workers share the stored rows of each cell; with one cell this is the
                               centralised form, CellJoin (4.1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.frozen import Frozen
from penstock.stages import policy
from penstock.stages.join.join_rows import JoinRows
from penstock.stages.join.model import Layout
from penstock.stages.join.row_store import ALONE, RowStore, Share
from penstock.stages.rows.batch import Ints

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
    """

    def __init__(self, layout: Layout, *, has_keys: bool, sharing: int = 1) -> None:
        self._has_keys, self.sharing, self.layout = has_keys, sharing, layout
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        m, n = self.layout
        if self._has_keys:
            m = n = m * n
        self.parts = ([RowStore() for _ in range(m)], [RowStore() for _ in range(n)])

    def rearrange(self, layout: Layout, run: policy.JitPolicy) -> None:
        """Spread the rows over other parts; as no search is under way, no pair is lost or found twice."""
        before, self.layout = self.parts, layout
        self.clear()
        for side, parts in enumerate(before):
            for part in parts:
                for rows in part.take_all():
                    self.store(side, rows, run)

    def store(
        self, side: int, rows: JoinRows, run: policy.JitPolicy
    ) -> list[tuple[RowStore, slice, Ints | slice]]:
        """Store rows of one side, each in its part; return the parts, their slots, and whose they are."""
        parts = self.parts[side]
        if len(parts) == 1:
            return [(parts[0], parts[0].add(rows, run), slice(None))]
        part_of = rows.buckets % len(parts)
        places = [np.flatnonzero(part_of == part) for part in range(len(parts))]
        return [
            (part, part.add(rows.take(at), run), at)
            for part, at in zip(parts, places, strict=True)
            if len(at)
        ]

    def cells(self, side: int, buckets: Ints) -> Iterator[Cell]:
        """Yield the cells that new rows of a side meet, by the buckets of these rows."""
        own, opposite = self.parts[side], self.parts[1 - side]
        shares = [ALONE] if self.sharing == 1 else [Share(n, self.sharing) for n in range(self.sharing)]
        part_of = buckets % len(own)
        for part in range(len(own)):
            rows = None if len(own) == 1 else np.flatnonzero(part_of == part)
            for stored in [opposite[part]] if self._has_keys else opposite:
                if len(stored) and (len(buckets) if rows is None else len(rows)):
                    yield from (Cell(rows, stored, share) for share in shares)
