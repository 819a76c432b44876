"""The watermark of a source: when it moves, and that it never goes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.timing.windows import AFTER_ALL, BEFORE_ALL, SourceWatermark

fixed = settings(deadline=None, derandomize=True)


def test_it_is_the_greatest_time_seen_minus_the_delay() -> None:
    watermark = SourceWatermark(delay=2)
    assert watermark.now == BEFORE_ALL
    seen = []
    for greatest in (10, 7, None, 15):
        watermark.observe(greatest)
        seen.append(watermark.now)
    assert seen == [8, 8, 8, 13]


def test_a_promise_counts_where_it_is_later() -> None:
    watermark = SourceWatermark(delay=2)
    watermark.promise(5)
    assert watermark.now == 5
    watermark.observe(10)
    assert watermark.now == 8
    watermark.promise(6)
    assert watermark.now == 8
    watermark.promise(20)
    assert watermark.now == 20


def test_without_a_delay_only_promises_count() -> None:
    watermark = SourceWatermark(delay=None)
    watermark.observe(100)
    assert watermark.now == BEFORE_ALL
    watermark.promise(-3)
    assert watermark.now == -3


def test_a_source_that_has_ended_holds_nothing_back() -> None:
    watermark = SourceWatermark(delay=0)
    watermark.end()
    assert watermark.now == AFTER_ALL


moves = st.lists(
    st.one_of(
        st.tuples(st.just("saw"), st.one_of(st.none(), st.integers(-100, 100))),
        st.tuples(st.just("promise"), st.integers(-100, 100)),
        st.tuples(st.just("end"), st.none()),
    )
)


@pytest.mark.slow
@fixed
@given(st.one_of(st.none(), st.integers(0, 50)), moves)
def test_it_never_goes_back_and_never_overtakes_what_it_was_told(
    delay: int | None, done: list[tuple[str, int | None]]
) -> None:
    watermark = SourceWatermark(delay)
    watermarks: list[float] = [BEFORE_ALL]
    for move, time in done:
        before = watermark.now
        if move == "saw":
            watermark.observe(time)
            watermarks += [time - delay] if time is not None and delay is not None else []
        elif move == "promise" and time is not None:
            watermark.promise(time)
            watermarks.append(time)
        else:
            watermark.end()
            watermarks.append(AFTER_ALL)
        assert watermark.now >= before
        assert watermark.now == max(watermarks)
