"""Quantiles from KLL sketches: exact of few values, near of many; NaN greatest, nothing lost when merged."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stages.sketches import KLL_K, KllSketch

NUMBERS = st.one_of(st.floats(allow_nan=True), st.sampled_from([0.0, -0.0]))
SHARES = st.sampled_from([0.0, 0.07, 0.1, 0.5, 0.55, 0.9, 0.99, 1.0])


def of(values: list[float]) -> KllSketch:
    return KllSketch.update([None], np.zeros(len(values), np.int64), np.array(values, np.float64))[0]


def nearest_rank(values: list[float], q: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values, key=lambda value: (math.isnan(value), value))
    return ordered[max(1, math.ceil(Fraction(str(q)) * len(values))) - 1]


def same(actual: float | None, expected: float | None) -> bool:
    if actual is None or expected is None:
        return actual is expected
    return actual == expected or (math.isnan(actual) and math.isnan(expected))


@given(st.lists(NUMBERS, max_size=KLL_K), SHARES)
def test_of_few_values_the_quantile_is_the_nearest_rank(values: list[float], q: float) -> None:
    assert same(of(values).quantile(q), nearest_rank(values, q))


@given(st.lists(NUMBERS, max_size=100), st.lists(NUMBERS, max_size=100), SHARES)
def test_parts_of_few_values_make_the_whole(one: list[float], other: list[float], q: float) -> None:
    expected = nearest_rank(one + other, q)
    assert same(KllSketch.merge([of(one), of(other)]).quantile(q), expected)
    (more,) = KllSketch.update([of(one)], np.zeros(len(other), np.int64), np.array(other, np.float64))
    assert same(more.quantile(q), expected)
    assert same(KllSketch.from_bytes(more.to_bytes()).quantile(q), expected)


@pytest.mark.parametrize("q", [0.01, 0.25, 0.5, 0.9, 0.999])
def test_of_many_values_the_rank_is_near(q: float) -> None:
    parts = [of([float(value) for value in range(start, 100_000, 10)]) for start in range(10)]
    quantile = KllSketch.merge(parts).quantile(q)
    assert quantile is not None
    assert abs(quantile / 100_000 - q) < 0.03


def test_the_ends_are_exact_however_many_values_there_are() -> None:
    many = of([float(value) for value in range(50_000)])
    assert (many.quantile(0.0), many.quantile(1.0)) == (0.0, 49_999.0)


def test_each_group_gets_its_own_values() -> None:
    result = KllSketch.update([None, of([5.0]), None], np.array([1, 1, 2]), np.array([7.0, 9.0, math.nan]))
    assert [item.quantile(0.5) for item in result[:2]] == [None, 7.0]
    assert same(result[2].quantile(0.5), math.nan)


def test_memory_is_bounded_whatever_comes() -> None:
    builder = of([float(value) for value in range(200_000)])
    assert builder.nbytes < 8_000
