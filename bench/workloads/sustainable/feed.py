"""Rows at a rate, the same for every system: due times of a virtual clock, as files or as batches.

Rows of a tick come when the tick is over, as a file that is moved into a folder or as columns in memory.
Their times are those of a virtual clock, so that files can be written before the trial; a window is late by
how much later it comes than the virtual clock says. Two small batches go first, and the clock starts when the
window that the second one closes has come: what a query does once, at its start, is no matter of the rate. A
last row behind all others closes what is open. Every tick has the same advertisements and events, so every
window has the same answer, which is checked.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.sustainable import Trial
from bench.workload import BenchError

TICK_US = 200_000
BEGIN = 1_700_000_000_000_000
N_ADS, ADS_EACH, ROUND = 1_000, 10, 100_000
N_CAMPAIGNS = N_ADS // ADS_EACH
VIEW, CLICK = 0, 1
SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("ad", pa.int64()), ("event_type", pa.int64())])
START_S, LEAST_PATIENCE_S = 90.0, 4.0
"""How long a query may take to start, and how long windows are awaited at least when all rows are sent."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of AIR's: its name, its windows in microseconds, and its results per window."""

    name: str
    kind: str
    size: int
    every: int
    n_keys: int

    @property
    def overlap(self) -> int:
        """Return how many windows a row is in."""
        return self.size // self.every


class Feed:
    """The rows of a trial, and the stop-watch that its results are given to."""

    def __init__(self, query: Query, rate: float, seconds: float) -> None:
        self.query, self.seconds = query, seconds
        self.per_tick = max(round(rate * TICK_US / 1e6), 1)
        self.n_ticks = round(seconds * 1e6 / TICK_US)
        self.rate = self.per_tick * 1e6 / TICK_US
        self.end = BEGIN + self.n_ticks * TICK_US
        number = np.arange(self.per_tick) % ROUND
        self._columns = [pa.array(number % N_ADS), pa.array(number % 3)]
        self._offsets = np.arange(self.per_tick, dtype=np.int64) * TICK_US // self.per_tick
        self.watch = StopWatch(self)

    def tick(self, number: int) -> pa.RecordBatch:
        """Return the rows of a tick; those before the first are small and prime the query."""
        start = BEGIN + number * TICK_US
        return self._batch(self._offsets + start, self._columns)

    def prime(self) -> list[pa.RecordBatch]:
        """Return what goes first: rows of one window, and rows behind it, which close it."""
        number = np.arange(3 * N_ADS)
        columns = [pa.array(number % N_ADS), pa.array(number % 3)]
        size = self.query.size
        return [self._batch(np.full(len(number), BEGIN - back), columns) for back in (2 * size, 1)]

    def close(self) -> pa.RecordBatch:
        """Return a view and a click behind all windows."""
        times = np.full(2, self.end + 2 * self.query.size)
        return self._batch(times, [pa.array([0, 0]), pa.array([VIEW, CLICK])])

    def _batch(self, times: Any, columns: list[pa.Array]) -> pa.RecordBatch:
        stamps = pa.array(times).cast(SCHEMA.field(0).type)
        return pa.RecordBatch.from_arrays([stamps, *columns], schema=SCHEMA)

    def expected_value(self) -> float:
        """Return the sum of the results of one window, over its keys."""
        n_ticks = self.query.size // TICK_US
        ads, kinds = (column.to_numpy() for column in self._columns)
        views, clicks = (
            np.bincount(ads[kinds == kind] // ADS_EACH, minlength=N_CAMPAIGNS) * n_ticks
            for kind in (VIEW, CLICK)
        )
        if self.query.kind == "swa":
            return float(self.per_tick * n_ticks)
        return float(views.sum()) if self.query.kind == "ysb" else float((clicks / views).sum())

    def window_ends(self) -> list[int]:
        """Return the ends of the windows that are expected: all that lie within the rows."""
        return list(range(BEGIN + self.query.size, self.end + 1, self.query.every))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield batches when they are due, in the process of the engine; record what waits at the end."""
        yield from self.prime()
        started = self.watch.await_start()
        for number in range(self.n_ticks):
            _sleep_until(started + (number + 1) * TICK_US / 1e6)
            yield self.tick(number)
        late = time.perf_counter() - (started + self.n_ticks * TICK_US / 1e6)
        self.watch.backlog = max(late, 0.0) * self.rate
        yield self.close()
        self.watch.await_end()


class FileFeed:
    """A feed as parquet files that are moved into a folder when they are due."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self._root = Path(tempfile.mkdtemp(prefix="penstock-feed-"))
        self.folder, self.staged = self._root / "in", self._root / "staged"
        self.folder.mkdir()
        self.staged.mkdir()
        for number, batch in enumerate(
            [*feed.prime(), *(feed.tick(n) for n in range(feed.n_ticks)), feed.close()]
        ):
            table = pa.Table.from_batches([batch])
            pq.write_table(table, self.staged / f"{number:05d}.parquet", compression="lz4")

    def new_folder(self) -> Path:
        """Return an empty folder for a checkpoint."""
        return Path(tempfile.mkdtemp(dir=self._root))

    def start(self) -> None:
        """Begin to move files, in a thread."""
        Thread(target=self._move_files, daemon=True).start()

    def _move_files(self) -> None:
        files = sorted(self.staged.iterdir())
        first, second, *ticks, last = files
        for file in (first, second):
            self._move(file)
            time.sleep(0.5)
        started = self.feed.watch.await_start()
        for number, file in enumerate(ticks):
            _sleep_until(started + (number + 1) * TICK_US / 1e6)
            self._move(file)
        self._move(last)

    def _move(self, file: Path) -> None:
        os.utime(file)  # Why: Spark takes files by their time, which is that of the move
        file.rename(self.folder / file.name)

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self._root, ignore_errors=True)


