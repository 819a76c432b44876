"""Which windows are next, against listing all windows with rows one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cuda.windows import ReadyWindows, count_leaves
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

KINDS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=2)
SLICINGS = KINDS.map(lambda pairs: Slicing.groups(TimeWindow(*pair) for pair in pairs)[0])


@given(SLICINGS, st.lists(st.integers(-200, 200), max_size=8), st.integers(1, 4), st.integers(-250, 250))
def test_every_window_with_rows_that_has_ended_comes_once_and_is_made_of_its_slices(
    slicing: Slicing, times: list[int], n_windows: int, upto: int
) -> None:
    touched = np.unique(slicing.ids(np.array([t for t in times if not slicing.outside(np.array([t]))[0]])))
    ready, result, n_leaves = ReadyWindows(slicing), [], count_leaves(slicing, n_windows)
    while ready.skip(touched, np.empty(0, np.int64), upto):
        start = ready.needed_from
        kinds, starts, lo, hi = ready.take(start + n_leaves, n_windows, upto)
        assert len(kinds) > 0
        assert lo.min() >= start
        assert max(np.bincount(kinds)) <= n_windows
        for kind, begins, first, past in zip(*map(np.ndarray.tolist, (kinds, starts, lo, hi)), strict=True):
            assert (first, past) == slicing.span(slicing.windows[kind], begins)
            result.append((kind, begins))
    assert len(set(result)) == len(result)
    held = [slicing.start_of(int(item)) for item in touched]
    assert set(result) >= {
        (kind, begins)
        for kind, window in enumerate(slicing.windows)
        for time in held
        for begins in range(time - window.size + 1, time + 1)
        if begins % window.every == 0 and begins + window.size <= upto
    }


@pytest.mark.slow
@given(SLICINGS, st.integers(-100, 100))
def test_slices_are_needed_from_the_start_of_the_first_window_that_has_not_left(
    slicing: Slicing, upto: int
) -> None:
    ready = ReadyWindows(slicing)
    ready.leave_until(upto)
    assert slicing.start_of(ready.needed_from) == slicing.open_from(upto, 0)
    ready.leave_until(upto - 50)  # going back changes nothing
    assert slicing.start_of(ready.needed_from) == slicing.open_from(upto, 0)


def test_what_waits_on_the_host_is_not_skipped() -> None:
    ready = ReadyWindows(Slicing.of([TimeWindow(2, 2)]))
    assert ready.skip(np.empty(0, np.int64), np.array([500]), 2000)
    assert ready.needed_from == 500


def test_a_stretch_without_rows_is_skipped_at_once() -> None:
    ready = ReadyWindows(Slicing.of([TimeWindow(2, 1)]))
    assert ready.skip(np.array([10**15]), np.empty(0, np.int64), 10**16)
    assert ready.take(10**15 + 9, 3, 10**16)[1].tolist() == [10**15 - 1, 10**15, 10**15 + 1]


def test_leaves_are_enough_for_the_windows_of_one_call() -> None:
    assert count_leaves(Slicing.of([TimeWindow(4, 1)]), 5) == 8
    assert count_leaves(Slicing.of([TimeWindow(10, 3)]), 1) == 7
