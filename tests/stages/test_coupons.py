"""Coupons of whole columns against the library, which makes them value by value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stages.sketches import CHUNK, hash_coupons


def by_library(value: Any) -> int:
    """The one coupon of a sketch of one value: it stands behind the eight bytes of the head."""
    builder = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
    builder.update(value)
    return int.from_bytes(builder.serialize_compact()[8:12], "little")


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_have_the_coupons_of_the_library(values: list[int]) -> None:
    assert hash_coupons(pa.array(values, pa.int64())).tolist() == [by_library(value) for value in values]


@given(st.lists(st.floats()))
def test_floats_have_the_coupons_of_the_library(values: list[float]) -> None:
    assert hash_coupons(pa.array(values, pa.float64())).tolist() == [by_library(value) for value in values]


@given(st.lists(st.text(min_size=1, max_size=70)))
def test_texts_of_any_length_have_the_coupons_of_the_library(values: list[str]) -> None:
    assert hash_coupons(pa.array(values, pa.string())).tolist() == [by_library(value) for value in values]


def test_more_values_than_are_hashed_at_a_time_have_their_coupons() -> None:
    values = range(CHUNK - 2, 2 * CHUNK + 3)
    expected = [by_library(value) for value in values]
    assert hash_coupons(pa.array(values)).tolist() == expected
    words = [str(value) for value in values]
    assert hash_coupons(pa.array(words)).tolist() == [by_library(word) for word in words]


def test_an_empty_text_is_a_value_of_its_own() -> None:
    coupons = hash_coupons(pa.array(["", "a", "", "\0"])).tolist()
    assert coupons[0] == coupons[2]
    assert len(set(coupons)) == 3


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.bool_(), [True, False]),
        (pa.int8(), [-1, 5]),
        (pa.float32(), [0.5, 1.5]),
        (pa.binary(), [b"", b"\xff" * 40]),
        (pa.date32(), [0, 19_000]),
        (pa.timestamp("us", "UTC"), [0, 1]),
        (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-1.50")]),
        (pa.decimal256(50, 0), [Decimal(10**45), Decimal(0)]),
    ],
    ids=str,
)
def test_equal_values_of_every_type_have_equal_coupons_wherever_they_stand(
    type_: pa.DataType, values: list[Any]
) -> None:
    one, other = values
    array = pa.array([None, one, other, one, None], type_)
    coupons = hash_coupons(array)
    assert coupons[1] == coupons[3] != coupons[2]
    assert np.array_equal(hash_coupons(array.slice(2, 2)), coupons[2:4])


def test_all_nans_are_one_value_and_so_are_both_zeros() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    coupons = hash_coupons(pa.array([float("nan"), *odd, 0.0, -0.0], from_pandas=False)).tolist()
    assert len(set(coupons[:3])) == 1
    assert coupons[3] == coupons[4] != coupons[0]


def test_no_values_have_no_coupons() -> None:
    assert hash_coupons(pa.array([], pa.string())).tolist() == []
    assert len(hash_coupons(pa.array([None, None], pa.string()))) == 2
