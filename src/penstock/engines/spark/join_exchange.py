"""How the rows of a join reach its cells: one exchange, each row to all cells that it may find a partner in.

Rows that must be equal in some columns meet on the partition of their key's bucket. All others meet in m x n
cells, one to a partition: a left row goes to one row of cells and a right row to one column (DP-Join, 4.3).
Which one follows from the row alone, so that a task that is tried again sends it to the same.

Whether a row has found a partner must be known in one place, so a side whose rows leave for having one or
none is not copied: its rows are spread over a line of cells, and the other side is in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.frozen import Frozen
from penstock.operators.join_predicate import Band, Equal
from penstock.operators.op import OnError, Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.grid_place import WHOLE, GridPlace, choose_cells, rows_per_cell, side_and_bucket
from penstock.stages.join.model import WORTH, Layout
from penstock.stages.keys.slots import BUCKETS, KeyBuckets
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.order import NO_ORDER

Hashes = npt.NDArray[np.uint64]
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Multipliers of a hash: any odd numbers whose bits are spread do."""


class JoinExchange(Frozen):
    """Where the rows of one join go, for any number of partitions.

    keys    the columns that are equal, of the left and of the right; () when any two rows may be a pair
    lines   (of the left, of the right): whether that side may be spread over several parts
    why     what decided it
    layout  (m, n) as the program gives it; None: chosen by the number of partitions
    """

    keys: tuple[tuple[str, ...], tuple[str, ...]] | tuple[()]
    lines: tuple[bool, bool]
    why: str
    layout: tuple[int, int] | None = None

    @property
    def n_least(self) -> int:
        """Return how many partitions there must be."""
        m, n = self.layout or (1, 1)
        return m * n

    def cells(self, n_partitions: int, rows: tuple[int, int] = (0, 0), now: Layout | None = None) -> Layout:
        """Return the layout over so many partitions, the one of now unless another is worth its price.

        rows  that are kept of the left and of the right, as far as that is known
        """
        n_cells = min(n_partitions, BUCKETS)
        if self.layout is not None:
            n_cells = min(self.n_least, BUCKETS)
        if self.lines != (True, True):
            left, right = self.lines
            return n_cells if left else 1, n_cells if right else 1
        if self.layout is not None:
            return min(self.layout[0], BUCKETS), min(self.layout[1], BUCKETS)
        rates = (rows[0] + 1.0, rows[1] + 1.0)
        best = choose_cells(n_cells, rates)
        if now is None or now[0] * now[1] > n_cells:
            return best
        return best if rows_per_cell(now, rates) > WORTH * rows_per_cell(best, rates) else now

    def place(self, partition: int, layout: Layout) -> GridPlace:
        """Return which cell a partition is; one that is too many has parts that nothing belongs to."""
        if self.keys:
            return WHOLE
        m, n = layout
        return GridPlace(divmod(partition, n) if partition < m * n else (m, n), layout)

    def owns(self, saved_bucket: int, partition: int, n_partitions: int, layout: Layout) -> bool:
        """Return whether a partition needs a bucket of saved state, those of the right from 256 on."""
        side, bucket = side_and_bucket(saved_bucket)
        if self.keys:
            return bucket % self.n_owners(n_partitions) == partition
        return self.place(partition, layout).owns(side, bucket)

    def n_owners(self, n_partitions: int) -> int:
        """Return over how many partitions the buckets of keys are spread."""
        return min(n_partitions if self.layout is None else self.n_least, BUCKETS)

    def describe(self) -> str:
        """Return how rows are spread, and why."""
        if self.keys:
            over = "all partitions" if self.layout is None else f"{self.n_owners(1)} partitions"
            return f"rows of equal {', '.join(self.keys[LEFT_SIDE])} meet, over {over}"
        if self.layout is not None:
            m, n = self.cells(1)
            asked = "" if (m, n) == self.layout else f", for layout={self.layout}"
            return f"{m} x {n} cells{asked}: {self.why}"
        shape = {
            (True, True): "m x n cells, which follow the rows that are kept of each side",
            (True, False): "m x 1 cells, one for each partition",
            (False, True): "1 x n cells, one for each partition",
            (False, False): "1 x 1 cell",
        }[self.lines]
        return f"{shape}: {self.why}"