class StopWatch:
    """Collects results, each with the moment at which it came."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._lock, self._begun, self._ended = Lock(), Event(), Event()
        self._started = 0.0
        self._n_results: dict[int, int] = defaultdict(int)
        self._totals: dict[int, float] = defaultdict(float)
        self._came: dict[int, float] = {}
        self._missing = set(feed.window_ends())
        self.backlog = 0.0

    def take(self, ends: list[int], values: list[float], now: float | None = None) -> None:
        """Take results: the ends of their windows in microseconds, and their values."""
        now = time.perf_counter() if now is None else now
        with self._lock:
            for end, value in zip(ends, values, strict=True):
                self._n_results[end] += 1
                self._totals[end] += value
                if end in self._missing and self._n_results[end] == self._feed.query.n_keys:
                    self._came[end] = now
                    self._missing.discard(end)
            if ends and not self._begun.is_set():
                self._started = time.perf_counter()
                self._begun.set()
            if not self._missing:
                self._ended.set()

    def await_start(self) -> float:
        """Wait for the first window; return when the virtual clock starts."""
        if not self._begun.wait(START_S):
            raise TimeoutError(f"no window after {START_S:.0f} s")
        return self._started

    def await_end(self) -> None:
        """Wait until all windows have come, or for half as long as rows were sent."""
        self.await_start()
        over = self._started + self._feed.seconds + max(LEAST_PATIENCE_S, self._feed.seconds / 2)
        self._ended.wait(max(over - time.perf_counter(), 0.0))

    def trial(self) -> Trial:
        """Return what the system did, and raise if it counted wrong."""
        right = self._feed.expected_value()
        for end in self._came:
            if abs(self._totals[end] - right) > 1e-6 * right:
                raise BenchError(
                    f"{self._feed.query.name}: a wrong answer at {self._feed.rate:,.0f} rows/s",
                    detail=f"the window that ends at {end} has {self._totals[end]}, not {right}",
                )
        delays = tuple(
            moment - self._started - (end - BEGIN) / 1e6 for end, moment in sorted(self._came.items())
        )
        n_expected = len(self._feed.window_ends())
        return Trial(self._feed.rate, self._feed.seconds, delays, n_expected, self.backlog)


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.perf_counter(), 0.0))
