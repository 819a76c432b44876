"""Slices against walking along the microseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.timing.slices import Slicing, closed_windows_of, first_open
from penstock.timing.windows import TimeWindow
from tests.naive import slices as naive

fixed = settings(deadline=None, derandomize=True, max_examples=150)
lengths = st.integers(1, 24)
kinds = st.lists(st.tuples(lengths, lengths), min_size=1, max_size=3)
times = st.integers(-300, 300)


def slicings(pairs: list[tuple[int, int]]) -> list[tuple[Slicing, list[tuple[int, int]]]]:
    """Each slicing with the (size, every) pairs it is for."""
    groups = Slicing.groups(TimeWindow(size, every) for size, every in pairs)
    return [(slicing, [(window.size, window.every) for window in slicing.windows]) for slicing in groups]


@fixed
@given(kinds, times)
@example([(3, 10)], 7)  # the gap of a hopping window
@example([(10, 3)], -1)  # a slide that does not divide the size, before 1970
@example([(10, 4)], 5)  # evenly spaced cuts
@example([(12, 8), (9, 6)], -17)
def test_a_slice_reaches_from_one_window_boundary_to_the_next(
    pairs: list[tuple[int, int]], time: int
) -> None:
    for slicing, shared in slicings(pairs):
        assert slicing.bounds(slicing.id_of(time)) == naive.slice_of(time, shared)


@fixed
@given(kinds, times, st.integers(0, 100))
def test_slices_are_numbered_by_contiguous_integers(
    pairs: list[tuple[int, int]], time: int, further: int
) -> None:
    for slicing, shared in slicings(pairs):
        distance = slicing.id_of(time + further) - slicing.id_of(time)
        assert distance == naive.cuts_between(time, time + further, shared)


@fixed
@given(kinds, st.lists(times | st.integers(-(2**61), 2**61), max_size=20))
def test_slices_of_arrays_are_those_of_each_time(pairs: list[tuple[int, int]], many: list[int]) -> None:
    for slicing, _ in slicings(pairs):
        ids = slicing.ids(np.array(many, np.int64))
        assert ids.tolist() == [slicing.id_of(time) for time in many]
        assert slicing.starts(ids).tolist() == [slicing.start_of(int(id_)) for id_ in ids]


@fixed
@given(kinds, times)
def test_a_window_is_a_whole_number_of_slices(pairs: list[tuple[int, int]], time: int) -> None:
    for slicing, _ in slicings(pairs):
        for window in slicing.windows:
            for start in window.starts(time):
                first, past = slicing.span(window, start)
                assert (slicing.start_of(first), slicing.start_of(past)) == (start, start + window.size)
                assert first <= slicing.id_of(time) < past <= first + slicing.longest


def test_a_slide_that_does_not_divide_the_size_makes_two_slices_per_slide_and_not_small_panes() -> None:
    slicing = Slicing.of([TimeWindow(10_000_000, 3_001_000)])
    assert (slicing.period, slicing.offsets) == (3_001_000, (0, 997_000))
    assert slicing.longest == 7


def test_evenly_spaced_boundaries_are_equal_panes() -> None:
    slicing = Slicing.of([TimeWindow(10, 4)])
    assert (slicing.period, slicing.offsets) == (2, (0,))


def test_windows_of_several_lengths_share_their_slices() -> None:
    (slicing,) = Slicing.groups([TimeWindow(10, 10), TimeWindow(60, 30)])
    assert (slicing.period, slicing.offsets) == (10, (0,))


def test_windows_whose_boundaries_seldom_meet_do_not_share() -> None:
    groups = Slicing.groups([TimeWindow(1000, 1000), TimeWindow(1001, 1001), TimeWindow(2000, 2000)])
    assert [[window.size for window in slicing.windows] for slicing in groups] == [[1000, 2000], [1001]]


@fixed
@given(times, lengths, lengths, times, st.integers(0, 30))
def test_a_row_misses_the_windows_of_its_time_that_have_left(
    time: int, size: int, every: int, watermark: int, lateness: int
) -> None:
    windows = closed_windows_of(TimeWindow(size, every), np.array([time]), watermark, lateness)
    assert windows.tolist() == [naive.count_missed(time, size, every, watermark, lateness)]


@fixed
@given(kinds, times, times, st.integers(0, 30))
def test_rows_are_late_for_all_their_windows_exactly_before_the_earliest_open_one(
    pairs: list[tuple[int, int]], time: int, watermark: int, lateness: int
) -> None:
    for slicing, shared in slicings(pairs):
        ends = [start + w.size for w in slicing.windows for start in w.starts(time)]
        assert bool(slicing.outside(np.array([time]))[0]) is (not ends)
        if ends:
            late = all(watermark >= end + lateness for end in ends)
            assert (time < slicing.open_from(watermark, lateness)) is late
        assert shared


@pytest.mark.parametrize(("watermark", "start"), [(11, 0), (12, 5), (16, 5), (17, 10)])
def test_the_earliest_open_window_moves_when_the_watermark_reaches_end_and_lateness(
    watermark: int, start: int
) -> None:
    assert first_open(TimeWindow(10, 5), watermark, lateness=2) == start


def test_only_windows_that_all_hop_leave_times_in_no_window() -> None:
    assert Slicing.of([TimeWindow(3, 10)]).has_gaps
    assert not Slicing.of([TimeWindow(3, 10), TimeWindow(20, 10)]).has_gaps
