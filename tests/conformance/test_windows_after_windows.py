"""Windows after windows: a result's time lies in its window, and no result is late for the next step."""

from __future__ import annotations

import penstock as ps
from penstock import col
from tests.conformance.case import Case

FEATURE = "Windows after windows"
WINDOW = "window_start window_end"


def test_windows_of_windows_hold_the_results_that_end_with_them(case: Case) -> None:
    #  0    5    10   15   20
    #  [1   )[2  )[4  )              time of a result: one microsecond before its end
    #  [         )[        )
    rows = case.timed_source("t v", [(1, 1), (6, 2)], [(12, 4)], [(30, 8)])
    fives = rows.window(ps.tumbling(5)).aggregate(s=ps.sum("v"))
    tens = fives.window(ps.tumbling(10)).aggregate(total=ps.sum("s"), parts=ps.count())
    case.gives(tens, f"{WINDOW} total parts", (0, 10, 3, 2), (10, 20, 4, 1), (30, 40, 8, 1))


def test_results_held_back_by_lateness_are_not_late_for_the_next_window(case: Case) -> None:
    #  the first step holds [0, 5) until W = 25, and tells the next one W - 20
    batches = [[(t, 1)] for t in (1, 6, 11, 16, 21, 26)] + [[(7, 1)]] + [[(60, 1)]]
    fives = case.timed_source("t v", *batches).window(ps.tumbling(5), lateness=20).aggregate(s=ps.sum("v"))
    tens = fives.window(ps.tumbling(10), name="tens").aggregate(total=ps.sum("s"))
    outcome = case.gives(tens, f"{WINDOW} total", (0, 10, 3), (10, 20, 2), (20, 30, 2), (60, 70, 1))
    assert outcome.account("tens").late == 0


def test_no_result_is_late_downstream_when_every_batch_moves_the_watermark(case: Case) -> None:
    batches = [[(t, 1)] for t in range(40)]
    ones = case.timed_source("t v", *batches).window(ps.sliding(4, 2)).aggregate(s=ps.sum("v"))
    tens = ones.window(ps.tumbling(10), name="tens").aggregate(n=ps.count())
    # Windows [-2, 2), [0, 4), ... [38, 42): 21 of them, by their last microsecond.
    outcome = case.gives(tens, f"{WINDOW} n", (0, 10, 5), (10, 20, 5), (20, 30, 5), (30, 40, 5), (40, 50, 1))
    assert outcome.account("tens").late == 0


def test_the_busiest_keys_of_each_window_can_be_found(case: Case) -> None:
    rows = case.timed_source("t key", [(1, "a"), (2, "a"), (3, "b"), (11, "b")], [(25, "c")]).key_by("key")
    counts = rows.window(ps.tumbling(10)).aggregate(n=ps.count())
    most = counts.keyless().select("n").window(ps.tumbling(10)).aggregate(most=ps.max("n"), keys=ps.count())
    case.gives(most, f"{WINDOW} most keys", (0, 10, 2, 2), (10, 20, 1, 1), (20, 30, 1, 1))


def test_a_window_result_stays_keyed(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 1), (6, "a", 2), (7, "b", 4)]).key_by("key")
    fives = rows.window(ps.tumbling(5)).aggregate(s=ps.sum("v")).filter(col("s") > 0)
    tens = fives.window(ps.tumbling(10)).aggregate(total=ps.sum("s"))
    case.gives(tens, f"key {WINDOW} total", ("a", 0, 10, 3), ("b", 0, 10, 4))


def test_sessions_can_be_put_into_time_windows(case: Case) -> None:
    #  0  1  3   6     17  20          sessions [1, 6) and [17, 20): both happen inside [0, 20)
    rows = case.timed_source("t", [(1,), (3,), (17,)], [(50,)])
    sizes = rows.window(ps.session(3)).aggregate(n=ps.count())
    longest = sizes.window(ps.tumbling(20)).aggregate(longest=ps.max("n"), sessions=ps.count())
    case.gives(longest, f"{WINDOW} longest sessions", (0, 20, 2, 2), (40, 60, 1, 1))


def test_a_count_result_happens_with_its_last_row(case: Case) -> None:
    #  pairs (1, 12) at 12 and (13, 20) at 20
    rows = case.timed_source("t v", [(1, 1), (12, 2), (13, 4), (20, 8)])
    pairs = rows.window(ps.count_window(2)).aggregate(s=ps.sum("v"))
    tens = pairs.window(ps.tumbling(10)).aggregate(total=ps.sum("s"))
    case.gives(tens, f"{WINDOW} total", (10, 20, 3), (20, 30, 12))


def test_results_can_be_counted_in_order_of_their_windows(case: Case) -> None:
    rows = case.timed_source("t v", [(25, 3)], [(1, 1), (12, 2)], [(38, 4)], delay=30)
    sums = rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v"))
    pairs = sums.window(ps.count_window(2)).aggregate(both=ps.collect("s"))
    # The time of a result is one microsecond before its window's end: floored to the unit, its last second.
    case.gives(pairs, f"{WINDOW} window_index both", (9, 19, 0, [1, 2]), (29, 39, 1, [3, 4]))


def test_three_windows_in_a_row_agree_with_one(case: Case) -> None:
    batches = [[(t, t)] for t in (3, 1, 7, 12, 9, 25, 18, 33, 61)]
    rows = case.timed_source("t v", *batches, delay=10)
    ones = rows.window(ps.tumbling(1)).aggregate(a=ps.sum("v"))
    fives = ones.window(ps.tumbling(5)).aggregate(b=ps.sum("a"))
    twenties = fives.window(ps.tumbling(20)).aggregate(total=ps.sum("b"))
    case.gives(twenties, f"{WINDOW} total", (0, 20, 50), (20, 40, 58), (60, 80, 61))


def test_results_of_one_time_are_ordered_by_their_columns(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "b", 5), (2, "a", 7), (3, None, 6), (4, "c", None)]).key_by(
        "key"
    )
    sums = rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v")).keyless().select("s")
    pairs = sums.window(ps.count_window(4)).aggregate(n=ps.count(), all=ps.collect("s"))
    case.gives(pairs, f"{WINDOW} window_index n all", (9, 9, 0, 4, [5, 6, 7]))


def test_an_accumulator_can_follow_a_window(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 1)], [(12, "a", 2)], [(5, "a", 4)], delay=10).key_by("key")
    sums = rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v"))
    running = sums.accumulate(lambda row, total: total + row.s, 0, schema={"total": "int64"})
    assert case.run(running).bag("total") == [5, 7]
