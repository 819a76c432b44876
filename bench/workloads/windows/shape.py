"""What a case is, and its rows: made once from the seed, held as Arrow columns cut into batches.

Values are whole sixteenths between 0 and 1,000, so that sums, also of squares, are exact in any order and
answers can be compared; none is 0, so that a sum of 0 has no rows. Times are microseconds, evenly spread;
with a mean delay d rows arrive up to 2 d late, in the order of their arrival, and the watermark waits for
that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from bench.workloads.windows.functions import FUNCTIONS
from penstock.operators.stream import Stream
from penstock.operators.windows import KeyedWindows, Windows
from penstock.stages.rows.batch import Batch
from penstock.timing.column import TimeType

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BEGIN = 3_600_000_000
"""The time of the first row: a multiple of every slide used here."""
BATCH = 1 << 18
WARM = 1 << 15
"""At least so many rows fill the windows before the first row."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A case: rows, and the windows asked of them.

    size, every  the window in microseconds; in rows when `counted`
    per_slice    rows in `every` microseconds, of all keys together
    n_keys       0 for a stream without a key
    skew         the exponent of a Zipf distribution of keys; 0 for a uniform one
    mean_delay   microseconds; delays are uniform between 0 and twice that
    steady       windows before the first row are filled beforehand, some rows per slice and key, and the
                 last ones stay open: every row is then in equally many windows, and each slice lets one
                 window per key leave. Else the stream ends and everything leaves
    """

    n_rows: int
    size: int = 1_000_000
    every: int = 10_000
    per_slice: int = 10_000
    n_keys: int = 0
    skew: float = 0.0
    mean_delay: int = 0
    batch: int = BATCH
    function: str = "sum"
    counted: bool = False
    steady: bool = False

    @property
    def per_window(self) -> int:
        """Slices of a window, which is also the windows of a row."""
        return self.size // self.every

    @property
    def n_slices(self) -> int:
        """Slices that the rows fill."""
        return -(-self.n_rows // self.per_slice)

    @property
    def per_cell(self) -> float:
        """Rows per slice and key, on average."""
        return self.per_slice / max(self.n_keys, 1)

    def drained(self, n_rows: int) -> Shape:
        """The same windows over at most so many rows, begun empty and ended: what batch peers can do."""
        return replace(self, n_rows=min(self.n_rows, n_rows), steady=False)

    @property
    def op(self) -> Windows:
        """Return the step as a user would write it."""
        spec = ps.count_window if self.counted else ps.sliding
        return KeyedWindows(spec(self.size, self.every), aggregates={"result": FUNCTIONS[self.function]})

    @property
    def up(self) -> Stream:
        """Return the type of the rows."""
        key = [("key", pa.int64())] if self.n_keys else []
        schema = pa.schema([("time", pa.int64()), *key, ("value", pa.float64())])
        return Stream(schema, TimeType(pa.int64(), "us"), ("key",) if self.n_keys else ())


@dataclass(frozen=True, slots=True, eq=False)
class Flow:
    """The rows of a case, in order of arrival.

    keys        all 0 for a stream without a key
    batches     what is timed
    watermarks  the watermark after each batch
    lead        what fills windows beforehand; its watermark is `begin`
    """

    shape: Shape
    times: Ints
    values: Floats
    keys: Ints
    batches: tuple[Batch, ...]
    watermarks: tuple[int, ...]
    lead: tuple[Ints, Ints, Floats]
    begin: int | None

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """Return the columns as they lie in memory."""
        return [self.times, *([self.keys] if self.shape.n_keys else []), self.values]

    @property
    def lead_batch(self) -> Batch:
        """Return the rows beforehand as a batch."""
        return _batch(self.shape, *self.lead, 0)


def flow(shape: Shape, seed: int) -> Flow:
    """Return the rows of a case."""
    shared = math.gcd(shape.every, shape.per_slice)
    pace = (shape.every // shared, shape.per_slice // shared)
    times = _times(shape.n_rows, pace, shape.mean_delay, seed)
    keys, values = _keys(shape.n_rows, shape.n_keys, shape.skew, seed), _values(shape.n_rows, seed)
    marks = _marks(times, shape.batch, shape.mean_delay)
    begin = BEGIN - 2 * shape.mean_delay if shape.steady else None
    return _cut(Flow(shape, times, values, keys, (), marks, _lead(shape), begin))


def forget_columns() -> None:
    """Let go of the columns that cases share: flows made from now on have their own."""
    for shared in (_times, _values, _keys):
        shared.cache_clear()


def by_key(whole: Flow, n_parts: int) -> list[Flow]:
    """The rows in parts that share no key, each a flow of its own that ends with the same watermark."""
    found = []
    for part in range(n_parts):
        mine = whole.keys % n_parts == part
        shape = replace(whole.shape, n_rows=int(mine.sum()))
        if not shape.n_rows:
            continue
        times = whole.times[mine]
        marks = _marks(times, shape.batch, shape.mean_delay)
        lead_times, lead_keys, lead_values = whole.lead
        of_lead = lead_keys % n_parts == part
        found.append(
            replace(
                whole,
                shape=shape,
                times=times,
                values=whole.values[mine],
                keys=whole.keys[mine],
                watermarks=(*marks[:-1], whole.watermarks[-1]),
                lead=(lead_times[of_lead], lead_keys[of_lead], lead_values[of_lead]),
            )
        )
    return [_cut(each) for each in found]


def _marks(times: Ints, batch: int, mean_delay: int) -> tuple[int, ...]:
    """Return the watermark after each batch."""
    greatest = np.maximum.reduceat(times, np.arange(0, len(times), batch))
    return tuple((np.maximum.accumulate(greatest) - 2 * mean_delay).tolist())


def _cut(given: Flow) -> Flow:
    """Return the flow with its rows cut into batches."""
    shape = given.shape
    parts = [slice(start, start + shape.batch) for start in range(0, shape.n_rows, shape.batch)]
    batches = [
        _batch(shape, given.times[part], given.keys[part], given.values[part], part.start) for part in parts
    ]
    return replace(given, batches=tuple(batches))


def _batch(shape: Shape, times: Ints, keys: Ints, values: Floats, first: int) -> Batch:
    columns = [pa.array(times), *([pa.array(keys)] if shape.n_keys else []), pa.array(values)]
    rows = pa.RecordBatch.from_arrays(columns, schema=shape.up.schema)
    # Only count windows ask for the place among rows of equal time.
    order = (np.arange(first, first + len(times), dtype=np.int64),) if shape.counted else ()
    return Batch(rows, times, order)


def _lead(shape: Shape) -> tuple[Ints, Ints, Floats]:
    """Rows for every slice and key for as long as a window lasts; none unless the case is steady."""
    n_slices, n_keys = (shape.per_window if shape.steady else 0), max(shape.n_keys, 1)
    # Enough of them that everything is compiled before the clock runs.
    n_each = -(-WARM // max(n_slices * n_keys, 1))
    times = BEGIN - shape.size + np.repeat(np.arange(n_slices, dtype=np.int64), n_keys * n_each) * shape.every
    return times, np.tile(np.arange(n_keys, dtype=np.int64), n_slices * n_each), np.ones(len(times))


# Cases share columns where they can: the runner keeps the data of all cases at once.
@lru_cache(maxsize=8)
def _times(n_rows: int, pace: tuple[int, int], mean_delay: int, seed: int) -> Ints:
    """Times of `pace`: so many microseconds for so many rows."""
    times = BEGIN + np.arange(n_rows, dtype=np.int64) * pace[0] // pace[1]
    if not mean_delay:
        return times
    delays = np.random.default_rng([seed, 3]).integers(0, 2 * mean_delay, n_rows, endpoint=True)
    return np.asarray(times[np.argsort(times + delays, kind="stable")])


@lru_cache(maxsize=2)
def _values(n_rows: int, seed: int) -> Floats:
    return np.asarray(np.random.default_rng([seed, 1]).integers(1, 16_000, n_rows) / 16.0)


@lru_cache(maxsize=4)
def _keys(n_rows: int, n_keys: int, skew: float, seed: int) -> Ints:
    if n_keys < 2:
        return np.zeros(n_rows, np.int64)
    rng = np.random.default_rng([seed, 2])
    if not skew:
        return np.asarray(rng.integers(0, n_keys, n_rows))
    shares = np.cumsum(np.arange(1, n_keys + 1, dtype=np.float64) ** -skew)
    return np.asarray(np.searchsorted(shares, rng.random(n_rows) * shares[-1], side="right"))
