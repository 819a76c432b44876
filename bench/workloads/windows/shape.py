"""What a case is, its rows, and the functions that are aggregated.

The rows are drawn once from the seed and held as Arrow columns, split into batches. Values are whole
sixteenths between 0 and 1,000, so that sums, also of squares, are exact in any order and answers can be
compared; none is 0, so that a sum of 0 has no rows. Times are microseconds, evenly spaced; with a mean delay
d rows arrive up to 2 d late, in the order of their arrival, and the watermark waits for that.

The functions are the nine of SPRINGALD's figure 15, and one that a user might write. Each has its twin in
NumPy, computed from the statistics of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import Stream
from penstock.operators.windows import KeyedWindows, Windows
from penstock.stages.rows.batch import Batch
from penstock.timing.units import TimeType

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Partial = tuple[float, float, float]


class WindowStatistics(NamedTuple):
    """The statistics of each window; the extremes are empty unless the function needs them."""

    n: Floats
    total: Floats
    squares: Floats
    least: Floats
    n_least: Floats
    most: Floats
    n_most: Floats


def lift(row: Any) -> Partial:
    """Return the partial of a row: least, greatest, count."""
    return row.value, row.value, 1.0


def combine(one: Partial, other: Partial) -> Partial:
    """Return the partial of two partials."""
    return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]


def lower(part: Partial) -> float:
    """Return the range of the values, per row."""
    return (part[1] - part[0]) / part[2]


FUNCTIONS: dict[str, Aggregate] = {
    "sum": ps.sum("value"),
    "count": ps.count(),
    "max": ps.max("value"),
    "min": ps.min("value"),
    "mean": ps.mean("value"),
    "max_count": ps.max_count("value"),
    "min_count": ps.min_count("value"),
    "sample std": ps.std("value"),
    "population std": ps.std("value", population=True),
    "fold": ps.fold(lift, combine, (math.inf, -math.inf, 0.0), lower, columns="value"),
}
NEEDS_EXTREMES = {"max", "min", "max_count", "min_count", "fold"}

TWINS: dict[str, Callable[[WindowStatistics], list[Floats]]] = {
    "sum": lambda of: [of.total],
    "count": lambda of: [of.n],
    "max": lambda of: [of.most],
    "min": lambda of: [of.least],
    "mean": lambda of: [of.total / of.n],
    "max_count": lambda of: [of.most, of.n_most],
    "min_count": lambda of: [of.least, of.n_least],
    "sample std": lambda of: [np.sqrt(_squared_deviations(of) / (of.n - 1))],
    "population std": lambda of: [np.sqrt(_squared_deviations(of) / of.n)],
    "fold": lambda of: [(of.most - of.least) / of.n],
}


def _squared_deviations(of: WindowStatistics) -> Floats:
    """Return the sum of squared distances from the mean."""
    return of.squares - of.total * of.total / of.n


BEGIN = 3_600_000_000
"""The time of the first row: a multiple of every slide used here."""
BATCH = 1 << 18
WARM = 1 << 15
"""The least number of rows that fill the windows before the first row."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a case: rows, and the windows over them.

    size, every  the window in microseconds; in rows when `counted`
    per_slice    rows in `every` microseconds, of all keys together
    n_keys       0 for a stream without a key
    skew         the exponent of a Zipf distribution of keys; 0 for a uniform one
    mean_delay   microseconds; delays are uniform between 0 and twice that
    steady       windows before the first row are filled beforehand, some rows per slice and key, and the
                 last ones stay open: every row is then in equally many windows, and each slice closes one
                 window per key. Otherwise the stream ends and every window closes
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
        """Return the slices of a window, which is also the number of windows of a row."""
        return self.size // self.every

    @property
    def n_slices(self) -> int:
        """Return the number of slices that the rows fill."""
        return -(-self.n_rows // self.per_slice)

    @property
    def per_cell(self) -> float:
        """Return the rows per slice and key, on average."""
        return self.per_slice / max(self.n_keys, 1)

    def limit_rows(self, n_rows: int) -> Shape:
        """Return the same windows over at most that many rows, drained at the end, as batch peers need."""
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
    batches     the timed input
    watermarks  the watermark after each batch
    lead        the rows that fill windows beforehand; their watermark is `begin`
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
        """Return the columns as they are in memory."""
        return [self.times, *([self.keys] if self.shape.n_keys else []), self.values]

    @property
    def lead_batch(self) -> Batch:
        """Return the lead rows as a batch."""
        return _build_batch(self.shape, *self.lead, 0)


def build_flow(shape: Shape, seed: int) -> Flow:
    """Draw the rows of a case."""
    shared = math.gcd(shape.every, shape.per_slice)
    pace = (shape.every // shared, shape.per_slice // shared)
    times = _draw_times(shape.n_rows, pace, shape.mean_delay, seed)
    keys, values = _draw_keys(shape.n_rows, shape.n_keys, shape.skew, seed), _draw_values(shape.n_rows, seed)
    marks = _watermarks(times, shape.batch, shape.mean_delay)
    begin = BEGIN - 2 * shape.mean_delay if shape.steady else None
    return _split_into_batches(Flow(shape, times, values, keys, (), marks, _build_lead(shape), begin))


def forget_columns() -> None:
    """Clear the columns that cases share, so that later flows get new ones."""
    for shared in (_draw_times, _draw_values, _draw_keys):
        shared.cache_clear()


def partition_by_key(whole: Flow, n_partitions: int) -> list[Flow]:
    """Split the rows into flows that share no key and end with the same watermark."""
    partitions = []
    for part in range(n_partitions):
        is_own = whole.keys % n_partitions == part
        shape = replace(whole.shape, n_rows=int(is_own.sum()))
        if not shape.n_rows:
            continue
        times = whole.times[is_own]
        marks = _watermarks(times, shape.batch, shape.mean_delay)
        lead_times, lead_keys, lead_values = whole.lead
        of_lead = lead_keys % n_partitions == part
        partitions.append(
            replace(
                whole,
                shape=shape,
                times=times,
                values=whole.values[is_own],
                keys=whole.keys[is_own],
                watermarks=(*marks[:-1], whole.watermarks[-1]),
                lead=(lead_times[of_lead], lead_keys[of_lead], lead_values[of_lead]),
            )
        )
    return [_split_into_batches(partition) for partition in partitions]


def _watermarks(times: Ints, batch: int, mean_delay: int) -> tuple[int, ...]:
    """Return the watermark after each batch."""
    greatest = np.maximum.reduceat(times, np.arange(0, len(times), batch))
    return tuple((np.maximum.accumulate(greatest) - 2 * mean_delay).tolist())


def _split_into_batches(flow: Flow) -> Flow:
    """Return the flow with its rows split into batches."""
    shape = flow.shape
    parts = [slice(start, start + shape.batch) for start in range(0, shape.n_rows, shape.batch)]
    batches = [
        _build_batch(shape, flow.times[part], flow.keys[part], flow.values[part], part.start)
        for part in parts
    ]
    return replace(flow, batches=tuple(batches))


def _build_batch(shape: Shape, times: Ints, keys: Ints, values: Floats, first: int) -> Batch:
    columns = [pa.array(times), *([pa.array(keys)] if shape.n_keys else []), pa.array(values)]
    rows = pa.RecordBatch.from_arrays(columns, schema=shape.up.schema)
    # Only count windows need the order among rows of equal time.
    order = (np.arange(first, first + len(times), dtype=np.int64),) if shape.counted else ()
    return Batch(rows, times, order)


def _build_lead(shape: Shape) -> tuple[Ints, Ints, Floats]:
    """Return rows for every slice and key of one window's length; none unless the case is steady."""
    n_slices, n_keys = (shape.per_window if shape.steady else 0), max(shape.n_keys, 1)
    # Enough of them to compile everything before the clock runs.
    n_each = -(-WARM // max(n_slices * n_keys, 1))
    times = BEGIN - shape.size + np.repeat(np.arange(n_slices, dtype=np.int64), n_keys * n_each) * shape.every
    return times, np.tile(np.arange(n_keys, dtype=np.int64), n_slices * n_each), np.ones(len(times))


# Cases share columns where they can: the runner keeps the data of all cases at once.
@lru_cache(maxsize=8)
def _draw_times(n_rows: int, pace: tuple[int, int], mean_delay: int, seed: int) -> Ints:
    """Return the times of rows at a `pace` of (microseconds, rows)."""
    times = BEGIN + np.arange(n_rows, dtype=np.int64) * pace[0] // pace[1]
    if not mean_delay:
        return times
    delays = np.random.default_rng([seed, 3]).integers(0, 2 * mean_delay, n_rows, endpoint=True)
    return np.asarray(times[np.argsort(times + delays, kind="stable")])


@lru_cache(maxsize=2)
def _draw_values(n_rows: int, seed: int) -> Floats:
    return np.asarray(np.random.default_rng([seed, 1]).integers(1, 16_000, n_rows) / 16.0)


@lru_cache(maxsize=4)
def _draw_keys(n_rows: int, n_keys: int, skew: float, seed: int) -> Ints:
    if n_keys < 2:
        return np.zeros(n_rows, np.int64)
    rng = np.random.default_rng([seed, 2])
    if not skew:
        return np.asarray(rng.integers(0, n_keys, n_rows))
    shares = np.cumsum(np.arange(1, n_keys + 1, dtype=np.float64) ** -skew)
    return np.asarray(np.searchsorted(shares, rng.random(n_rows) * shares[-1], side="right"))
