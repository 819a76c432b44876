"""The index of a joined table finds the rows that a dict finds, by any of its tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.stages import policy
from penstock.stages.rows.batch import Batch, Selection
from penstock.stages.table_join import NO_MATCH, TableColumn, TableIndex

TYPES = st.sampled_from([pa.int8(), pa.int64(), pa.timestamp("us"), pa.date32()])
NUMBERS = st.none() | st.integers(-128, 127)


@pytest.fixture(params=["dict", "table"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "table":
        monkeypatch.setattr(policy, "SIZES", policy.SizePolicy(hash_batch_rows=0))


def batch_of(**columns: pa.Array) -> Batch:
    rows = pa.RecordBatch.from_pydict(columns)
    return Batch(rows, np.zeros(rows.num_rows, np.int64))


def expected_rows(keys: Sequence[object], wanted: Sequence[object]) -> list[int]:
    by_dict = {key: row for row, key in enumerate(keys) if key is not None}
    return [by_dict.get(key, NO_MATCH) if key is not None else NO_MATCH for key in wanted]


@pytest.mark.slow
@pytest.mark.usefixtures("_size")
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TYPES, st.lists(NUMBERS, min_size=1, unique=True), st.lists(NUMBERS))
def test_numbers_are_found_as_a_dict_finds_them(
    type_: pa.DataType, keys: list[int | None], wanted: list[int | None]
) -> None:
    index = TableIndex({"k": pa.array(keys, type_)})
    for _ in range(2):  # what was not found leaves nothing behind
        assert index.find(batch_of(k=pa.array(wanted, type_))).tolist() == expected_rows(keys, wanted)


@pytest.mark.usefixtures("_size")
def test_a_key_of_two_columns_matches_only_where_both_do_and_neither_is_null() -> None:
    index = TableIndex({"a": pa.array([1, 1, None, 2]), "b": pa.array(["x", "y", "x", None])})
    batch = batch_of(a=pa.array([1, None, 2, 1, 2]), b=pa.array(["y", "x", None, "x", "y"]))
    assert index.find(batch).tolist() == [1, NO_MATCH, NO_MATCH, 0, NO_MATCH]


@pytest.mark.usefixtures("_size")
@pytest.mark.parametrize("far", [-(2**63), 2**63 - 1])
def test_a_key_at_the_end_of_int64_is_not_found_and_does_not_wrap(far: int) -> None:
    index = TableIndex({"k": pa.array([-1, 0, 1])})
    assert index.find(batch_of(k=pa.array([far, 0]))).tolist() == [NO_MATCH, 1]


@pytest.mark.usefixtures("_size")
def test_strings_that_were_selected_are_found_where_they_are() -> None:
    index = TableIndex({"k": pa.array(["b", None, "a"])})
    batch = batch_of(k=pa.array(["a", "x", None, "b", "a"]))
    assert index.find(batch).tolist() == [2, NO_MATCH, NO_MATCH, 0, 2]
    assert index.find(batch.take(np.array([3, 1, 0]))).tolist() == [0, NO_MATCH, 2]


def test_a_table_without_keys_matches_nothing() -> None:
    index = TableIndex({"k": pa.array([None, None], pa.int64())})
    assert index.find(batch_of(k=pa.array([1, None]))).tolist() == [NO_MATCH, NO_MATCH]


@pytest.mark.parametrize(
    "values", [["x", "y", "x", "x"], [1, 2, 3, 4], [True, False, None, True], [1.0, -0.0, 0.0, 1.0]]
)
def test_a_column_of_the_table_is_itself_whether_its_values_are_kept_once_or_not(
    values: list[object],
) -> None:
    column = pa.array(values)
    rows, selection = TableColumn("a", column).at(Selection(3, lambda: np.array([3, 1, 1])))
    assert selection is not None
    assert rows.column("a").take(selection.arrow).equals(column.take(pa.array([3, 1, 1])))
