"""Values in their forms; arrays by way of their buffers are what Arrow itself makes of the same values."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RowFailure, SchemaError
from penstock.expr import from_plain, from_python, to_plain, to_python
from penstock.expr.values import from_list, from_numpy, to_numpy, valid_in
from tests.support.evaluation import same
from tests.support.expressions import TYPES, columns

TIME, ZONED = pa.timestamp("us"), pa.timestamp("us", "Europe/Berlin")
DAY = 86_400_000_000


@settings(deadline=None)
@given(data=st.data())
def test_plain_values_survive_the_way_through_arrow(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TYPES)))
    values, type = data.draw(columns((name,)))[name]
    array = from_plain(values, type)
    assert array.type == type
    assert all(same(a, b) for a, b in zip(values, to_plain(array), strict=True))


@pytest.mark.parametrize(
    ("value", "type"),
    [
        (1.0, pa.int64()),
        (True, pa.int64()),
        (1, pa.float64()),
        (1, pa.bool_()),
        (128, pa.int8()),
        (1 << 63, TIME),
        (1e300, pa.float32()),
        ("x", pa.binary()),
        (b"x", pa.string()),
        ("\ud800", pa.string()),
        (Decimal("1.234"), pa.decimal128(5, 2)),
        (Decimal("12345"), pa.decimal128(5, 2)),
        (Decimal("NaN"), pa.decimal128(5, 2)),
        (Decimal("Infinity"), pa.decimal128(5, 2)),
        ({"y": 1}, pa.struct({"x": pa.int64()})),
        (datetime(2024, 1, 1), TIME),
    ],
)
def test_a_value_that_does_not_fit_is_named(value: object, type: pa.DataType) -> None:
    with pytest.raises(SchemaError) as caught:
        from_plain([None, value], type)
    assert repr(value)[:5] in caught.value.fact or str(value)[:5] in caught.value.fact
    assert caught.value.hint


def test_the_item_of_a_list_that_does_not_fit_is_named() -> None:
    with pytest.raises(SchemaError, match=r"float 1\.5 does not fit the type int64"):
        from_plain([[1, 1.5]], pa.list_(pa.int64()))


def test_users_see_times_as_python_has_them() -> None:
    assert to_python(DAY, TIME) == datetime(1970, 1, 2)
    assert to_python(DAY, ZONED) == datetime(1970, 1, 2, tzinfo=UTC)
    assert to_python(-1, pa.date32()) == date(1969, 12, 31)
    assert to_python(None, TIME) is None
    assert to_python([DAY, None], pa.list_(TIME)) == [datetime(1970, 1, 2), None]
    assert to_python({"d": 1}, pa.struct({"d": pa.date32()})) == {"d": date(1970, 1, 2)}
    assert to_python(5, pa.int64()) == 5


def test_a_time_that_python_cannot_show_fails_the_row() -> None:
    for value, type in ((1 << 62, TIME), (2_932_897, pa.date32())):
        with pytest.raises(RowFailure, match="outside the years 1 to 9999"):
            to_python(value, type)


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        (None, pa.int8(), None),
        (np.datetime64("NaT"), TIME, None),
        (np.int64(5), pa.int8(), 5),
        (np.float32(0.5), pa.float64(), 0.5),
        (np.bool_(True), pa.bool_(), True),
        (3, pa.float64(), 3.0),
        (np.str_("x"), pa.string(), "x"),
        (datetime(1970, 1, 2), TIME, DAY),
        (datetime(1970, 1, 2), ZONED, DAY),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), TIME, 0),
        (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))), ZONED, -62135596800000000 - 3_600_000_000),
        (np.datetime64(-1, "ns"), TIME, -1),
        (np.datetime64("1970-01-02", "D"), pa.date32(), 1),
        (date(1970, 1, 2), pa.date32(), 1),
        (Decimal("1.5"), pa.decimal128(5, 2), Decimal("1.50")),
        ((1, 2.5), pa.list_(pa.float64()), [1.0, 2.5]),
        (np.array([1, 2]), pa.list_(pa.int64()), [1, 2]),
        ({"x": 1}, pa.struct({"x": pa.float64(), "y": pa.string()}), {"x": 1.0, "y": None}),
    ],
)
def test_what_users_give_becomes_plain(value: object, type: pa.DataType, expected: object) -> None:
    assert same(from_python(value, type), expected)


@pytest.mark.parametrize(
    ("value", "type", "reason"),
    [
        (1.0, pa.int64(), "float 1.0 does not fit the type int64"),
        (math.nan, pa.int64(), "does not fit"),
        (True, pa.int64(), "bool True does not fit the type int64"),
        (True, pa.float64(), "bool True does not fit the type float64"),
        (300, pa.int8(), "300 is out of range for int8"),
        (10**400, pa.float64(), "is out of range for float64"),
        ("x", pa.float64(), "str 'x' does not fit the type float64"),
        (1e39, pa.float32(), "1e\\+39 is out of range for float32"),
        (date(2024, 1, 1), TIME, "is not a datetime, and its column is timestamp"),
        (datetime(2024, 1, 1), pa.date32(), "is not a date, and its column is date"),
        (5, TIME, "int 5 is not a datetime"),
        ({"z": 1}, pa.struct({"x": pa.int64()}), "'z' is not a field of struct<x: int64>"),
        ([True], pa.list_(pa.int64()), "bool True"),
    ],
)
def test_what_does_not_fit_fails_the_row(value: object, type: pa.DataType, reason: str) -> None:
    with pytest.raises(RowFailure, match=reason):
        from_python(value, type)


OF_TYPE: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
    pa.timestamp("us"): st.integers(-(2**55), 2**55),
    pa.list_(pa.int64()): st.lists(st.integers(0, 9), max_size=3),
}
COLUMNS = st.sampled_from(list(OF_TYPE)).flatmap(
    lambda type_: st.tuples(st.just(type_), st.lists(st.none() | OF_TYPE[type_], max_size=20))
)
DTYPES = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.float32, np.float64, np.uint8]


def same_array(actual: pa.Array, expected: pa.Array) -> None:
    actual.validate(full=True)
    assert actual.type == expected.type
    assert repr(actual.to_pylist()) == repr(expected.to_pylist())  # -0.0 is not 0.0 here, and NaN is NaN


@pytest.mark.slow
@settings(deadline=None)
@given(COLUMNS)
def test_a_list_becomes_the_array_that_arrow_makes_of_it(column: tuple[pa.DataType, list[object]]) -> None:
    type_, values = column
    same_array(from_list(values, type_), pa.array(values, type_))


@pytest.mark.parametrize(
    ("values", "type_"),
    [([300], pa.int8()), ([2**63], pa.int64()), (["\ud800"], pa.string()), ([1], pa.string())],
)
def test_what_arrow_refuses_is_refused_by_arrow(values: list[object], type_: pa.DataType) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 (whichever it is)
        pa.array(values, type_)
    with pytest.raises(expected.type):
        from_list(values, type_)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None)
@given(
    values=st.lists(st.integers(0, 100), max_size=20),
    step=st.integers(1, 3),
    seed=st.none() | st.integers(0, 9),
)
def test_numpy_s_values_become_the_array_that_arrow_makes_of_them(
    dtype: type[np.generic], values: list[int], step: int, seed: int | None
) -> None:
    numbers = np.array(values).astype(dtype)[::step]
    mask = None if seed is None else np.random.default_rng(seed).integers(0, 2, len(numbers)).astype(bool)
    same_array(from_numpy(numbers, missing=mask), pa.array(numbers, mask=mask))


@pytest.mark.slow
@settings(deadline=None)
@given(COLUMNS, st.integers(0, 20))
def test_nulls_are_told_from_values_in_any_slice(
    column: tuple[pa.DataType, list[object]], start: int
) -> None:
    array = pa.array(column[1], column[0]).slice(start)
    assert valid_in(array).tolist() == [value is not None for value in array.to_pylist()]


def test_nulls_of_the_null_type_are_told_too() -> None:
    assert valid_in(pa.nulls(3)).tolist() == [False] * 3


@pytest.mark.slow
@settings(deadline=None)
@given(COLUMNS, st.integers(0, 20))
def test_values_come_back_from_any_slice(column: tuple[pa.DataType, list[object]], start: int) -> None:
    type_, values = column
    array = pa.array([value for value in values if value is not None], type_).slice(start)
    result, expected = to_numpy(array), array.to_numpy(zero_copy_only=False)
    assert result.dtype == expected.dtype
    assert repr(result.tolist()) == repr(expected.tolist())
