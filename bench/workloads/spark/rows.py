"""The rows of a case as parquet files, one a batch, and their right windows.

Values are whole sixteenths, so that sums are exact in any order. Rows are up to a second out of order, and
the watermark waits for two.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
DELAY = 2 * SECOND

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a case: files of `batch` rows, and windows in microseconds.

    rate  rows per second of event time, of all keys; chosen so that some windows close before the end
    """

    n_files: int
    batch: int
    n_keys: int
    size: int
    every: int
    rate: int = 100_000

    @property
    def n_rows(self) -> int:
        """Return the number of rows of all files."""
        return self.n_files * self.batch


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The files of a case, and the same rows in memory."""

    shape: Shape
    folder: Any
    times: Ints
    keys: Ints
    values: npt.NDArray[np.float64]

    @classmethod
    def write(cls, shape: Shape, seed: int) -> Rows:
        """Draw the rows and write the files."""
        rng = np.random.default_rng(seed)
        n = shape.n_rows
        arrival = BEGIN + np.arange(n, dtype=np.int64) * SECOND // shape.rate
        times = arrival - rng.integers(0, SECOND, n)
        keys, values = rng.integers(0, shape.n_keys, n), rng.integers(0, 16_000, n) / 16.0
        folder = tempfile.TemporaryDirectory(prefix="penstock-bench-")
        where = Path(folder.name) / "rows"
        where.mkdir()
        for number in range(shape.n_files):
            part = slice(number * shape.batch, (number + 1) * shape.batch)
            stamps = pa.array(times[part], pa.timestamp("us", "UTC"))
            table = pa.table({"ts": stamps, "key": keys[part], "value": values[part]})
            file = where / f"{number:05d}.parquet"
            pq.write_table(table, file)
            os.utime(file, (number, number))  # Spark takes the oldest first
        return cls(shape, folder, times, keys, values)

    @property
    def path(self) -> Path:
        """Return the folder of the files."""
        return Path(self.folder.name) / "rows"

    def first(self, n_files: int) -> Rows:
        """Return the rows of the first files."""
        n = n_files * self.shape.batch
        shape = replace(self.shape, n_files=n_files)
        return Rows(shape, self.folder, self.times[:n], self.keys[:n], self.values[:n])

    def link_first(self, n_files: int) -> Path:
        """Return a folder with the first files only."""
        folder = self.new_folder()
        for file in sorted(self.path.iterdir())[:n_files]:
            os.link(file, folder / file.name)
        return folder

    def new_folder(self) -> Path:
        """Return an empty folder for one run's output and checkpoint."""
        return Path(tempfile.mkdtemp(dir=self.folder.name))


Answer = dict[tuple[int, int], tuple[float, int]]


def compute_answer(rows: Rows) -> Answer:
    """Return (window start, key) -> (sum, count) of the windows that the last watermark closes."""
    shape, watermark = rows.shape, int(rows.times.max()) - DELAY
    windows: Answer = {}
    names, places = np.unique(rows.keys, return_inverse=True)
    panes = rows.times // shape.every
    low, n_keys = int(panes.min()), len(names)
    flat = (panes - low) * n_keys + places
    n_panes, per_window = int(panes.max()) - low + 1, shape.size // shape.every
    sums = np.bincount(flat, rows.values, minlength=n_panes * n_keys).reshape(n_panes, -1)
    counts = np.bincount(flat, minlength=n_panes * n_keys).reshape(n_panes, -1)
    nothing = np.zeros((per_window, n_keys))
    up_sums = np.cumsum(np.concatenate([nothing, sums, nothing]), axis=0)
    up_counts = np.cumsum(np.concatenate([nothing, counts, nothing]), axis=0)
    for window in range(n_panes + per_window - 1):
        start = (low - per_window + 1 + window) * shape.every
        if start + shape.size > watermark:
            break
        total = up_sums[window + per_window] - up_sums[window]
        rows_in = up_counts[window + per_window] - up_counts[window]
        there = np.flatnonzero(rows_in)
        answers = zip(total[there].tolist(), rows_in[there].astype(int).tolist(), strict=True)
        windows |= {(start, key): answer for key, answer in zip(names[there].tolist(), answers, strict=True)}
    return windows


def count_windows(windows: Answer) -> tuple[int, int, float]:
    """Return the number of windows, and the sums of their counts and of their sums."""
    return (
        len(windows),
        sum(n for _, n in windows.values()),
        sum(total for total, _ in windows.values()),
    )


def check_answer(expected: Any, answer: Any) -> str | None:
    """Return how the windows differ from the expected ones, or None."""
    windows = answer() if callable(answer) else answer  # read outside of the clock
    if not isinstance(expected, dict):
        return None if expected == windows else f"expected {expected}, got {windows}"
    if windows.keys() != expected.keys():
        return f"expected {len(expected):,} windows, got {len(windows):,}, not the same"
    off = [key for key, value in expected.items() if windows[key] != value]
    return f"{len(off):,} windows differ, the first is {off[0]}" if off else None


def read_answer(folder: Path, start: str) -> Answer:
    """Read the windows that a run wrote; `start` names the column of their starts."""
    table = pq.read_table(folder)
    starts = table.column(start).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    keys = table.column("key").to_numpy()
    totals, counts = table.column("total").to_numpy(), table.column("n").to_numpy()
    pairs = zip(starts.tolist(), keys.tolist(), totals.tolist(), counts.tolist(), strict=True)
    return {(at, key): (total, n) for at, key, total, n in pairs}
