"""Cuts: batches of rows and of files."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.connect.batches import RowRange, batch_by_files, batch_by_rows, check_size
from penstock.connect.protocol import BadRow
from penstock.errors import ConnectorError

SCHEMA = pa.schema([("n", pa.int64())])


def pieces(flags: list[list[bool]]) -> list[RowRange]:
    """One piece per list; row number i holds the value i, and False marks a bad row."""
    made, start = [], 0
    for each in flags:
        good = [start + i for i, fine in enumerate(each) if fine]
        bad = tuple((start + i, BadRow(str(start + i), "bad", "")) for i, fine in enumerate(each) if not fine)
        rows = pa.RecordBatch.from_arrays([pa.array(good, pa.int64())], schema=SCHEMA)
        made.append(RowRange(rows, np.array(good, np.int64), bad, start, start + len(each)))
        start += len(each)
    return made


@settings(deadline=None)
@given(st.lists(st.lists(st.booleans(), max_size=7), max_size=6), st.integers(1, 9))
def test_a_cut_by_rows_depends_on_row_numbers_alone(flags: list[list[bool]], size: int) -> None:
    flat = [fine for each in flags for fine in each]
    expected = [
        (
            [i for i in range(start, min(start + size, len(flat))) if flat[i]],
            [str(i) for i in range(start, min(start + size, len(flat))) if not flat[i]],
        )
        for start in range(0, len(flat), size)
    ]
    found = list(batch_by_rows(pieces(flags), SCHEMA, size))
    assert [(b.rows.column(0).to_pylist(), [bad.raw for bad in b.bad]) for b in found] == expected
    assert [b.seq.to_pylist() for b in found if b.seq is not None] == [good for good, _ in expected]


def test_a_cut_by_files_counts_files_without_rows() -> None:
    one, two, three = pieces([[True, True], [True], [False, True]])
    found = batch_by_files([one, two, None, None, None, three, None], SCHEMA, 2)
    assert [b.rows.column(0).to_pylist() for b in found] == [[0, 1, 2], [4]]


def test_two_files_with_no_rows_at_all_are_a_batch_without_rows() -> None:
    assert [b.rows.num_rows for b in batch_by_files([None, None], SCHEMA, 2)] == [0]


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "10"])
def test_a_size_that_is_no_whole_number_above_zero_is_refused(size: object) -> None:
    with pytest.raises(ConnectorError, match="is not a number of rows or files"):
        check_size("batch", size)
