"""How the rows of a join reach its cells: one exchange, each row to all cells that it may find a partner in.

Rows that must be equal in some columns meet on the partition of their key's bucket. All others meet in m x n
cells, one to a partition: a left row goes to one row of cells and a right row to one column (DP-Join, 4.3).
Which one follows from the row alone, so that a task that is tried again sends it to the same. Where a band
bounds how far apart partners are, the cells may be ranges of its attribute instead (`cell_places.py`), if the
model says that the busiest cell then has less to do (`driver/join_planner.py` knows what rows are like).

Whether a row has found a partner must be known in one place, so in a grid a side whose rows leave for having
one or none is not copied: its rows are spread over a line of cells, and the other side is in all of them. The
same holds for a side whose rows meet the last rows of the other. If it holds for both sides, or one row's
failures have to be counted once, all rows are sent to all cells, each of which is the home of some and
compares these with all (`HomeLayout`): as much is sent as in a line, and comparisons are shared out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as kind

from penstock.frozen import Frozen
from penstock.operators.join_predicate import Band, Equal, PairBatchFunction, PairExpression, PairFunction
from penstock.operators.op import OnError, Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages.join.bounds import LEFT_SIDE
from penstock.stages.join.cell_places import (
    WHOLE,
    CellPlace,
    GridPlace,
    HomeLayout,
    HomePlace,
    RangeLayout,
    RangePlace,
    side_and_bucket,
)
from penstock.stages.join.conditions import Condition, FloatBand, IntBand
from penstock.stages.join.model import (
    ASSUMED_RATE,
    CellShare,
    ExchangeLoad,
    Layout,
    list_layouts,
    share_of_grid,
)
from penstock.stages.keys.slots import BUCKETS, KeyBuckets
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.order import NO_ORDER

Hashes = npt.NDArray[np.uint64]
Cells = Layout | HomeLayout
"""Cells that any rows may have: m x n, or such that have all rows."""
JoinLayout = Cells | RangeLayout
"""The cells of a join: these, or ranges of an attribute."""
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
"""Multipliers of a hash: any odd numbers whose bits are spread do."""
MAX_SAMPLE = 256
"""Values of an attribute that a task tells the driver of, for each side of a join."""


class JoinExchange(Frozen):
    """Where the rows of one join go, for any number of partitions.

    keys    the columns that are equal, of the left and of the right; () when any two rows may be a pair
    lines   (of the left, of the right): whether that side may be spread over several parts of a grid; if
            neither may, all cells have all rows
    why     what decided it
    layout  (m, n) as the program gives it; None: chosen by the number of partitions and what rows are like
    bands   those whose attribute may be cut into ranges, and whether each is one of floats
    copies  (of the left, of the right): which side may be copied to the margins of ranges
    meets_twice  whether a pair is found in the homes of both rows, where all cells have all rows
    cost    seconds of a comparison, before one is measured
    """

    keys: tuple[tuple[str, ...], tuple[str, ...]] | tuple[()]
    lines: tuple[bool, bool]
    why: str
    layout: tuple[int, int] | None = None
    bands: tuple[tuple[Band, bool], ...] = ()
    copies: tuple[tuple[bool, bool], ...] = ()
    meets_twice: bool = True
    cost: float = 0.0

    @property
    def n_least(self) -> int:
        """Return how many partitions there must be."""
        m, n = self.layout or (1, 1)
        return m * n

    def grids(self, n_partitions: int) -> list[Cells]:
        """Return the cells that the join may have on so many partitions, whatever its rows are like."""
        if self.layout is not None and self.lines == (True, True):
            return [(min(self.layout[0], BUCKETS), min(self.layout[1], BUCKETS))]
        n_cells = min(n_partitions if self.layout is None else self.n_least, BUCKETS)
        if self.lines == (False, False):
            spread = [HomeLayout(n_cells, self.meets_twice)] if n_cells > 1 else []
            return [*spread, *([(1, 1)] if self.layout is None or not spread else [])]
        if self.lines != (True, True):
            left, right = self.lines
            return [(n_cells if left else 1, n_cells if right else 1)]
        return list(list_layouts(n_cells))

    def place(self, partition: int, layout: JoinLayout) -> CellPlace:
        """Return which cell a partition is; one that is too many has parts that nothing belongs to."""
        if self.keys:
            return WHOLE
        if isinstance(layout, RangeLayout):
            return RangePlace(partition, layout)
        if isinstance(layout, HomeLayout):
            return HomePlace(partition, layout)
        m, n = layout
        return GridPlace(divmod(partition, n) if partition < m * n else (m, n), layout)

    def owns(self, saved_bucket: int, partition: int, n_partitions: int, layout: JoinLayout) -> bool:
        """Return whether a partition needs a bucket of saved state, those of the right from 256 on.

        Of a range that is the rows that were saved there, and those of ranges that may be copied to it.
        """
        side, bucket = side_and_bucket(saved_bucket)
        if self.keys:
            return bucket % self.n_owners(n_partitions) == partition
        if isinstance(layout, HomeLayout):
            return partition < layout.n_parts
        if not isinstance(layout, RangeLayout):
            m, n = layout
            parts = divmod(partition, n) if partition < m * n else (m, n)
            return GridPlace(parts, layout).owns(side, bucket)
        part = bucket % layout.n_parts
        if part == partition or not layout.copies[side]:
            return part == partition
        return partition in layout.margin(part, self.condition(layout.band))

    def condition(self, band: int) -> Condition:
        """Return a band as codes and ranges of codes."""
        return _build_condition(*self.bands[band])

    def n_owners(self, n_partitions: int) -> int:
        """Return over how many partitions the buckets of keys are spread."""
        return min(n_partitions if self.layout is None else self.n_least, BUCKETS)

    def describe(self) -> str:
        """Return how rows are spread, and why."""
        if self.keys:
            over = "all partitions" if self.layout is None else f"{self.n_owners(1)} partitions"
            return f"rows of equal {', '.join(self.keys[LEFT_SIDE])} meet, over {over}"
        if self.layout is not None:
            (cells,) = self.grids(1)
            asked = "" if cells == self.layout else f", for layout={self.layout}"
            return f"{self.describe_layout(cells)}{asked}: {self.why}"
        shape = {
            (True, True): "m x n cells, which follow the rows of each side",
            (True, False): "m x 1 cells, one for each partition",
            (False, True): "1 x n cells, one for each partition",
            (False, False): "1 x 1 cell, or where comparisons cost more than rows, "
            "a cell for each partition that has all rows",
        }[self.lines]
        if self.bands:
            names = " or ".join(dict.fromkeys(band.left for band, _ in self.bands))
            shape += f", or ranges of {names} once its values are known"
        return f"{shape}: {self.why}"

    def predict(self, n_partitions: int) -> str:
        """Return what cells take in on so many partitions, before anything is known of the rows."""
        load = ExchangeLoad((ASSUMED_RATE, ASSUMED_RATE), (0.0, 0.0), exchange=1.0)
        cells, share = self.describe_layout((1, 1)), 1 / self.n_owners(n_partitions)
        n_rows = load.seconds([(share, share, share)])
        if not self.keys:
            grids = {grid: load.seconds([share_of_cells(grid)]) for grid in self.grids(n_partitions)}
            # Of cells that take in as many rows, those are best that compare less, if that costs anything.
            grid = min(
                grids,
                key=lambda grid: (grids[grid], share_of_cells(grid)[2] if self.cost else count_cells(grid)),
            )
            cells, n_rows = self.describe_layout(grid), grids[grid]
        in_ranges = f", in ranges from {2 * ASSUMED_RATE / n_partitions:,.0f}" if self.bands else ""
        return (
            f"predicted for {n_partitions} partitions at {ASSUMED_RATE:,.0f} rows/s of each side: "
            f"{cells}, each of which takes in {n_rows:,.0f} rows/s{in_ranges}"
        )

    def describe_layout(self, layout: JoinLayout) -> str:
        """Return the cells that a job has."""
        if self.keys:
            return f"by {', '.join(self.keys[LEFT_SIDE])}"
        if isinstance(layout, RangeLayout):
            band, _ = self.bands[layout.band]
            return f"{layout.n_parts} ranges of {band.left}"
        if isinstance(layout, HomeLayout):
            return f"{layout.n_parts} cells with all rows"
        return f"{layout[0]} x {layout[1]} cells"


def share_of_cells(layout: Cells) -> CellShare:
    """Return what each of some equal cells has."""
    return (1.0, 1.0, layout.share_compared) if isinstance(layout, HomeLayout) else share_of_grid(layout)


def count_cells(layout: Cells) -> int:
    """Return the number of cells."""
    return layout.n_parts if isinstance(layout, HomeLayout) else layout[0] * layout[1]


@lru_cache(64)
def _build_condition(band: Band, is_float: bool) -> Condition:
    return (FloatBand if is_float else IntBand)(band.left, band.right, band.width, strict=band.strict)


def plan_join_exchange(op: StreamJoin, left: Stream, right: Stream) -> JoinExchange:
    """Return how the rows of a join reach its cells."""
    layout, terms = op.layout if isinstance(op.layout, tuple) else None, op.match_terms(left, right)
    equal = [term for term in terms if isinstance(term, Equal)]
    cost = max(_COSTS.get(type(term), 0.0) for term in terms)
    if op.last_rows is not None:
        both = op.last_rows if isinstance(op.last_rows, tuple) else (op.last_rows, op.last_rows)
        n_left, n_right = both
        if n_left and n_right:
            why = "rows of both sides meet the last rows of a whole stream, so all must be in order"
            return JoinExchange((), (False, False), why, layout, meets_twice=False, cost=cost)
        side, other = ("left", "right") if n_right else ("right", "left")
        why = f"each {side} row meets the last rows of the whole {other}"
        return JoinExchange((), (n_right > 0, n_left > 0), why, layout, cost=cost)
    if equal:
        keys = tuple(term.left for term in equal), tuple(term.right for term in equal)
        return JoinExchange(keys, (True, True), "some columns are equal", layout)
    bands = tuple(
        (term, any(kind.is_floating(up.schema.field(name).type) for up, name in sides))
        for term in terms
        if isinstance(term, Band)
        for sides in [((left, term.left), (right, term.right))]
    )
    bands, whole = bands if layout is None else (), ((True, True),)
    if op.on_error != OnError.FAIL and any(not isinstance(term, Band) for term in terms):
        why = "a row of which several pairs fail is one error, and must be known in one place"
        return JoinExchange((), (False, False), why, layout, bands, whole, cost=cost)
    if op.how == "full":
        why = "rows of both sides leave if they have no partner, which must be known in one place"
        return JoinExchange((), (False, False), why, layout, bands, whole, cost=cost)
    if op.how != "inner":
        side = "right" if op.how == "right" else "left"
        why = f"whether a {side} row has a partner must be known in one place"
        lines = side == "left", side == "right"
        return JoinExchange((), lines, why, layout, bands, ((not lines[0], not lines[1]),), cost=cost)
    why = "each pair meets in one cell"
    copies = (False, True), (True, False)
    return JoinExchange((), (True, True), why, layout, bands, copies, cost=cost)


_COSTS: dict[type, float] = {PairExpression: 30e-9, PairFunction: 1e-6, PairBatchFunction: 100e-9}
"""Term -> about how many seconds it takes for a pair, before that is measured; what an index serves, none."""


class JoinPartitioner:
    """Sends rows of one side of a join to their cells, and notes what values their attributes have."""

    def __init__(self, exchange: JoinExchange, side: int, schema: pa.Schema) -> None:
        self._exchange, self._side = exchange, side
        self._keys = exchange.keys[side] if exchange.keys else ()
        self._key_buckets = KeyBuckets([schema.field(name).type for name in self._keys])
        self._hashed = [field.name for field in schema if not kind.is_nested(field.type)]
        self._row_buckets = KeyBuckets([schema.field(name).type for name in self._hashed])
        self._n_rows = 0
        self._sampled: list[list[tuple[int, Ints]]] = [[] for _ in exchange.bands]

    def partition(
        self, batch: Batch, n_partitions: int, layout: JoinLayout
    ) -> Iterator[tuple[int | None, Sequence[int], Batch]]:
        """Yield (home, other partitions, rows) for all rows, each once with its home."""
        self._note(batch)
        if self._keys:
            columns = [batch.rows.column(name) for name in self._keys]
            buckets = self._key_buckets.of(columns, batch.num_rows).astype(np.int64)
            for part, rows in _split(batch, buckets % self._exchange.n_owners(n_partitions)):
                yield part, (), rows
            return
        if isinstance(layout, RangeLayout):
            yield from self._partition_by_value(batch, layout)
            return
        if isinstance(layout, HomeLayout):
            for part, rows in _split(batch, self._parts(batch, layout.n_parts)):
                yield part, [other for other in range(layout.n_parts) if other != part], rows
            return
        m, n = layout
        for part, rows in _split(batch, self._parts(batch, (m, n)[self._side])):
            if self._side == LEFT_SIDE:
                yield part * n, range(part * n + 1, part * n + n), rows
            else:
                yield part, range(part + n, m * n, n), rows

    def take_sample(self) -> tuple[int, int, list[tuple[list[int], list[float]]]]:
        """Return the side, the rows that were sent since the last call, and of each band values and weights.

        The values are codes, each of which stands for as many rows as its weight says.
        """
        sampled = [_condense(lots) for lots in self._sampled]
        n_rows, self._n_rows = self._n_rows, 0
        self._sampled = [[] for _ in self._sampled]
        return self._side, n_rows, sampled

    def _note(self, batch: Batch) -> None:
        """Note how many rows there are, and some of their values: evenly, so that quantiles hold."""
        self._n_rows += batch.num_rows
        if not self._sampled or not batch.num_rows:
            return
        step = -(-batch.num_rows // MAX_SAMPLE)
        conditions = [self._exchange.condition(band) for band in range(len(self._sampled))]
        names = dict.fromkeys(name for condition in conditions for name in condition.names[self._side])
        firsts = np.arange(0, batch.num_rows, step)
        # Why not all of them first: values may repeat every so many rows.
        places = np.minimum(firsts + (firsts * 40503 >> 7) % step, batch.num_rows - 1)
        sample = batch.rows.select(list(names)).take(pa.array(places))
        for condition, lots in zip(conditions, self._sampled, strict=True):
            valid = condition.valid(self._side, sample)
            rows = sample if valid is None else sample.take(pa.array(np.flatnonzero(valid)))
            if rows.num_rows:
                lots.append((step, condition.codes(self._side, rows)))

    def _partition_by_value(
        self, batch: Batch, layout: RangeLayout
    ) -> Iterator[tuple[int | None, Sequence[int], Batch]]:
        """Yield rows for the range that each lies in, and copies for those that its band reaches into."""
        condition = self._exchange.condition(layout.band)
        valid = condition.valid(self._side, batch.rows)
        if valid is not None:
            alone = batch.where(~valid)
            for part, rows in _split(alone, self._parts(alone, layout.n_parts)):
                yield part, (), rows
            batch = batch.where(valid)
        codes = condition.codes(self._side, batch.rows)
        for part, rows in _split(batch, layout.homes(codes)):
            yield part, (), rows
        parts, copied = layout.copies_of(self._side, codes, condition)
        if len(copied):
            for part, rows in _split(batch.take(copied), parts):
                yield None, (part,), rows

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


def _condense(lots: Sequence[tuple[int, Ints]]) -> tuple[list[int], list[float]]:
    """Return values and weights: as many quantiles as may be sent, of all that was noted."""
    if not lots:
        return [], []
    codes = np.concatenate([of_batch for _, of_batch in lots])
    weights = np.concatenate([np.full(len(of_batch), step, np.float64) for step, of_batch in lots])
    codes, weights = reduce_sample(codes, weights)
    return codes.tolist(), weights.tolist()


def reduce_sample(
    codes: Ints, weights: npt.NDArray[np.float64], most: int = MAX_SAMPLE
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """Return at most so many values of equal weight that stand for weighted ones, in their order."""
    order = np.argsort(codes, kind="stable")
    codes, weights = codes[order], weights[order]
    if len(codes) <= most:
        return codes, weights
    reached = np.cumsum(weights)
    middles = (np.arange(most) + 0.5) * (reached[-1] / most)
    return codes[np.searchsorted(reached, middles)], np.full(most, reached[-1] / most)
