"""Count windows: a number of rows per key, in order of time, however they arrive."""

from __future__ import annotations

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows
from tests.conformance.engines import everywhere

FEATURE = "Count windows"
WINDOW = "window_start window_end window_index"


def collect_windows(
    rows: ps.MultiPipe, size: int, every: int | None = None, **options: object
) -> ps.MultiPipe:
    """The values of each count window in order, in a step called "c"."""
    pipe = rows.window(ps.count_window(size, every), name="c", **options)  # type: ignore[arg-type]  # options
    return pipe.aggregate(vs=ps.collect("v"))


@everywhere
def test_rows_are_counted_in_order_of_time_not_of_arrival(case: Case) -> None:
    rows = case.timed_source("t v", [(3, 30), (1, 10)], [(2, 20), (4, 40)], delay=10)
    case.gives(collect_windows(rows, 2), f"{WINDOW} vs", (1, 2, 0, [10, 20]), (3, 4, 1, [30, 40]))


def test_rows_of_equal_time_keep_the_order_of_their_reader(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 3), (1, 1)], [(1, 2), (0, 9)], delay=10)
    case.gives(collect_windows(rows, 2), f"{WINDOW} vs", (0, 1, 0, [9, 3]), (1, 1, 1, [1, 2]))


def test_counts_wait_for_rows_that_may_still_come_between(case: Case) -> None:
    #  W: -inf, 1, 1, 5: a windower that counts arrivals would close (1, 5) in the first batch
    rows = case.timed_source("t v", [(1, 1), (5, 5)], [(3, 3)], [(9, 9)], delay=4)
    case.gives(collect_windows(rows, 2), f"{WINDOW} vs", (1, 3, 0, [1, 3]), (5, 9, 1, [5, 9]))


def test_a_slide_makes_windows_overlap(case: Case) -> None:
    rows = case.timed_source("t v", [(t, t) for t in range(1, 6)])
    outcome = case.gives(
        collect_windows(rows, 3, 1),
        f"{WINDOW} vs",
        (1, 3, 0, [1, 2, 3]),
        (2, 4, 1, [2, 3, 4]),
        (3, 5, 2, [3, 4, 5]),
    )
    assert (outcome.account("c").passed, outcome.account("c").unfinished) == (5, 0)


def test_a_slide_longer_than_the_size_leaves_rows_out(case: Case) -> None:
    rows = case.timed_source("t v", [(t, t) for t in range(5)])
    outcome = case.gives(collect_windows(rows, 1, 3), f"{WINDOW} vs", (0, 0, 0, [0]), (3, 3, 1, [3]))
    assert (outcome.account("c").passed, outcome.account("c").no_window) == (2, 3)


def test_rows_of_a_window_that_never_fills_are_unfinished(case: Case) -> None:
    rows = case.timed_source("t v", [(t, t) for t in range(5)])
    outcome = case.gives(collect_windows(rows, 3), f"{WINDOW} vs", (0, 2, 0, [0, 1, 2]))
    assert (outcome.account("c").passed, outcome.account("c").unfinished) == (3, 2)


def test_a_partial_window_leaves_at_the_end_when_asked(case: Case) -> None:
    rows = case.timed_source("t v", [(t, t) for t in range(5)])
    outcome = case.gives(
        collect_windows(rows, 3, partial=True), f"{WINDOW} vs", (0, 2, 0, [0, 1, 2]), (3, 4, 1, [3, 4])
    )
    assert outcome.account("c").unfinished == 0


def test_all_partial_windows_of_a_slide_leave_at_the_end_when_asked(case: Case) -> None:
    rows = case.timed_source("t v", [(t, t) for t in range(4)])
    case.gives(
        collect_windows(rows, 3, 1, partial=True),
        f"{WINDOW} vs",
        (0, 2, 0, [0, 1, 2]),
        (1, 3, 1, [1, 2, 3]),
        (2, 3, 2, [2, 3]),
        (3, 3, 3, [3]),
    )


def test_rows_of_equal_time_from_two_sources_go_by_the_order_of_the_sources(case: Case) -> None:
    first = case.timed_source("t v", [], [(1, 1), (1, 2)], delay=10, name="first")
    second = case.timed_source("t v", [(1, 3)], [(0, 4)], delay=10, name="second")
    case.gives(collect_windows(second.merge(first), 2), f"{WINDOW} vs", (0, 1, 0, [4, 1]), (1, 1, 1, [2, 3]))


def test_fewer_rows_than_a_window_give_nothing(case: Case) -> None:
    outcome = case.gives(collect_windows(case.timed_source("t v", [(1, 1), (2, 2)]), 3), f"{WINDOW} vs")
    assert outcome.account("c").unfinished == 2


def test_each_key_counts_for_itself(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 1), (2, "b", 2), (3, "a", 3)], [(4, "b", 4), (5, "a", 5)])
    outcome = case.gives(
        collect_windows(rows.key_by("key"), 2),
        f"key {WINDOW} vs",
        ("a", 1, 3, 0, [1, 3]),
        ("b", 2, 4, 0, [2, 4]),
    )
    assert outcome.account("c").unfinished == 1


@pytest.mark.parametrize(("t", "late"), [(9, 1), (10, 0)])
def test_a_row_behind_the_watermark_is_late(case: Case, t: int, late: int) -> None:
    counts = collect_windows(case.timed_source("t v", [(10, 1)], [(t, 2)]), 2)
    outcome = case.run(counts, counts.late)
    assert outcome.account("c").late == late == len(outcome.rows(1))


@pytest.mark.parametrize(("t", "late"), [(7, 1), (8, 0)])
def test_lateness_makes_counting_wait(case: Case, t: int, late: int) -> None:
    rows = case.timed_source("t v", [(10, 1)], [(t, 2)])
    outcome = case.run(collect_windows(rows, 2, lateness=2))
    assert outcome.account("c").late == late


def test_a_late_row_takes_no_place_in_the_count(case: Case) -> None:
    counts = collect_windows(case.timed_source("t v", [(1, 1), (10, 10)], [(5, 5)], [(11, 11), (12, 12)]), 2)
    outcome = case.run(counts, counts.late)
    same_rows(outcome.tables[0], f"{WINDOW} vs", (1, 10, 0, [1, 10]), (11, 12, 1, [11, 12]))
    same_rows(outcome.tables[1], "t v", (5, 5))
    assert outcome.account("c").late_by_window == {"count 2": 1}


def test_negative_times_come_before_positive_ones(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (-1, 2)], [(0, 3), (-2, 4)], delay=10)
    case.gives(collect_windows(rows, 2), f"{WINDOW} vs", (-2, -1, 0, [4, 2]), (0, 1, 1, [3, 1]))


def test_windows_of_a_key_leave_in_order(case: Case) -> None:
    rows = case.timed_source("t v", [(t, t) for t in (5, 3, 1, 4, 2, 0)])
    assert case.run(collect_windows(rows, 2)).values("window_index") == [0, 1, 2]
