"""Which windows are ready: the loops against asking every window whether it ends in time and has a slice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows import combine as ready
from penstock.kernels.windows.slice_loop import CLEAN, END, FIRST, LATE_FROM, LATE_TO, MAX_ID
from penstock.kernels.windows.sums import MAX_OFFSET, reciprocal_of, shift_of
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

fixed = settings(deadline=None, derandomize=True, max_examples=60)
speeds = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])

windows = st.builds(TimeWindow, st.integers(1, 40), st.integers(1, 12))
held = st.lists(st.tuples(st.integers(-60, 60), st.integers(1, 30)), min_size=1, max_size=4)


def rings_of(spans: list[tuple[int, int]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    rings = np.zeros((len(spans), 8), np.int64)
    rings[:, LATE_FROM], rings[:, LATE_TO] = MAX_ID, -MAX_ID
    for ring, (first, length) in zip(rings, spans, strict=True):
        ring[FIRST], ring[END], ring[CLEAN] = first, first + length, first
    return rings


@pytest.mark.slow
@speeds
@fixed
@given(windows, held, st.integers(-200, 200), st.integers(0, 300), st.integers(1, 5))
def test_windows_that_end_in_time_over_slices_held_are_listed_once_in_order(
    compiled: bool, window: TimeWindow, spans: list[tuple[int, int]], after: int, further: int, most: int
) -> None:
    slicing, upto, rings = Slicing.of([window]), after + further, rings_of(spans)
    offsets = np.array(slicing.offsets, np.int64)
    firsts, counts = np.empty(len(rings), np.int64), np.empty(len(rings), np.int64)
    kind = (window.size, window.every)
    left = ready.count_ready.version(compiled)(
        rings, *kind, after, upto, slicing.period, offsets, firsts, counts
    )
    result: list[list[tuple[int, int, int]]] = [[] for _ in spans]
    while left:
        starts, lo, hi = (np.empty(left, np.int64) for _ in range(3))
        ends, effort = np.empty(len(rings), np.int64), np.zeros(4, np.int64)
        now = ready.list_ready.version(compiled)(
            rings, *kind, slicing.period, offsets, firsts, counts, most, starts, lo, hi, ends, effort
        )
        assert 0 < now <= most * len(rings)
        begin = 0
        for ring, end in enumerate(ends.tolist()):
            listed = zip(starts[begin:end], lo[begin:end], hi[begin:end], strict=True)
            result[ring] += [(int(start), int(low), int(high)) for start, low, high in listed]
            begin = end
        left -= now
    for (first, length), our in zip(spans, result, strict=True):
        assert our == ask_windows(slicing, window, range(first, first + length), after, upto)


def ask_windows(
    slicing: Slicing, window: TimeWindow, slices: range, after: int, upto: int
) -> list[tuple[int, int, int]]:
    """Every window that touches one of the slices: does it end in time?"""
    begin, end = slicing.start_of(slices.start), slicing.start_of(slices.stop)
    start = (begin - window.size) // window.every * window.every
    wanted = []
    while start < end:
        ends = start + window.size
        low, high = slicing.span(window, start)
        if after < ends <= upto and start < end and ends > begin:
            wanted.append((start, max(low, slices.start), min(high, slices.stop)))
        start += window.every
    return wanted


@fixed
@given(st.integers(1, MAX_OFFSET), st.data())
def test_the_number_of_periods_is_found_without_dividing(period: int, data: st.DataObject) -> None:
    times = [0, period - 1, period, MAX_OFFSET - 1, (MAX_OFFSET - 1) // period * period - 1]
    shift = shift_of(period)
    reciprocal = reciprocal_of(period, shift)
    assert int(reciprocal) < 2**32
    for time in [*times, data.draw(st.integers(0, MAX_OFFSET - 1))]:
        if 0 <= time < MAX_OFFSET:
            assert time * int(reciprocal) >> int(shift) == time // period
