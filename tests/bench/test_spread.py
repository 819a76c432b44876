"""Medians and quartiles agree with the standard library's."""

from __future__ import annotations

import statistics

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.result import spread_of

samples = st.lists(st.integers(0, 10**9), min_size=2, max_size=40)


def test_the_median_of_five_is_the_third_and_the_quartiles_its_neighbours() -> None:
    found = spread_of([9, 1, 7, 3, 5])
    assert (found.least, found.low, found.median, found.high, found.greatest) == (1, 3, 5, 7, 9)


def test_one_sample_is_its_own_spread() -> None:
    found = spread_of([4])
    assert (found.least, found.low, found.median, found.high, found.greatest) == (4, 4, 4, 4, 4)


@settings(deadline=None)
@given(samples)
def test_quartiles_agree_with_the_inclusive_method_of_the_standard_library(values: list[int]) -> None:
    found = spread_of(values)
    expected = statistics.quantiles(values, n=4, method="inclusive")
    for ours, theirs in zip((found.low, found.median, found.high), expected, strict=True):
        assert abs(ours - theirs) <= 1e-9 * max(1.0, abs(theirs))


def test_ranges_that_share_one_point_overlap() -> None:
    assert spread_of([1, 2, 3]).overlaps(spread_of([2, 3, 4]))
    assert not spread_of([1, 2, 3]).overlaps(spread_of([5, 6, 7]))
