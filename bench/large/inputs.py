"""Large parquet inputs, written in bounded memory, and the totals that every program must arrive at.

Rows come in blocks; a block depends on the seed and its number alone, so the layouts (one file, some, many)
hold the same rows. Values are whole sixteenths and are totalled as integers, so that sums are exact. The
payload is random bytes, which do not compress. Times are up to a second out of order, over ten minutes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
SPAN_S = 600
N_KEYS, VALUES_16 = 1_000, 16_000
"""Keys, and values in sixteenths: of the sixteen million pairs, twenty million rows have more than ten."""
PAYLOAD = 40
ROW_BYTES = 8 + 2 + 3 + PAYLOAD
"""Bytes of a row in a file, roughly: numbers compress."""
SIZE_S, EVERY_S = 60, 10
LIMIT_16 = 4_000
"""The filter keeps values below a quarter of their range, in sixteenths."""
GROUP_ROWS = 1_000_000
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")),
        ("key", pa.int64()),
        ("value", pa.float64()),
        ("payload", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How many rows there are, in how many files, in blocks that all layouts share."""

    n_rows: int
    n_files: int
    n_blocks: int
    seed: int

    def __post_init__(self) -> None:
        assert self.n_rows % self.n_blocks == 0, "all blocks have equally many rows"
        assert self.n_blocks % self.n_files == 0, "all files have equally many blocks"

    @property
    def block_rows(self) -> int:
        """Return the number of rows of a block."""
        return self.n_rows // self.n_blocks


@dataclass(frozen=True, slots=True)
class Totals:
    """What the output of the programs must add up to; sums are in sixteenths.

    rows, total               of the input
    selected, selected_total  of the rows that pass the filter
    windows                   windows with rows, of all keys
    ranks                     sum over all rows of how many of its key came up to it, itself included
    pairs, pair_ranks         pairs of key and value, and the ranks of rows by them
    """

    rows: int
    total: int
    selected: int
    selected_total: int
    windows: int
    ranks: int
    pairs: int
    pair_ranks: int


@dataclass(frozen=True, slots=True)
class Block:
    """The numbers of a block, without its payload."""

    times: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]
    values_16: npt.NDArray[np.int64]

    def to_batch(self, payload: bytes) -> pa.RecordBatch:
        """Return the block as rows."""
        n = len(self.times)
        offsets = np.arange(n + 1, dtype=np.int32) * PAYLOAD
        column = pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(payload)])
        times = pa.array(self.times, pa.timestamp("us", "UTC"))
        return pa.record_batch([times, self.keys, self.values_16 / 16.0, column], schema=SCHEMA)


def draw_block(shape: Shape, number: int) -> tuple[Block, bytes]:
    """Draw a block of rows, and its payload."""
    chance = np.random.default_rng([shape.seed, number])
    n = shape.block_rows
    arrival = np.arange(number * n, (number + 1) * n, dtype=np.int64) * (SPAN_S * SECOND) // shape.n_rows
    times = BEGIN + arrival - chance.integers(0, SECOND, n)
    block = Block(times, chance.integers(0, N_KEYS, n), chance.integers(0, VALUES_16, n))
    return block, chance.bytes(n * PAYLOAD)


def write_input(shape: Shape, folder: Path) -> Totals:
    """Write the files of a layout and return its totals; files that are there already are kept."""
    expected = {"shape": asdict(shape), "schema": str(SCHEMA)}
    record = folder / "_totals.json"
    if record.exists():
        known = json.loads(record.read_text(encoding="utf-8"))
        if known.pop("totals", None) and known == expected:
            return Totals(**json.loads(record.read_text(encoding="utf-8"))["totals"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    counter = _Counter(shape)
    per_file = shape.n_blocks // shape.n_files
    for number in range(shape.n_files):
        file = folder / f"{number:06d}.parquet"
        _write_file(file, shape, range(number * per_file, (number + 1) * per_file), counter)
        # Why: readers take files by this time, and some know it to the second only.
        os.utime(file, (BEGIN // SECOND + number, BEGIN // SECOND + number))
    totals = counter.totals()
    record.write_text(json.dumps({**expected, "totals": asdict(totals)}), encoding="utf-8")
    return totals


def _write_file(file: Path, shape: Shape, numbers: range, counter: _Counter) -> None:
    """Write blocks to a file, in row groups of a million rows at most."""
    packed = dict.fromkeys(["ts", "key", "value"], "zstd") | {"payload": "none"}
    with pq.ParquetWriter(file, SCHEMA, compression=packed, use_dictionary=["key"]) as writer:
        for group in _group_blocks(shape, numbers):
            batches = []
            for number in group:
                block, payload = draw_block(shape, number)
                counter.add(block)
                batches.append(block.to_batch(payload))
            writer.write_table(pa.Table.from_batches(batches), row_group_size=GROUP_ROWS)


def _group_blocks(shape: Shape, numbers: range) -> Iterator[range]:
    step = max(GROUP_ROWS // shape.block_rows, 1)
    for start in range(numbers.start, numbers.stop, step):
        yield range(start, min(start + step, numbers.stop))


class _Counter:
    """Counts what the totals need, block by block."""

    def __init__(self, shape: Shape) -> None:
        self._rows = self._total = self._selected = self._selected_total = 0
        self._per_key = np.zeros(N_KEYS, np.int64)
        self._per_pair = np.zeros(N_KEYS * VALUES_16, np.int32)
        # A second before the first arrival to the last, in slices of the windows.
        self._first = (BEGIN - SECOND) // (EVERY_S * SECOND)
        n_slices = (BEGIN + SPAN_S * SECOND) // (EVERY_S * SECOND) - self._first + 1
        self._there = np.zeros((n_slices, N_KEYS), bool)

    def add(self, block: Block) -> None:
        """Count a block."""
        selected = block.values_16 < LIMIT_16
        self._rows += len(selected)
        self._total += int(block.values_16.sum())
        self._selected += int(selected.sum())
        self._selected_total += int(block.values_16[selected].sum())
        self._per_key += np.bincount(block.keys, minlength=N_KEYS)
        np.add.at(self._per_pair, block.keys * VALUES_16 + block.values_16, 1)
        self._there[block.times // (EVERY_S * SECOND) - self._first, block.keys] = True

    def totals(self) -> Totals:
        """Return the totals of all blocks."""
        pairs = self._per_pair[self._per_pair > 0].astype(np.int64)
        ranks, pair_ranks = (int((n * (n + 1) // 2).sum()) for n in (self._per_key, pairs))
        n_windows, n_pairs = self._count_windows(), len(pairs)
        return Totals(
            self._rows,
            self._total,
            self._selected,
            self._selected_total,
            n_windows,
            ranks,
            n_pairs,
            pair_ranks,
        )

    def _count_windows(self) -> int:
        n = SIZE_S // EVERY_S
        padded = np.pad(self._there, ((n - 1, n - 1), (0, 0)))
        windows = range(len(padded) - n + 1)
        return sum(int(padded[start : start + n].any(axis=0).sum()) for start in windows)
