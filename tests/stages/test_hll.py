"""HLL sketches as arrays against the library's own, byte for byte, and the laws of merging."""

from __future__ import annotations

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stages.sketches import MAX_COUPONS, HllSketch, hash_coupons

HLL_8 = datasketches.tgt_hll_type.HLL_8
SIZES = [0, 1, 7, 8, 9, 24, 25, 48, 96, 97, MAX_COUPONS, MAX_COUPONS + 1, 5_000]


def of(*values: int) -> HllSketch:
    return HllSketch.update(
        [None], np.zeros(len(values), np.int64), hash_coupons(pa.array(values, pa.int64()))
    )[0]


def by_library(n: int) -> datasketches.hll_sketch:
    """A sketch of 0 to n - 1 by one update per value; merged with itself, so that it estimates as ours."""
    builder, union = datasketches.hll_sketch(12, HLL_8), datasketches.hll_union(12)
    for value in range(n):
        builder.update(value)
    union.update(builder)
    union.update(builder)
    return union.get_result(HLL_8)


@pytest.mark.parametrize("n", SIZES)
def test_a_sketch_has_the_estimate_of_the_library(n: int) -> None:
    assert of(*range(n)).estimate() == round(by_library(n).get_estimate())


@pytest.mark.parametrize("n", SIZES)
def test_the_library_s_bytes_and_ours_are_of_the_same_sketch(n: int) -> None:
    theirs = by_library(n)
    ours = of(*range(n))
    assert np.array_equal(HllSketch.from_bytes(theirs.serialize_compact()).data, ours.data)
    assert np.array_equal(HllSketch.from_bytes(theirs.serialize_updatable()).data, ours.data)
    assert np.array_equal(HllSketch.from_bytes(ours.to_bytes()).data, ours.data)
    # The coupons of a hash table come in any order.
    assert sorted(ours.to_bytes()) == sorted(theirs.serialize_compact())


@pytest.mark.parametrize("n", range(0, MAX_COUPONS + 1, 48))
def test_few_values_are_counted_exactly(n: int) -> None:
    assert of(*range(n), *range(n)).estimate() == n


@pytest.mark.parametrize("n", [1_000, 20_000, 300_000])
def test_many_values_are_counted_within_five_percent(n: int) -> None:
    assert abs(of(*range(n)).estimate() - n) < 0.05 * n


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1_000)), max_size=20))
def test_parts_make_the_sketch_of_the_whole_however_they_were_cut(parts: list[tuple[int, int]]) -> None:
    #  A part is a stretch of up to 999 values, so that some sketches have gone over to registers.
    stretches = [range(500 * start, 500 * start + length) for start, length in parts]
    whole = of(*(value for stretch in stretches for value in stretch))
    merged = HllSketch.merge([of(*stretch) for stretch in stretches])
    assert np.array_equal(merged.data, whole.data)
    held: HllSketch | None = None
    for stretch in stretches:
        coupons = hash_coupons(pa.array(stretch, pa.int64()))
        (held,) = HllSketch.update([held], np.zeros(len(coupons), np.int64), coupons)
    assert held is None or np.array_equal(held.data, whole.data)


def test_each_group_gets_its_own_values() -> None:
    groups, values = np.array([2, 0, 2, 0]), hash_coupons(pa.array([1, 2, 3, 2]))
    result = HllSketch.update([None, of(9), of(1)], groups, values)
    assert [item.estimate() for item in result] == [1, 1, 2]
    assert np.array_equal(result[2].data, of(1, 3).data)


def test_memory_is_bounded_whatever_comes() -> None:
    assert of(*range(MAX_COUPONS)).nbytes <= 4 * MAX_COUPONS
    assert of(*range(100_000)).nbytes == 4_096
