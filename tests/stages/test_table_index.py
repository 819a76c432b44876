"""The two indexes of a joined table find the same rows, and the rows that a dict finds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages.rows.batch import Selection
from penstock.stages.table_join import (
    DENSE_RANGE,
    NO_MATCH,
    DenseIndex,
    TableColumn,
    TableIndex,
    TextLookup,
    build_index,
)

TYPES = st.sampled_from([pa.int8(), pa.int64(), pa.timestamp("us"), pa.date32()])
NUMBERS = st.none() | st.integers(-128, 127)


@pytest.mark.slow
@settings(deadline=None)
@given(TYPES, st.lists(NUMBERS, min_size=1, unique=True), st.lists(NUMBERS))
def test_both_indexes_find_what_a_dict_finds(
    type_: pa.DataType, keys: list[int | None], asked: list[int | None]
) -> None:
    table, column = (pa.array(each, type_) for each in (keys, asked))
    by_dict = {key: row for row, key in enumerate(keys) if key is not None}
    expected = [by_dict.get(key, NO_MATCH) if key is not None else NO_MATCH for key in asked]
    assert build_index([table]).find([column]).tolist() == expected
    assert TableIndex([table]).find([column]).tolist() == expected


def test_numbers_near_one_another_are_found_by_distance_texts_where_they_lie_and_others_by_slots() -> None:
    assert isinstance(build_index([pa.array([5, 5 + DENSE_RANGE - 1])]), DenseIndex)
    assert isinstance(build_index([pa.array([5, 5 + DENSE_RANGE])]), TableIndex)
    assert isinstance(build_index([pa.array(["a"])]), TextLookup)
    assert isinstance(build_index([pa.array([b"a"])]), TextLookup)
    assert isinstance(build_index([pa.array(["a"]), pa.array(["a"])]), TableIndex)
    assert isinstance(build_index([pa.array([None], pa.int64())]), TableIndex)
    assert isinstance(build_index([pa.array([1]), pa.array([1])]), TableIndex)


@pytest.mark.parametrize("far", [-(2**63), 2**63 - 1])
def test_a_key_at_the_end_of_int64_is_not_found_and_does_not_wrap(far: int) -> None:
    index = build_index([pa.array([-1, 0, 1])])
    assert index.find([pa.array([far, 0])]).tolist() == [NO_MATCH, 1]


@pytest.mark.parametrize(
    "values", [["x", "y", "x", "x"], [1, 2, 3, 4], [True, False, None, True], [1.0, -0.0, 0.0, 1.0]]
)
def test_a_column_of_the_table_is_itself_whether_its_values_are_kept_once_or_not(
    values: list[object],
) -> None:
    column = pa.array(values)
    rows, pick = TableColumn("a", column).at(Selection.from_indices(np.array([3, 1, 1])))
    assert pick is not None
    assert rows.column("a").take(pick.arrow).equals(column.take(pa.array([3, 1, 1])))
