"""Watermarks: where they come from, how streams merge theirs, and what a silent source does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.events import BatchDone, Event
from penstock.testing import Harness
from tests.conformance.case import Case, same_rows

FEATURE = "Watermarks"
WINDOW = "window_start window_end"


def late(case: Case, rows: ps.MultiPipe) -> int:
    """How many rows miss tumbling windows of ten seconds."""
    return case.run(rows.window(ps.tumbling(10), name="w").aggregate(n=ps.count())).account("w").late


def generate(*items: object) -> Callable[[], Iterator[object]]:
    """A generator function of these rows and promises."""
    return lambda: iter(items)


def test_the_watermark_never_goes_back(case: Case) -> None:
    assert late(case, case.timed_source("t", [(100,)], [(99,)], [(20,)], [(89,)])) == 3


def test_empty_batches_move_nothing(case: Case) -> None:
    assert late(case, case.timed_source("t", [(8,)], [], [], [(3,)], [])) == 0


def test_a_null_time_moves_nothing(case: Case) -> None:
    rows = case.timed_source("t", [(8,), (None,)], [(3,)], on_error="skip")
    assert late(case, rows) == 0


def test_a_column_can_say_the_watermark(case: Case) -> None:
    # Nulls promise nothing; the greatest value of the batch counts from the next batch on.
    rows = case.timed_source(
        "t w:int64", [(1, 5), (2, 12), (3, None)], [(4, None), (11, None)], watermark="w"
    )
    assert late(case, rows) == 1


def test_the_greatest_time_says_nothing_when_only_the_column_counts(case: Case) -> None:
    assert late(case, case.timed_source("t w:int64", [(1000, 0)], [(4, 0)], watermark="w")) == 0


def test_a_column_and_the_delay_both_count_and_the_later_one_wins(case: Case) -> None:
    rows = case.timed_source("t w:int64", [(14, 12)], [(4, 0)], [(21, 0)], [(15, 0)], watermark="w", delay=5)
    # W: -inf, max(9, 12) = 12, 12, max(16, 12) = 16
    assert late(case, rows) == 1


@pytest.mark.parametrize(("latest", "missed"), [(14, 0), (15, 1)])
def test_an_expression_can_say_the_watermark(case: Case, latest: int, missed: int) -> None:
    rows = case.timed_source("t", [(latest,)], [(4,)], watermark=col("t") - 5)
    assert late(case, rows) == missed


def test_a_function_of_the_batch_can_say_the_watermark(case: Case) -> None:
    def half_of_the_greatest(batch: pa.RecordBatch) -> int:
        times: list[int] = batch.column("t").to_pylist()
        return max(times) // 2

    # W: -inf, 9, 10
    rows = case.timed_source("t", [(18,)], [(4,), (20,)], [(5,)], watermark=half_of_the_greatest)
    assert late(case, rows) == 1


def test_a_generator_can_yield_the_watermark(case: Case) -> None:
    feed = generate({"t": 1}, {"t": 500}, ps.Watermark(12), {"t": 5}, {"t": 13})
    rows = case.graph.source(
        ps.read.generator(feed, schema={"t": int}), time="t", time_unit="s", watermark=ps.source_watermark()
    )
    assert late(case, rows) == 1


def test_a_yielded_watermark_counts_beside_the_delay(case: Case) -> None:
    feed = generate({"t": 1}, ps.Watermark(12), {"t": 5})
    rows = case.graph.source(ps.read.generator(feed, schema={"t": int}), time="t", time_unit="s", delay="1 h")
    assert late(case, rows) == 1


def test_a_promise_that_goes_back_is_no_news(case: Case) -> None:
    feed = generate(ps.Watermark(20), ps.Watermark(3), {"t": 5}, ps.Watermark(1), {"t": 6}, {"t": 25})
    rows = case.graph.source(
        ps.read.generator(feed, schema={"t": int}), time="t", time_unit="s", watermark=ps.source_watermark()
    )
    assert late(case, rows) == 2


def test_merged_streams_take_the_least_watermark(case: Case) -> None:
    #  a:  100    6     8
    #  b:    5   50    51
    #  W: -inf    5    50       so 6 is in time and 8 is late
    a = case.timed_source("t", [(100,)], [(6,)], [(8,)], name="a")
    b = case.timed_source("t", [(5,)], [(50,)], [(51,)], name="b")
    counts = a.merge(b).window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    outcome = case.gives(counts, f"{WINDOW} n", (0, 10, 2), (50, 60, 2), (100, 110, 1))
    assert outcome.account("w").late == 1


def test_a_source_that_has_ended_holds_nothing_back_from_the_next_round_on(case: Case) -> None:
    #  a:    1   ended
    #  b:  100    3     4
    #  W: -inf    1   100
    a = case.timed_source("t", [(1,)], name="a")
    b = case.timed_source("t", [(100,)], [(3,)], [(4,)], name="b")
    counts = a.merge(b).window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    outcome = case.gives(counts, f"{WINDOW} n", (0, 10, 2), (100, 110, 1))
    assert outcome.account("w").late == 1


def test_a_source_without_rows_holds_the_others_back_until_it_ends(case: Case) -> None:
    #  a:  none  none  ended
    #  b:  100    3     4     5
    #  W: -inf  -inf  -inf  100
    a = case.timed_source("t", [], [], name="a")
    b = case.timed_source("t", [(100,)], [(3,)], [(4,)], [(5,)], name="b")
    assert late(case, a.merge(b)) == 1


def test_sources_with_different_delays_are_merged_by_their_watermarks(case: Case) -> None:
    #  W: a 100 - 95 = 5, b 40; merged 5
    a = case.timed_source("t", [(100,)], [(6,)], delay=95, name="a")
    b = case.timed_source("t", [(40,)], [(7,)], name="b")
    assert late(case, a.merge(b)) == 0


def merged_with_idle(case: Case) -> Harness:
    """A quiet source "a", ignored after five silent seconds, merged with a lively "b"."""
    quiet = case.timed_source("t", name="a", idle="5 s")
    lively = case.timed_source("t", name="b")
    counts = quiet.merge(lively).window(ps.tumbling(10)).aggregate(n=ps.count())
    return Harness(counts, engine=case.engine, clock=case.clock)


def test_a_silent_source_is_ignored_after_its_idle_time(case: Case) -> None:
    harness = merged_with_idle(case)
    harness.push_all({"a": [{"t": 1}], "b": [{"t": 100}]})
    case.clock.advance(4_999_999)
    harness.push([{"t": 101}], source="b")
    assert harness.take() == []
    case.clock.advance(1)
    harness.push([{"t": 102}], source="b")
    same_rows(harness.take(), f"{WINDOW} n", (0, 10, 1))


def test_a_source_that_speaks_again_holds_the_watermark_where_it_is(case: Case) -> None:
    harness = merged_with_idle(case)
    harness.push_all({"a": [{"t": 1}], "b": [{"t": 100}]})
    case.clock.advance(5_000_000)
    harness.push([{"t": 101}], source="b")
    harness.take()
    harness.push([{"t": 105}], source="a")  # later than W, so in time; a's own watermark counts again
    harness.push([{"t": 130}], source="b")
    assert harness.take() == []
    harness.push([{"t": 120}], source="a")
    same_rows(harness.take(), f"{WINDOW} n", (100, 110, 3))


def test_a_source_that_speaks_again_does_not_move_the_watermark_back(case: Case) -> None:
    quiet, lively = case.timed_source("t", name="a", idle="5 s"), case.timed_source("t", name="b")
    counts = quiet.merge(lively).window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    harness = Harness(counts, engine=case.engine, clock=case.clock)
    harness.push_all({"a": [{"t": 1}], "b": [{"t": 100}]})
    case.clock.advance(5_000_000)
    harness.push([{"t": 101}], source="b")
    same_rows(harness.take(), f"{WINDOW} n", (0, 10, 1))
    harness.push([{"t": 5}], source="a")
    harness.push([{"t": 6}], source="a")
    assert (harness.take(), harness.accounts["w"].late) == ([], 2)


def test_when_all_sources_are_silent_the_watermark_stays(case: Case) -> None:
    counts = case.timed_source("t", idle="5 s").window(ps.tumbling(10)).aggregate(n=ps.count())
    harness = Harness(counts, engine=case.engine, clock=case.clock)
    harness.push([{"t": 1}])
    case.clock.advance(60_000_000)
    harness.push([])
    assert harness.take() == []
    harness.push([{"t": 2}])
    assert harness.late() == []


def test_rows_too_far_ahead_of_the_clock_are_errors_and_move_nothing(case: Case) -> None:
    case.clock.advance(100_000_000)
    source = case.timed_source("t", max_future="1 min", on_error="skip", name="src")
    harness = Harness(
        source.window(ps.tumbling(10)).aggregate(n=ps.count()), engine=case.engine, clock=case.clock
    )
    harness.push([{"t": 95}, {"t": 161}])
    harness.push([{"t": 93}])
    harness.push([{"t": 160}])  # exactly a minute ahead
    harness.end()
    assert harness.accounts["src"].errors == 1
    same_rows(harness.take(), f"{WINDOW} n", (90, 100, 2), (160, 170, 1))


def test_without_an_event_time_the_arrival_of_the_batch_is_the_time(case: Case) -> None:
    rows = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time())
    harness = Harness(
        rows.window(ps.tumbling("10 s")).aggregate(s=ps.sum("v")), engine=case.engine, clock=case.clock
    )
    harness.push([{"v": 1}, {"v": 2}])
    case.clock.advance(9_999_999)
    harness.push([{"v": 4}])
    assert harness.take() == []
    case.clock.advance(1)
    harness.push([{"v": 8}])
    assert sums(harness) == [(0, 10, 7)]
    harness.end()
    assert sums(harness) == [(10, 20, 8)]


def sums(harness: Harness) -> list[tuple[Any, ...]]:
    """What left, with bounds in seconds since 1970."""
    return [
        (row["window_start"].timestamp(), row["window_end"].timestamp(), row["s"]) for row in harness.take()
    ]


def test_windows_leave_in_the_round_that_moves_the_watermark_to_their_end(case: Case) -> None:
    counts = case.timed_source("t").window(ps.tumbling(10), lateness=5).aggregate(n=ps.count())
    harness = Harness(counts, engine=case.engine, clock=case.clock)
    harness.push([{"t": 3}, {"t": 14}])
    assert harness.take() == []
    harness.push([{"t": 15}])
    same_rows(harness.take(), f"{WINDOW} n", (0, 10, 1))
    harness.watermark(24)
    assert harness.take() == []
    harness.watermark(25)
    same_rows(harness.take(), f"{WINDOW} n", (10, 20, 2))


def test_windows_of_ingest_time_leave_by_the_clock_though_no_row_comes(case: Case) -> None:
    rows = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time(), delay="500 ms")
    harness = Harness(
        rows.window(ps.tumbling("1 s")).aggregate(s=ps.sum("v")), engine=case.engine, clock=case.clock
    )
    harness.push([{"v": 1}, {"v": 2}])
    harness.advance("1400 ms")
    assert harness.take() == []
    harness.advance("100 ms")
    assert sums(harness) == [(0, 1, 3)]
    harness.push([{"v": 4}])
    harness.advance("1 h")
    assert sums(harness) == [(1, 2, 4)]


def test_windows_after_windows_of_ingest_time_leave_by_the_clock(case: Case) -> None:
    rows = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time())
    first = rows.window(ps.tumbling("1 s"), lateness="200 ms").aggregate(s=ps.sum("v"))
    second = first.window(ps.tumbling("2 s")).aggregate(s=ps.sum("s"))
    harness = Harness(second, engine=case.engine, clock=case.clock)
    harness.push([{"v": 1}])
    harness.advance("2100 ms")
    assert harness.take() == []
    harness.advance("100 ms")
    assert sums(harness) == [(0, 2, 1)]


def test_sessions_of_ingest_time_end_by_the_clock(case: Case) -> None:
    rows = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time())
    sessions = rows.window(ps.session("300 ms")).aggregate(s=ps.sum("v"))
    harness = Harness(sessions, engine=case.engine, clock=case.clock)
    harness.push([{"v": 1}])
    harness.advance("250 ms")
    harness.push([{"v": 2}])
    harness.advance("1 s")
    assert sums(harness) == [(0, 0.55, 3)]


def test_a_source_becomes_idle_by_the_clock_though_no_row_comes(case: Case) -> None:
    harness = merged_with_idle(case)
    harness.push_all({"a": [{"t": 1}], "b": [{"t": 100}]})
    harness.advance("4999 ms")
    assert harness.take() == []
    harness.advance("1 ms")
    same_rows(harness.take(), f"{WINDOW} n", (0, 10, 1))


def test_early_results_leave_by_the_clock_though_no_row_comes(case: Case) -> None:
    rows = case.timed_source("t v")
    windows = rows.window(ps.tumbling(10), early="200 ms").aggregate(n=ps.count())
    harness = Harness(windows, engine=case.engine, clock=case.clock)
    harness.advance("150 ms")
    harness.push([{"t": 1, "v": 1}])
    harness.advance("1 min")
    assert [(row["n"], row["final"]) for row in harness.take()] == [(1, False)]  # once: nothing has changed


def test_rows_of_ingest_time_are_not_late_after_the_clock_was_set_back(case: Case) -> None:
    rows = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time())
    windows = rows.window(ps.tumbling("1 s"), name="w").aggregate(s=ps.sum("v"))
    harness = Harness(windows, engine=case.engine, clock=case.clock)
    case.clock.advance(3_600_000_000)
    harness.push([{"v": 1}])
    case.clock.advance(-1_800_000_000)
    harness.push([{"v": 2}])
    case.clock.advance(1_801_000_000)
    harness.push([{"v": 4}])
    assert sums(harness) == [(3600, 3601, 3)]  # the second was stamped with the time of the first
    assert (harness.late(), harness.accounts["w"].late) == ([], 0)


def test_a_merged_stream_goes_on_with_the_clock_of_a_silent_source_of_ingest_time(case: Case) -> None:
    clicks = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time(), name="clicks")
    views = case.graph.source(ps.read.rows([], schema={"v": int}), time=ps.ingest_time(), name="views")
    counts = clicks.merge(views).window(ps.tumbling("1 s")).aggregate(s=ps.sum("v"))
    harness = Harness(counts, engine=case.engine, clock=case.clock)
    harness.push([{"v": 1}], source="views")
    harness.advance("1 s")
    assert sums(harness) == [(0, 1, 1)]


def test_a_round_tells_how_far_its_watermarks_are_behind_the_clock(case: Case) -> None:
    case.clock.advance(100_000_000)
    quick, slow = (
        case.timed_source("t", [(43,)], [(52,)], name="quick"),
        case.timed_source("t", [(20,)], [(21,)], delay="10 s", name="slow"),
    )
    lags: list[Any] = []

    def listen(event: Event) -> None:
        if isinstance(event, BatchDone) and any(event.rows_in.values()):
            lags.append(event.lag_us)

    case.run(quick.merge(slow), events=listen)
    second = 1_000_000
    assert lags == [
        {"quick": 57 * second, "slow": 90 * second},
        {"quick": 48 * second, "slow": 89 * second},
    ]
