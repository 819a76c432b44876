"""Time windows: which rows they hold, when they leave, and what is late."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.clock import ManualClock
from penstock.operators.aggregates import count, event_time_max, sum
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import SlidingSpec, session, sliding, tumbling
from tests.support.plans import PlanBuilder, PlanRun, Rows, batch, late_port


def run_windows(
    *batches: Rows, window: Any = None, delay: int = 0, key: tuple[str, ...] = ("k",), **options: Any
) -> PlanRun:
    builder = PlanBuilder()
    options.setdefault("aggregates", {"n": count(), "total": sum("v")})
    rows = builder.source(*batches, delay=delay)
    builder.add(KeyedWindows(windows=window or tumbling(10), name="w", **options), rows, key=key)
    return builder.run()


def results(ran: PlanRun) -> list[tuple[Any, ...]]:
    (ref,) = (ref for ref in ran.result.collected if str(ref) == "w")
    return ran.rows(ref)


def test_a_window_leaves_when_the_watermark_reaches_its_end_and_the_rest_at_the_end() -> None:
    #  0         10        20     delay 0: after the first batch W = 12, so [0, 10) leaves
    #  |a1    a2)[a4
    ran = run_windows([("a", 0, 1), ("a", 9, 2), ("a", 12, 4)], [("a", 13, 8)])
    assert results(ran) == [("a", 0, 10, 2, 3), ("a", 10, 20, 2, 12)]


def test_a_row_on_a_boundary_is_in_the_window_that_starts_there() -> None:
    assert results(run_windows([("a", 10, 1)])) == [("a", 10, 20, 1, 1)]


def test_windows_of_negative_times_start_below_them() -> None:
    assert results(run_windows([("a", -1, 1), ("a", -10, 2), ("a", -11, 4)])) == [
        ("a", -20, -10, 1, 4),
        ("a", -10, 0, 2, 3),
    ]


def test_sliding_windows_whose_slide_does_not_divide_the_size() -> None:
    # size 10, every 4; a row at 9 is in [0, 10), [4, 14), [8, 18)
    ran = run_windows([("a", 9, 1)], window=sliding(10, 4))
    assert results(ran) == [("a", 0, 10, 1, 1), ("a", 4, 14, 1, 1), ("a", 8, 18, 1, 1)]


def test_rows_in_the_gaps_of_hopping_windows_are_counted_as_in_no_window() -> None:
    ran = run_windows([("a", 1, 1), ("a", 7, 2), ("a", 11, 4)], window=sliding(5, 10))
    assert results(ran) == [("a", 0, 5, 1, 1), ("a", 10, 15, 1, 4)]
    account = ran.result.accounts["w"]
    assert (account.passed, account.no_window, account.late) == (2, 1, 0)


def test_a_row_is_judged_by_the_watermark_before_its_own_batch() -> None:
    # 25 and 1 come together, so 1 is not late; in the next batch it would be
    together = run_windows([("a", 25, 1), ("a", 1, 2)])
    apart = run_windows([("a", 25, 1)], [("a", 1, 2)])
    assert together.result.accounts["w"].late == 0
    assert apart.result.accounts["w"].late == 1


def test_a_row_late_for_some_of_its_windows_counts_in_the_others() -> None:
    # W = 12: [0, 10) has left, [5, 15) has not; the row at 7 misses one window
    ran = run_windows([("a", 12, 1)], [("a", 7, 2)], window=sliding(10, 5))
    assert results(ran) == [("a", 5, 15, 2, 3), ("a", 10, 20, 1, 1)]
    account = ran.result.accounts["w"]
    assert (account.passed, account.late) == (2, 0)
    assert account.late_by_window == {"sliding 10 us every 5 us": 1}


def test_a_row_late_for_all_its_windows_goes_to_late() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 30, 1)], [("a", 7, 2)])
    out = builder.add(KeyedWindows(windows=sliding(10, 5), aggregates={"n": count()}), rows, key=("k",))
    ran = builder.run()
    assert ran.rows(late_port(out)) == [("a", 7, 2)]
    assert ran.account(out).late_by_window == {"sliding 10 us every 5 us": 2}
    assert ran.account(out).is_balanced


@pytest.mark.parametrize(("last", "is_late"), [(12, False), (13, True)])
def test_lateness_keeps_a_window_open_for_as_long(last: int, is_late: bool) -> None:
    # [0, 10) with lateness 3 leaves when W >= 13
    ran = run_windows([("a", last, 1)], [("a", 7, 2)], lateness=3)
    assert (ran.result.accounts["w"].late == 1) is is_late


def test_without_a_key_all_rows_are_one_group() -> None:
    ran = run_windows([("a", 1, 1), ("b", 2, 2)], key=())
    assert results(ran) == [(0, 10, 2, 3)]


def test_null_is_a_key_nan_equals_nan_and_negative_zero_equals_zero() -> None:
    schema = pa.schema([("x", pa.float64()), ("t", pa.int64())])
    builder = PlanBuilder()
    values = [None, float("nan"), float("nan"), -0.0, 0.0, None]
    rows = builder.source([(value, 1) for value in values], schema=schema)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows, key=("x",))
    (null, zero, nan) = builder.run().rows(out)
    assert null == (None, 0, 10, 2)
    assert (str(zero[0]), zero[3]) == ("0.0", 2)
    assert (str(nan[0]), nan[3]) == ("nan", 2)


def test_lists_and_structs_can_be_keys() -> None:
    schema = pa.schema(
        [("x", pa.list_(pa.int64())), ("y", pa.struct([("z", pa.string())])), ("t", pa.int64())]
    )
    builder = PlanBuilder()
    rows = builder.source([([1, 2], {"z": "é"}, 1), ([1, 2], {"z": "é"}, 2), ([1], None, 3)], schema=schema)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows, key=("x", "y"))
    assert builder.run().rows(out) == [([1], None, 0, 10, 1), ([1, 2], {"z": "é"}, 0, 10, 2)]


def test_several_windows_are_labelled_and_a_row_is_late_only_if_late_for_all() -> None:
    # W = 25: [0, 10) has left, [0, 100) has not
    two: dict[str, SlidingSpec] = {"fast": tumbling(10), "slow": tumbling(100)}
    ran = run_windows([("a", 25, 1)], [("a", 7, 2)], window=two)
    assert results(ran) == [("a", "fast", 20, 30, 1, 1), ("a", "slow", 0, 100, 2, 3)]
    account = ran.result.accounts["w"]
    assert (account.passed, account.late, account.late_by_window) == (2, 0, {"fast": 1})


def test_results_are_released_per_key_by_end_then_start() -> None:
    two: dict[str, Any] = {"long": tumbling(20), "short": tumbling(10), "visit": session(5)}
    ran = run_windows(
        [("b", 1, 1), ("a", 12, 1), ("a", 2, 1)], window=two, delay=100, aggregates={"n": count()}
    )
    assert [row[:4] for row in results(ran)] == [
        ("a", "visit", 2, 7),
        ("a", "short", 0, 10),
        ("a", "visit", 12, 17),
        ("a", "long", 0, 20),
        ("a", "short", 10, 20),
        ("b", "visit", 1, 6),
        ("b", "short", 0, 10),
        ("b", "long", 0, 20),
    ]


def test_windows_after_windows_lose_nothing() -> None:
    # a result's time is window_end - 1, so [0, 10) and [10, 20) are both in [0, 20)
    builder = PlanBuilder()
    rows = builder.source([("a", 1, 1)], [("a", 11, 2)], [("a", 21, 4)], [("a", 45, 8)], delay=3)
    ten = builder.add(
        KeyedWindows(windows=tumbling(10), aggregates={"total": sum("v")}, lateness=2), rows, key=("k",)
    )
    twenty = builder.add(KeyedWindows(windows=tumbling(20), aggregates={"sum": sum("total")}), ten)
    ran = builder.run()
    assert ran.rows(twenty) == [("a", 0, 20, 3), ("a", 20, 40, 4), ("a", 40, 60, 8)]
    assert ran.account(twenty).late == 0


def test_bounds_are_given_in_the_time_columns_own_unit() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 7, 1)], time="t", time_unit="s", delay="0 s")
    aggregates = {"latest": event_time_max()}
    out = builder.add(KeyedWindows(windows=tumbling("1 min"), aggregates=aggregates), rows, key=("k",))
    assert builder.run().rows(out) == [("a", 0, 60, 7)]


def test_early_results_are_given_by_the_clock_for_windows_that_changed() -> None:
    clock = ManualClock()
    builder = PlanBuilder()
    rows = builder.source(name="s")
    op = KeyedWindows(windows=tumbling(10), aggregates={"n": count()}, early="1 ms")
    out = builder.add(op, rows, key=("k",))
    harness = builder.open_harness(clock=clock)
    harness.push({"s": batch([("a", 1, 1)])})
    assert harness.take(out).num_rows == 0, "the clock has not moved"
    clock.advance(1_000)
    harness.push({"s": batch([("b", 2, 1)])})
    assert harness.take(out).to_pylist() == [
        {"k": "a", "window_start": 0, "window_end": 10, "n": 1, "final": False},
        {"k": "b", "window_start": 0, "window_end": 10, "n": 1, "final": False},
    ]
    clock.advance(1_000)
    harness.push({"s": batch([("b", 3, 1)])})
    assert [(row["k"], row["n"]) for row in harness.take(out).to_pylist()] == [("b", 2)]
    harness.end()
    assert [(row["k"], row["n"], row["final"]) for row in harness.take(out).to_pylist()] == [
        ("a", 1, True),
        ("b", 2, True),
    ]


def test_with_drain_false_open_windows_stay() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 1, 1)], [("a", 12, 1)])
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows, key=("k",))
    ran = builder.run(drain=False)
    assert ran.rows(out) == [("a", 0, 10, 1)]
    assert ran.result.outcome == "ended"


def test_with_drain_false_a_source_that_has_ended_still_holds_back() -> None:
    # the right source ends at W = 1: a later run may go on from there, so [0, 10) stays open
    builder = PlanBuilder()
    left = builder.source([("a", 1, 1)], [("a", 12, 1)], [("a", 13, 1)])
    right = builder.source([("b", 1, 1)])
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), [left, right])
    assert builder.run(drain=False).rows(out) == []
