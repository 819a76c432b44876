"""Blocks of kept rows against a plain list of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.accumulate import INT64_MIN
from penstock.stages.rows.input import InputRows, Values
from penstock.stages.rows.store import (
    RowBlocks,
    concat_rows,
    rows_before,
    rows_from_snapshot,
    rows_of_slots,
    rows_to_snapshot,
)
from tests.support.window_rounds import Row, input_rows

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=10)
STEPS = st.lists(st.tuples(ROWS, st.integers(0, 30), st.sets(st.integers(0, 3))), max_size=12)


def numbers(rows: InputRows | None) -> list[int]:
    return [] if rows is None else sorted(rows.values[0].data.tolist())


@pytest.mark.slow
@given(STEPS)
@settings(deadline=None, derandomize=True)
def test_rows_come_out_once_by_time_and_slot(
    steps: list[tuple[list[tuple[int, int]], int, set[int]]],
) -> None:
    blocks, rows = RowBlocks(), list[Row]()
    n = 0
    for pairs, below, slots in steps:
        new = [Row(n + place, slot, time) for place, (slot, time) in enumerate(pairs)]
        n += len(new)
        blocks.add(input_rows(new))
        rows += new
        where = rows_of_slots(np.array(sorted(slots), np.int64))
        expected = sorted(row.number for row in rows if row.time < below and row.slot in slots)
        assert numbers(blocks.find(where, below=below)) == expected
        assert numbers(blocks.pull(where, below=below)) == expected
        rows = [row for row in rows if row.number not in expected]
        assert len(blocks) == len(rows)
        held = {row.slot for row in rows}
        assert blocks.holds(np.arange(5)).tolist() == [slot in held for slot in range(5)]
        assert numbers(blocks.find()) == sorted(row.number for row in rows)


def test_rows_before_a_time_of_their_slot_are_found() -> None:
    blocks = RowBlocks()
    blocks.add(input_rows([Row(0, 0, 5), Row(1, 1, 5), Row(2, 1, 9), Row(3, 2, 1), Row(4, 7, 1)]))
    assert numbers(blocks.find(rows_before(np.array([1, 2, 1]), np.array([4, 1, 8])))) == [1]


@pytest.mark.slow
def test_many_small_batches_make_few_blocks_and_taken_rows_are_given_back() -> None:
    blocks = RowBlocks()
    for number in range(3_000):
        blocks.add(input_rows([Row(number, 0, number)]))
    held = blocks.nbytes
    assert len(blocks._blocks) < 20
    blocks.pull(below=2_900)
    assert blocks.nbytes < held / 10


def test_a_missing_part_of_the_order_comes_before_any_there_is() -> None:
    one, two = np.array([1]), np.array([2])
    parts = [InputRows(one, one, (one,)), InputRows(two, two, (two, two))]
    assert [column.tolist() for column in concat_rows(parts).order] == [[1, 2], [INT64_MIN, 2]]


def test_rows_are_the_same_after_they_were_saved_and_loaded() -> None:
    rows = InputRows(
        np.array([4, 9, 4]),
        np.array([1, 2, 3]),
        (np.array([7, 8, 9]),),
        (Values(np.array([1, 2, 3])), Values(np.array([0.5, 0.0, np.nan]), np.array([True, False, True]))),
        pa.RecordBatch.from_pydict({"place": ["a", None, "c"], "time": [1, 2, 3]}),
        np.array([-1, 5, 6]),
    )
    loaded = rows_from_snapshot(rows_to_snapshot(rows, np.array([9, 4])), np.array([0, 1]))
    assert loaded is not None
    assert loaded.slots.tolist() == [1, 0, 1]
    assert loaded.times.tolist() == [1, 2, 3]
    assert [column.tolist() for column in loaded.order] == [[7, 8, 9]]
    assert loaded.values[0].data.tolist() == [1, 2, 3]
    assert loaded.values[0].valid is None
    assert loaded.values[1].valid is not None
    assert loaded.values[1].valid.tolist() == [True, False, True]
    assert np.isnan(loaded.values[1].data[2])
    assert loaded.rows == rows.rows
    assert loaded.tags is not None
    assert loaded.tags.tolist() == [-1, 5, 6]


def test_no_rows_are_saved_as_no_rows() -> None:
    assert rows_from_snapshot(rows_to_snapshot(None, np.array([1])), np.array([1])) is None
