"""Slices against walking along the times one by one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cuda.slicing import Slicing

SLICINGS = st.builds(Slicing, size=st.integers(1, 12), every=st.integers(1, 12))


@settings(deadline=None, derandomize=True)
@given(SLICINGS, st.integers(-40, 40))
def test_a_new_slice_begins_exactly_where_a_window_starts_or_ends(slicing: Slicing, time: int) -> None:
    size, every = slicing.size, slicing.every
    cut = time % every == 0 or (time - size) % every == 0
    assert slicing.slice_of(time) == slicing.slice_of(time - 1) + cut
    assert not cut or slicing.start_of(slicing.slice_of(time)) == time


@settings(deadline=None, derandomize=True)
@given(SLICINGS, st.integers(-10, 10))
def test_a_window_is_its_slices(slicing: Slicing, window: int) -> None:
    start = window * slicing.every
    held = {slicing.slice_of(time) for time in range(start, start + slicing.size)}
    first = slicing.first_slice(window)
    assert held == set(range(first, first + slicing.per_window))


@settings(deadline=None, derandomize=True)
@given(SLICINGS, st.integers(-30, 30))
def test_the_windows_of_a_slice_are_those_that_hold_it(slicing: Slicing, slice_id: int) -> None:
    holding = [
        window
        for window in range(-60, 60)
        if slicing.first_slice(window) <= slice_id < slicing.first_slice(window) + slicing.per_window
    ]
    first, last = slicing.first_window(slice_id), slicing.last_window(slice_id)
    assert holding == list(range(first, last + 1))
    assert holding or slicing.hopping


@settings(deadline=None, derandomize=True)
@given(SLICINGS, st.integers(-40, 40))
def test_a_watermark_leaves_open_what_ends_after_it(slicing: Slicing, watermark: int) -> None:
    window = slicing.first_open(watermark)
    assert window * slicing.every + slicing.size > watermark
    assert (window - 1) * slicing.every + slicing.size <= watermark


def test_there_are_never_more_slices_than_panes_of_the_greatest_common_divisor() -> None:
    assert Slicing(size=10_000, every=3_001).per_window == 7
    assert (Slicing(size=8, every=2).per_window, Slicing(size=6, every=4).per_window) == (4, 3)
    assert Slicing(size=4, every=1).leaves(5) == 8
