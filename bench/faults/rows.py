"""The rows that programs read, drawn by a seed; what their sinks show, as multisets, and how these differ.

Times are out of order and some are late. Values are whole sixteenths, so that sums are exact in any order.

An output folder is read as any reader would: all visible files below it, whatever they are called. Names that
begin with `.` or `_` are not data.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND
SCHEMA = {"ts": "int64", "key": "string", "value": "float64", "n": "int64"}
"""The columns of every input; `ts` is in microseconds."""

Rows = Counter[str]
"""A row as JSON text with sorted names -> how often it is there."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How many rows are missing, are there more often than they should, or should not be there at all."""

    lost: int = 0
    doubled: int = 0
    wrong: int = 0

    def __add__(self, other: Difference) -> Difference:
        return Difference(self.lost + other.lost, self.doubled + other.doubled, self.wrong + other.wrong)

    def __bool__(self) -> bool:
        return bool(self.lost or self.doubled or self.wrong)

    def __str__(self) -> str:
        return f"lost {self.lost:,}, doubled {self.doubled:,}, wrong {self.wrong:,}"


def compare_rows(expected: Rows, actual: Rows) -> Difference:
    """Compare two multisets of rows.

    >>> compare_rows(Counter("aab"), Counter("abbc"))
    Difference(lost=1, doubled=1, wrong=1)
    """
    more = actual - expected
    doubled = sum(n for row, n in more.items() if row in expected)
    return Difference((expected - actual).total(), doubled, more.total() - doubled)


def compare_sinks(expected: Mapping[str, Rows], actual: Mapping[str, Rows]) -> dict[str, Difference]:
    """Return the sinks that differ, and how."""
    names = dict.fromkeys([*expected, *actual])
    differences = {
        name: compare_rows(expected.get(name, Counter()), actual.get(name, Counter())) for name in names
    }
    return {name: difference for name, difference in differences.items() if difference}


Accounts = Mapping[str, Mapping[str, Any]]
"""Step -> its counts by name."""


def compare_accounts(expected: Accounts, actual: Accounts) -> list[str]:
    """Return the counts that differ, as `step.count: actual instead of expected`."""
    lines = []
    for step in dict.fromkeys([*expected, *actual]):
        right, ours = expected.get(step, {}), actual.get(step, {})
        lines += [
            f"{step}.{name}: {ours.get(name)} instead of {right.get(name)}"
            for name in dict.fromkeys([*right, *ours])
            if right.get(name) != ours.get(name)
        ]
    return lines


def read_sinks(folder: Path, formats: Mapping[str, str]) -> dict[str, Rows]:
    """Read the folder of every sink; `formats` has the format of each by name."""
    return {name: read_rows(folder / name, file_format) for name, file_format in formats.items()}


def read_rows(folder: Path, file_format: str) -> Rows:
    """Read all visible files of a folder and of the folders below it."""
    rows: Rows = Counter()
    for file in sorted(folder.rglob(f"*.{file_format}")):
        hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
        if not hidden and file.is_file():
            rows.update(json.dumps(row, sort_keys=True, default=str) for row in _READERS[file_format](file))
    return rows


def _read_parquet(file: Path) -> Iterator[dict[str, Any]]:
    # Why not read_table: it would take folders such as key=a/ for columns.
    yield from pq.ParquetFile(file).read().to_pylist()


def _read_csv(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _read_jsonl(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as stream:
        yield from map(json.loads, stream)


_READERS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    "parquet": _read_parquet,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
}


def write_files(
    folder: Path, format: str, seed: str, n_files: int, n_rows: int, *, damaged: bool = False
) -> None:
    """Draw rows and write them to files, all with distinct times of modification.

    damaged  whether some of the rows cannot be read, where the format lets that be
    """
    folder.mkdir(parents=True)
    rows = list(draw_rows(n_rows, Random(seed)))  # noqa: S311
    per_file = -(-len(rows) // n_files)
    for number in range(n_files):
        part = rows[number * per_file : (number + 1) * per_file]
        file = folder / f"{number:05d}.{format}"
        _WRITERS[format](file, part, damaged=damaged)
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def draw_rows(n: int, chance: Random) -> Iterator[dict[str, Any]]:
    """Yield rows over a minute, up to two seconds out of order, and one in a hundred far too late."""
    for number in range(n):
        late = (
            chance.randrange(5 * SECOND, 30 * SECOND)
            if chance.random() < 0.01
            else chance.randrange(2 * SECOND)
        )
        yield {
            "ts": BEGIN + number * 60 * SECOND // n - late,
            "key": f"k{chance.randrange(40)}",
            "value": chance.randrange(16_000) / 16.0,
            "n": number,
        }


def _write_parquet(file: Path, rows: list[dict[str, Any]], *, damaged: bool) -> None:
    schema = pa.schema([("ts", pa.int64()), ("key", pa.string()), ("value", pa.float64()), ("n", pa.int64())])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def _write_csv(file: Path, rows: list[dict[str, Any]], *, damaged: bool) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(SCHEMA))
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, "value": "no number"} if damaged and row["n"] % 97 == 5 else row)


def _write_jsonl(file: Path, rows: list[dict[str, Any]], *, damaged: bool) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


_WRITERS: dict[str, Callable[..., None]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "jsonl": _write_jsonl,
}
