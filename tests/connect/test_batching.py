"""Cuts: batches of rows and of files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import read
from penstock.connect.batching import RowRange, batch_by_rows, check_size
from penstock.connect.protocol import BadRow
from penstock.errors import ConnectorError

SCHEMA = pa.schema([("n", pa.int64())])


def row_ranges(flags: list[list[bool]]) -> list[RowRange]:
    """Returns one range per list; row number i holds the value i, and False marks a bad row."""
    ranges, start = [], 0
    for fine_rows in flags:
        good = [start + i for i, fine in enumerate(fine_rows) if fine]
        bad = tuple(
            (start + i, BadRow(str(start + i), "bad", "")) for i, fine in enumerate(fine_rows) if not fine
        )
        rows = pa.RecordBatch.from_arrays([pa.array(good, pa.int64())], schema=SCHEMA)
        ranges.append(RowRange(rows, np.array(good, np.int64), bad, start, start + len(fine_rows)))
        start += len(fine_rows)
    return ranges


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=7), max_size=6), st.integers(1, 9))
def test_a_cut_by_rows_depends_on_row_numbers_alone(flags: list[list[bool]], size: int) -> None:
    flat = [fine for rows in flags for fine in rows]
    expected = [
        (
            [i for i in range(start, min(start + size, len(flat))) if flat[i]],
            [str(i) for i in range(start, min(start + size, len(flat))) if not flat[i]],
        )
        for start in range(0, len(flat), size)
    ]
    batches = list(batch_by_rows(row_ranges(flags), SCHEMA, size))
    assert [(b.rows.column(0).to_pylist(), [bad.raw for bad in b.bad]) for b in batches] == expected
    assert [b.seq.to_pylist() for b in batches if b.seq is not None] == [good for good, _ in expected]


def test_files_without_rows_count_in_batches_of_files(tmp_path: Path) -> None:
    for n, text in enumerate(["0\n1\n", "", "", "2\n"]):
        (tmp_path / f"{n}.txt").write_text(text)
        os.utime(tmp_path / f"{n}.txt", ns=(n, n))
    batches = read.text(tmp_path, files=2).batches()
    assert [batch.rows.column(0).to_pylist() for batch in batches] == [["0", "1"], ["2"]]


def test_two_files_without_rows_are_a_batch_without_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    (tmp_path / "b.txt").touch()
    assert [batch.num_rows for batch in read.text(tmp_path, files=2).batches()] == [0]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "10"])
def test_a_size_that_is_no_whole_number_above_zero_is_refused(size: object) -> None:
    with pytest.raises(ConnectorError, match="is not a number of rows or files"):
        check_size("batch", size)
