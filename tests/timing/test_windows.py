"""Window arithmetic against trying every window there could be."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow, is_late_for
from tests.naive.windows import starts

fixed = settings(deadline=None, derandomize=True, max_examples=400)
lengths = st.integers(1, 60)
times = st.integers(-500, 500)


@pytest.mark.slow
@fixed
@given(times, lengths, lengths)
@example(-1, 10, 5)  # before 1970
@example(7, 3, 10)  # in the gap of a hopping window
@example(10, 10, 3)  # a slide that does not divide the size
@example(0, 1, 1)
def test_starts_are_those_of_the_windows_that_hold_the_time(time: int, size: int, every: int) -> None:
    assert list(TimeWindow(size, every).starts(time)) == starts(time, size, every)


@pytest.mark.slow
@fixed
@given(st.integers(-(2**61), 2**61), st.integers(1, 10**12), st.integers(1, 10**12))
def test_every_start_is_a_multiple_of_the_slide_and_its_window_holds_the_time(
    time: int, size: int, every: int
) -> None:
    window = TimeWindow(size, every)
    starts = window.starts(time)
    for start in (*starts[:3], *starts[-3:]):
        assert start % every == 0
        assert start <= time < start + size
    assert len(starts) in (size // every, -(-size // every))


@pytest.mark.slow
@fixed
@given(times, lengths)
def test_a_time_lies_in_one_tumbling_window(time: int, size: int) -> None:
    (start,) = TimeWindow(size, size).starts(time)
    assert start == time // size * size


@pytest.mark.slow
@fixed
@given(times, lengths, lengths)
def test_moving_time_by_one_slide_moves_the_windows_by_one_slide(time: int, size: int, every: int) -> None:
    window = TimeWindow(size, every)
    assert [start + every for start in window.starts(time)] == list(window.starts(time + every))


@pytest.mark.parametrize(("watermark", "late"), [(9, False), (11, False), (12, True), (13, True)])
def test_a_row_is_late_for_a_window_once_the_watermark_has_reached_its_end_and_the_lateness(
    watermark: int, late: bool
) -> None:
    assert is_late_for(watermark, end=10, lateness=2) is late


def test_no_window_has_left_before_the_first_row_and_all_have_at_the_end() -> None:
    assert not is_late_for(float("-inf"), -(2**61), 0)
    assert is_late_for(float("inf"), 2**61, 2**61)


def test_windows_say_what_they_are() -> None:
    assert str(TimeWindow(10_000_000, 1_000_000)) == "sliding 10 s every 1 s"
    assert str(TimeWindow(60_000_000, 60_000_000)) == "tumbling 1 min"
    assert str(SessionWindow(1_500_000)) == "session with gap 1500 ms"
    assert (str(CountWindow(5, 5)), str(CountWindow(5, 2))) == ("count 5", "count 5 every 2")
