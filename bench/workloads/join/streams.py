"""The two streams of DP-Join's experiments (5.1), drawn at a rate, and their right pairs.

Left rows have x and y, right rows a and b, all whole numbers from 0 to 9,999; y and b are floats that hold
one, as in the handshake prototype. A pair joins if |x - a| < 10 and |y - b| < 10: of such numbers
(189,910 / 10^8)^2 = 3.6066e-6 do, which is the paper's hit rate; its text says BETWEEN, which gives 4.4e-6.

A stream has three parts: the lead, which fills a window before the clock starts; some warm-up rows; and the
probes, which are timed. Rows of a part are spread over its time at random, and each part has exactly the rows
of its rate, so that the number of comparisons is known before a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from penstock.operators.op import Stream
from penstock.operators.stream_join import StreamJoin
from penstock.stages.rows.batch import Batch
from penstock.timing.units import TimeType

Ints = npt.NDArray[np.int64]
SECOND = 1_000_000
VALUES = 10_000
WIDTH = 10
HIT_RATE = (sum(min(VALUES, v + WIDTH) - max(0, v - WIDTH + 1) for v in range(VALUES)) / VALUES**2) ** 2
"""The share of all pairs that the strict band holds for: the paper's p."""
WARM_ROWS = 512
"""Warm-up rows of each side: enough for the stage to know which index is worth it."""
LEFT_SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.float64()), ("id", pa.int64())])
RIGHT_SCHEMA = pa.schema([("ts", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("other", pa.int64())])


@dataclass(frozen=True, slots=True)
class Shape:
    """What is joined.

    rates     rows per second of the left and of the right
    window_s  the length of both windows, in seconds
    n_probes  timed rows of both sides together, by the shares of their rates
    n_batches batches that the timed rows of a side come in
    """

    rates: tuple[int, int]
    window_s: int
    n_probes: int
    n_batches: int = 4

    @property
    def window_rows(self) -> tuple[int, int]:
        """Return the rows of a full window of the left and of the right (W_x and W_y, 5.2)."""
        return self.rates[0] * self.window_s, self.rates[1] * self.window_s

    @property
    def probes(self) -> tuple[int, int]:
        """Return the timed rows of the left and of the right."""
        left = round(self.n_probes * self.rates[0] / sum(self.rates))
        return left, self.n_probes - left

    @property
    def probe_s(self) -> float:
        """Return the time that the probes take to arrive."""
        return self.n_probes / sum(self.rates)

    @property
    def n_compared(self) -> int:
        """Return how many pairs a scan looks at: each new row meets the window of the other side."""
        return self.probes[0] * self.window_rows[1] + self.probes[1] * self.window_rows[0]

    @property
    def op(self) -> StreamJoin:
        """Return the join as a user would write it."""
        on = [ps.band("x", "a", WIDTH, strict=True), ps.band("y", "b", WIDTH, strict=True)]
        return StreamJoin(on, within=f"{self.window_s} s", suffix="_right")


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """The rows of one stream in order of time.

    cuts  where the warm-up rows and the probes begin
    """

    times: Ints
    first: Ints
    second: Ints
    cuts: tuple[int, int]

    def batch(self, part: slice, schema: pa.Schema) -> Batch:
        """Return some rows as a stage takes them."""
        times = self.times[part]
        ids = np.arange(part.start, part.start + len(times), dtype=np.int64)
        columns = (times, self.first[part], self.second[part].astype(np.float64), ids)
        rows = pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=schema)
        return Batch(rows, times, (ids,))


