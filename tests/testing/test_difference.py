"""Whether two tables hold the same rows: in any order, floats within the promised error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.testing import difference
from penstock.testing.strategies import values

fixed = settings(deadline=None, derandomize=True)


def table(rows: list[tuple[Any, ...]], *types: pa.DataType) -> pa.Table:
    """Rows as a table with columns a, b, ..."""
    names = "abcdef"[: len(types)]
    schema = pa.schema(list(zip(names, types, strict=True)))
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=schema)


INT, FLOAT, TEXT = pa.int64(), pa.float64(), pa.string()


def test_order_does_not_matter_and_how_often_a_row_comes_does() -> None:
    assert difference(table([(1,), (2,)], INT), table([(2,), (1,)], INT)) is None
    assert (
        difference(table([(1,), (1,), (2,)], INT), table([(1,), (2,), (2,)], INT)) == "{'a': 1}\n/ {'a': 2}"
    )


def test_the_row_that_differs_is_shown_on_both_sides() -> None:
    ours, theirs = table([("x", 1.0), ("y", 2.0)], TEXT, FLOAT), table([("x", 1.0), ("y", 2.5)], TEXT, FLOAT)
    assert difference(ours, theirs) == "{'a': 'y', 'b': 2.0}\n/ {'a': 'y', 'b': 2.5}"


def test_a_missing_row_is_shown() -> None:
    ours, theirs = table([("x", 1), ("y", 2)], TEXT, INT), table([("x", 1)], TEXT, INT)
    assert difference(ours, theirs) == "2 rows / 1 rows\n{'a': 'y', 'b': 2}\n/ no such row"
    assert difference(theirs, ours) == "1 rows / 2 rows\nno such row\n/ {'a': 'y', 'b': 2}"


def test_columns_and_types_are_compared_first() -> None:
    report = difference(table([(1,)], INT), table([(1.0,)], FLOAT))
    assert report == "schemas differ: a: int64 / a: double"


def test_floats_may_differ_in_the_last_digits_and_no_more() -> None:
    assert difference(table([(0.1 + 0.2,)], FLOAT), table([(0.3,)], FLOAT)) is None
    assert difference(table([(1.0,)], FLOAT), table([(1.00001,)], FLOAT)) is not None
    assert difference(table([(0.0,)], FLOAT), table([(-0.0,)], FLOAT)) is None
    assert difference(table([(float("nan"),)], FLOAT), table([(float("nan"),)], FLOAT)) is None
    assert difference(table([(float("nan"),)], FLOAT), table([(None,)], FLOAT)) is not None
    assert difference(table([(float("inf"),)], FLOAT), table([(1e308,)], FLOAT)) is not None


def test_rounding_cannot_make_rows_miss_their_partners() -> None:
    low, high = 1.00000049999999999, 1.0000005000000001
    ours = table([(low, 1.0), (high, 2.0)], FLOAT, FLOAT)
    theirs = table([(high, 1.0), (low, 2.0)], FLOAT, FLOAT)
    assert difference(ours, theirs) is None


def test_floats_inside_lists_and_structs_are_compared_as_floats() -> None:
    listed = pa.list_(FLOAT)
    assert difference(table([([0.1 + 0.2],)], listed), table([([0.3],)], listed)) is None
    assert difference(table([([1.0, 2.0],)], listed), table([([1.0],)], listed)) is not None
    struct = pa.struct([("value", FLOAT), ("count", INT)])
    ours, other = {"value": 0.1 + 0.2, "count": 1}, {"value": 0.3, "count": 1}
    assert difference(table([(ours,)], struct), table([(other,)], struct)) is None


def test_approximate_columns_may_differ_by_a_share() -> None:
    ours, theirs = table([("x", 1_000)], TEXT, INT), table([("x", 1_020)], TEXT, INT)
    assert difference(ours, theirs) is not None
    assert difference(ours, theirs, approximate=["b"]) is None
    assert difference(ours, theirs, approximate=["b"], rel=0.01) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "type_", [INT, FLOAT, TEXT, pa.bool_(), pa.binary(), pa.timestamp("us"), pa.list_(FLOAT)]
)
def test_a_table_equals_itself_in_any_order(type_: pa.DataType) -> None:
    @fixed
    @given(st.lists(st.tuples(values(type_), values(INT)), max_size=8), st.randoms(use_true_random=False))
    def holds(rows: list[tuple[Any, ...]], random: Any) -> None:
        shuffled = list(rows)
        random.shuffle(shuffled)
        assert difference(table(rows, type_, INT), table(shuffled, type_, INT)) is None
        if rows:
            assert difference(table(rows, type_, INT), table(rows[1:], type_, INT)) is not None

    holds()