def plan_join_exchange(op: StreamJoin, left: Stream, right: Stream) -> JoinExchange:
    """Return how the rows of a join reach its cells."""
    layout, terms = op.layout if isinstance(op.layout, tuple) else None, op.match_terms(left, right)
    equal = [term for term in terms if isinstance(term, Equal)]
    if op.last_rows is not None:
        return JoinExchange((), (False, False), "the last rows are those of the whole stream")
    if equal:
        keys = tuple(term.left for term in equal), tuple(term.right for term in equal)
        return JoinExchange(keys, (True, True), "some columns are equal", layout)
    can_fail = any(not isinstance(term, Band) for term in terms)
    if can_fail and op.on_error != OnError.FAIL:
        why = "a row of which several pairs fail is one error, and must be known in one place"
        return JoinExchange((), (False, False), why, layout and (1, 1))
    if op.how == "full":
        why = "rows of both sides leave if they have no partner, which must be known in one place"
        return JoinExchange((), (False, False), why, layout and (1, 1))
    if op.how != "inner":
        side = "right" if op.how == "right" else "left"
        why = f"whether a {side} row has a partner must be known in one place"
        return JoinExchange((), (side == "left", side == "right"), why, layout)
    return JoinExchange((), (True, True), "each pair meets in one cell", layout)


class JoinPartitioner:
    """Sends rows of one side of a join to their cells."""

    def __init__(self, exchange: JoinExchange, side: int, schema: pa.Schema) -> None:
        self._exchange, self._side = exchange, side
        self._keys = exchange.keys[side] if exchange.keys else ()
        self._key_buckets = KeyBuckets([schema.field(name).type for name in self._keys])
        self._hashed = [field.name for field in schema if not kind.is_nested(field.type)]
        self._row_buckets = KeyBuckets([schema.field(name).type for name in self._hashed])

    def partition(self, batch: Batch, n_partitions: int, layout: Layout) -> Iterator[tuple[list[int], Batch]]:
        """Yield (partitions, rows) for all rows; rows that are for several are given once."""
        if self._keys:
            columns = [batch.rows.column(name) for name in self._keys]
            buckets = self._key_buckets.of(columns, batch.num_rows).astype(np.int64)
            for part, rows in _split(batch, buckets % self._exchange.n_owners(n_partitions)):
                yield [part], rows
            return
        m, n = layout
        for part, rows in _split(batch, self._parts(batch, (m, n)[self._side])):
            if self._side == LEFT_SIDE:
                yield list(range(part * n, part * n + n)), rows
            else:
                yield list(range(part, m * n, n)), rows

    def _parts(self, batch: Batch, n_parts: int) -> npt.NDArray[np.int64]:
        """Return the part of each row: by its time and its place, or its columns where no place is known."""
        if n_parts == 1:
            return np.zeros(batch.num_rows, np.int64)
        hashes = batch.times.astype(np.uint64) * _ODD
        for column in batch.order:
            # Why: places are filled up where streams of different histories meet.
            hashes = np.where(column == NO_ORDER, hashes, _mix(hashes ^ column.astype(np.uint64)))
        if not batch.order:
            columns = [batch.rows.column(name) for name in self._hashed]
            hashes ^= self._row_buckets.of(columns, batch.num_rows).astype(np.uint64)
        return (_mix(hashes) % np.uint64(n_parts)).astype(np.int64)


def _mix(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(30))) * _MIX
    mixed: Hashes = hashes ^ (hashes >> np.uint64(27))
    return mixed


def _split(batch: Batch, parts: npt.NDArray[np.int64]) -> Iterator[tuple[int, Batch]]:
    """Yield (part, rows) for every part that has some."""
    if not len(parts):
        return
    order = np.argsort(parts, kind="stable")
    present, starts = np.unique(parts[order], return_index=True)
    if len(present) == 1:
        yield int(present[0]), batch
        return
    for part, rows in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        yield part, batch.take(rows)
