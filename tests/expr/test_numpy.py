"""Arrays by way of their buffers: always what Arrow itself makes of the same values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.expr.values import from_list, from_numpy, to_numpy, valid_in

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


def same(found: pa.Array, expected: pa.Array) -> None:
    found.validate(full=True)
    assert found.type == expected.type
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # -0.0 is not 0.0 here, and NaN is NaN


@pytest.mark.slow
@settings(deadline=None)
@given(COLUMNS)
def test_a_list_becomes_the_array_that_arrow_makes_of_it(column: tuple[pa.DataType, list[object]]) -> None:
    type_, values = column
    same(from_list(values, type_), pa.array(values, type_))


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
    same(from_numpy(numbers, missing=mask), pa.array(numbers, mask=mask))


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
    found, expected = to_numpy(array), array.to_numpy(zero_copy_only=False)
    assert found.dtype == expected.dtype
    assert repr(found.tolist()) == repr(expected.tolist())
