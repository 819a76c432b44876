"""Count windows: order, fullness, gaps and what is left at the end."""

from __future__ import annotations

from typing import Any

from penstock.clock import ManualClock
from penstock.operators.aggregates import collect
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import count_window, tumbling
from tests.support.plans import PlanBuilder, PlanRun, Rows, batch, late_port


def run_counts(*batches: Rows, window: Any, delay: int = 0, **options: Any) -> tuple[list[Any], PlanRun, Any]:
    builder = PlanBuilder()
    rows = builder.source(*batches, delay=delay)
    op = KeyedWindows(windows=window, aggregates={"all": collect("v")}, **options)
    out = builder.add(op, rows, key=("k",))
    ran = builder.run()
    assert ran.account(out).is_balanced
    return ran.rows(out), ran, out


def test_a_window_holds_so_many_rows_in_order_of_time_whatever_the_order_of_arrival() -> None:
    output, _, _ = run_counts(
        [("a", 4, 4), ("a", 1, 1)], [("a", 3, 3), ("a", 2, 2)], window=count_window(2), delay=5
    )
    assert output == [("a", 1, 2, 0, [1, 2]), ("a", 3, 4, 1, [3, 4])]


def test_windows_overlap_when_they_start_more_often_than_they_are_long() -> None:
    output, _, _ = run_counts([("a", i, i) for i in range(5)], window=count_window(3, every=2))
    assert output == [("a", 0, 2, 0, [0, 1, 2]), ("a", 2, 4, 1, [2, 3, 4])]


def test_rows_between_windows_are_in_no_window() -> None:
    output, ran, out = run_counts([("a", i, i) for i in range(5)], window=count_window(2, every=4))
    assert output == [("a", 0, 1, 0, [0, 1])]
    account = ran.account(out)
    assert (account.passed, account.no_window, account.unfinished) == (2, 2, 1)


def test_a_window_that_is_not_full_at_the_end_does_not_leave() -> None:
    output, ran, out = run_counts([("a", i, i) for i in range(3)], window=count_window(2))
    assert output == [("a", 0, 1, 0, [0, 1])]
    assert ran.account(out).unfinished == 1


def test_partial_lets_the_last_windows_leave() -> None:
    output, ran, out = run_counts(
        [("a", i, i) for i in range(3)], window=count_window(2, every=1), partial=True
    )
    assert output == [("a", 0, 1, 0, [0, 1]), ("a", 1, 2, 1, [1, 2]), ("a", 2, 2, 2, [2])]
    assert ran.account(out).unfinished == 0


def test_a_row_only_in_a_partial_window_that_left_has_passed() -> None:
    _, ran, out = run_counts([("a", i, i) for i in range(3)], window=count_window(2), partial=True)
    assert (ran.account(out).passed, ran.account(out).unfinished) == (3, 0)


def test_a_row_is_late_once_rows_of_its_time_are_in_order() -> None:
    # W = 10 > 9, but not > 10
    output, ran, out = run_counts([("a", 10, 1)], [("a", 9, 2), ("a", 10, 3)], window=count_window(2))
    assert output == [("a", 10, 10, 0, [1, 3])]
    assert ran.rows(late_port(out)) == [("a", 9, 2)]
    assert ran.account(out).late_by_window == {"count 2": 1}


def test_lateness_waits_so_much_longer_before_rows_are_put_in_order() -> None:
    output, ran, out = run_counts([("a", 10, 1)], [("a", 9, 2)], window=count_window(2), lateness=1)
    assert output == [("a", 9, 10, 0, [2, 1])]
    assert ran.account(out).late == 0


def test_rows_of_equal_time_are_ordered_by_the_readers_number_and_else_by_their_columns() -> None:
    for seq, expected in (([7, 3], [1, 9]), (None, [1, 9])):
        builder = PlanBuilder()
        rows = builder.source(batch([("a", 5, 9), ("a", 5, 1)], seq=seq))
        op = KeyedWindows(windows=count_window(2), aggregates={"all": collect("v")})
        out = builder.add(op, rows, key=("k",))
        assert builder.run().rows(out) == [("a", 5, 5, 0, expected)]


def test_a_row_in_a_time_window_passes_though_its_count_window_never_fills() -> None:
    two: Any = {"five": count_window(5), "ten": tumbling(10)}
    output, ran, out = run_counts([("a", 1, 1)], window=two)
    assert output == [("a", "ten", 0, 10, None, [1])]
    assert (ran.account(out).passed, ran.account(out).unfinished) == (1, 0)


def test_early_shows_a_count_window_that_is_not_full() -> None:
    clock = ManualClock()
    builder = PlanBuilder()
    rows = builder.source(name="s")
    op = KeyedWindows(windows=count_window(3), aggregates={"all": collect("v")}, early="1 ms")
    out = builder.add(op, rows, key=("k",))
    harness = builder.open_harness(clock=clock)
    clock.advance(2_000)
    harness.push({"s": batch([("a", 1, 1), ("a", 2, 2)])})
    assert harness.take(out).to_pylist() == [
        {"k": "a", "window_start": 1, "window_end": 1, "window_index": 0, "all": [1], "final": False}
    ], "the row at 2 is not in order yet: W = 2"