class Streams:
    """The rows of a case, and their right pairs."""

    def __init__(self, shape: Shape, left: Side, right: Side) -> None:
        self.shape, self.left, self.right = shape, left, right

    @property
    def ups(self) -> tuple[Stream, Stream]:
        """Return the types of both streams."""
        time = TimeType(pa.int64(), "us")
        return Stream(LEFT_SCHEMA, time), Stream(RIGHT_SCHEMA, time)

    def rounds(self, part: str, n_batches: int) -> list[tuple[dict[str, Batch], int]]:
        """Return a part, `lead`, `warm` or `probe`, as rounds: batches by port, and the watermark after them.

        Rounds are cut by time. The watermark is the time up to which all rows have come.
        """
        begin, end = self._span(part)
        ends = [begin + (end - begin) * (number + 1) // n_batches for number in range(n_batches)]
        rounds = []
        for start, stop in zip([begin, *ends[:-1]], ends, strict=True):
            batches = {
                port: side.batch(slice(*np.searchsorted(side.times, [start, stop]).tolist()), schema)
                for port, side, schema in (
                    ("left", self.left, LEFT_SCHEMA),
                    ("right", self.right, RIGHT_SCHEMA),
                )
            }
            rounds.append((batches, stop))
        return rounds

    def _span(self, part: str) -> tuple[int, int]:
        spans = spans_of(self.shape)
        at = ("lead", "warm", "probe").index(part)
        return sum(spans[:at]), sum(spans[: at + 1])

    @cached_property
    def pairs(self) -> Ints:
        """Return the pairs of which at least one row is a probe, as `encode_pairs` has them, in order.

        Found by the order of x: of the right rows in the range of x, those whose y and time are near enough.
        """
        left, right = self.left, self.right
        new_left, new_right = left.cuts[1], right.cuts[1]
        parts = [
            _join_sorted(left, right, slice(new_left, None), slice(None), self.shape.window_s),
            _join_sorted(left, right, slice(0, new_left), slice(new_right, None), self.shape.window_s),
        ]
        return np.sort(np.concatenate(parts))

    def expected_answer(self) -> Ints:
        """Return the right pairs."""
        return self.pairs


def spans_of(shape: Shape) -> tuple[int, int, int]:
    """Return how long the lead, the warm-up and the probes take, in microseconds."""
    warm = round(2 * WARM_ROWS / sum(shape.rates) * SECOND)
    return shape.window_s * SECOND, warm, max(1, round(shape.probe_s * SECOND))


def encode_pairs(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> Ints:
    """Return pairs of row numbers as one number each."""
    return (left.astype(np.int64) << 32) | right.astype(np.int64)


def _join_sorted(left: Side, right: Side, lefts: slice, rights: slice, window_s: int) -> Ints:
    rights_at = np.arange(len(right.times))[rights]
    order = rights_at[np.argsort(right.first[rights_at], kind="stable")]
    ranked = right.first[order]
    pairs = []
    for begin in range(lefts.start, lefts.stop or len(left.times), 4096):
        at = np.arange(begin, min(begin + 4096, lefts.stop or len(left.times)))
        lows = np.searchsorted(ranked, left.first[at] - WIDTH, side="right")
        highs = np.searchsorted(ranked, left.first[at] + WIDTH)
        sizes = highs - lows
        l_at = np.repeat(at, sizes)
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        r_at = order[np.repeat(lows, sizes) + offsets]
        near = np.abs(left.second[l_at] - right.second[r_at]) < WIDTH
        near &= np.abs(left.times[l_at] - right.times[r_at]) <= window_s * SECOND
        pairs.append(encode_pairs(l_at[near], r_at[near]))
    return np.concatenate(pairs) if pairs else np.empty(0, np.int64)


@lru_cache(maxsize=4)
def draw_streams(shape: Shape, seed: int) -> Streams:
    """Draw the rows of a case."""
    return Streams(shape, *(_draw_side(shape, side, seed) for side in (0, 1)))


def _draw_side(shape: Shape, side: int, seed: int) -> Side:
    rng = np.random.default_rng([seed, side])
    sizes = (shape.window_rows[side], WARM_ROWS, shape.probes[side])
    begins = np.cumsum([0, *spans_of(shape)])
    parts = [
        np.sort(rng.integers(begin, end, n))
        for begin, end, n in zip(begins[:-1], begins[1:], sizes, strict=True)
    ]
    n_rows = sum(sizes)
    first, second = rng.integers(0, VALUES, n_rows), rng.integers(0, VALUES, n_rows)
    return Side(np.concatenate(parts), first, second, (sizes[0], sizes[0] + sizes[1]))
