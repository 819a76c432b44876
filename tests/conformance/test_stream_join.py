"""Joins of two streams: every pair that is close in time and fulfils the predicate, once.

Left rows are (t, key, v), right rows are (u, k, w), so that no column is meant twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import Case, same_rows

FEATURE = "Window join"
NAN = float("nan")
LEFT, RIGHT = "t key v", "u:int64 k:string w:int64"
SAME = ps.equal("key", "k")
BOTH = "t key v u k w"


def lefts(case: Case, *batches: list[tuple[Any, ...]], **options: Any) -> ps.MultiPipe:
    """The left source."""
    return case.timed_source(LEFT, *batches, name="left", **options)


def rights(case: Case, *batches: list[tuple[Any, ...]], **options: Any) -> ps.MultiPipe:
    """The right source."""
    return case.timed_source(RIGHT, *batches, name="right", **options)


def anything(left: Any, right: Any) -> bool:
    """Every pair that is close in time."""
    return True


def test_rows_join_when_they_are_within_the_bound_either_way(case: Case) -> None:
    #  u:  4  5      10      15 16
    #         [------ t ------]
    left = lefts(case, [(10, "a", 1)])
    right = rights(case, [(u, "a", u) for u in (4, 5, 10, 15, 16)])
    case.gives(
        left.join(right, on=SAME, within=5),
        BOTH,
        (10, "a", 1, 5, "a", 5),
        (10, "a", 1, 10, "a", 10),
        (10, "a", 1, 15, "a", 15),
    )


def test_the_bounds_may_differ_in_the_two_directions(case: Case) -> None:
    #  (how much older the left may be, how much older the right may be)
    #  u:  4  5        10   12 13
    #         [-------- t --]
    left = lefts(case, [(10, "a", 1)])
    right = rights(case, [(u, "a", u) for u in (4, 5, 12, 13)])
    joined = left.join(right, on=SAME, within=(2, 5))
    assert sorted(case.run(joined).values("u")) == [5, 12]


@pytest.mark.parametrize("first", ["left", "right"])
@pytest.mark.parametrize(("apart", "pairs"), [(-2, 0), (-1, 1), (0, 1), (1, 1), (2, 0)])
def test_the_bound_is_exact_to_the_microsecond_whoever_comes_first(
    case: Case, first: str, apart: int, pairs: int
) -> None:
    x, y = [(100, "a", 1)], [(100 + apart, "a", 1)]
    late: list[tuple[Any, ...]] = []
    left = lefts(case, *([x, late] if first == "left" else [late, x]), time_unit="us", delay=50)
    right = rights(case, *([late, y] if first == "left" else [y, late]), time_unit="us", delay=50)
    assert len(case.run(left.join(right, on=SAME, within="1 us")).rows()) == pairs


@pytest.mark.parametrize(("i", "j"), list(product(range(3), range(3))))
def test_a_pair_leaves_once_whichever_round_its_rows_come_in(case: Case, i: int, j: int) -> None:
    at: list[list[tuple[Any, ...]]] = [[], [], []]
    there = [list(batch) for batch in at]
    at[i], there[j] = [(10, "a", 1)], [(12, "a", 2)]
    joined = lefts(case, *at, delay=100).join(rights(case, *there, delay=100), on=SAME, within=5)
    case.gives(joined, BOTH, (10, "a", 1, 12, "a", 2))


def test_every_left_row_meets_every_right_row(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (2, "a", 2)], [(3, "a", 3)], delay=10)
    right = rights(case, [(2, "a", 10)], [(1, "a", 20), (3, "a", 30)], delay=10)
    got = case.run(left.join(right, on=SAME, within=10)).rows()
    assert sorted((row["v"], row["w"]) for row in got) == list(product((1, 2, 3), (10, 20, 30)))


def test_a_column_they_are_equal_on_comes_once(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (1, "b", 2)])
    right = case.timed_source("u:int64 key w:int64", [(2, "a", 3)], name="right")
    case.gives(left.join(right, on="key", within=5), "t key v u w", (1, "a", 1, 2, 3))


def test_a_suffix_tells_columns_of_one_name_apart(case: Case) -> None:
    left = lefts(case, [(1, "a", 1)])
    right = case.timed_source("t key v", [(2, "a", 3)], name="right")
    joined = left.join(right, on="key", within=5, suffix="_right")
    case.gives(joined, "t key v t_right v_right", (1, "a", 1, 2, 3))


def test_null_equals_nothing_and_nan_equals_nan(case: Case) -> None:
    left = case.timed_source("t x:float64", [(1, NAN), (1, None), (1, 0.0)], name="left")
    right = case.timed_source("u:int64 y:float64", [(1, NAN), (1, None), (1, -0.0)], name="right")
    case.gives(
        left.join(right, on=ps.equal("x", "y"), within=1), "t x u y", (1, NAN, 1, NAN), (1, 0.0, 1, -0.0)
    )


def test_a_band_joins_numbers_that_are_close(case: Case) -> None:
    left = lefts(case, [(1, "a", 100), (1, "b", None)])
    right = rights(case, [(1, "x", w) for w in (89, 90, 110, 111)] + [(1, "y", None)])
    joined = left.join(right, on=ps.band("v", "w", 10), within=5)
    assert sorted(case.run(joined).values("w")) == [90, 110]


def test_a_strict_band_leaves_its_edges_out(case: Case) -> None:
    left = lefts(case, [(1, "a", 100)])
    right = rights(case, [(1, "x", w) for w in (90, 91, 109, 110)])
    joined = left.join(right, on=ps.band("v", "w", 10, strict=True), within=5)
    assert sorted(case.run(joined).values("w")) == [91, 109]


def test_a_band_of_great_integers_is_exact(case: Case) -> None:
    most, least = 2**63 - 1, -(2**63)
    left = lefts(case, [(1, "a", most), (1, "b", least)])
    right = rights(case, [(1, "x", most - 1), (1, "y", most - 2), (1, "z", least + 1)])
    joined = left.join(right, on=ps.band("v", "w", 1), within=5)
    assert sorted((row["key"], row["k"]) for row in case.run(joined).rows()) == [("a", "x"), ("b", "z")]


def test_nan_is_close_to_nothing(case: Case) -> None:
    left = case.timed_source("t x:float64", [(1, NAN), (1, 1.0)], name="left")
    right = case.timed_source("u:int64 y:float64", [(1, NAN), (1, 1.5)], name="right")
    case.gives(left.join(right, on=ps.band("x", "y", 1), within=1), "t x u y", (1, 1.0, 1, 1.5))


def test_any_function_of_both_rows_can_be_the_predicate(case: Case) -> None:
    left = lefts(case, [(1, "ab", 1), (2, "b", 2)])
    right = rights(case, [(1, "a", 1), (1, "b", 2)])
    joined = left.join(right, on=lambda x, y: y.k in x.key, within=5)
    assert sorted((row["key"], row["k"]) for row in case.run(joined).rows()) == [
        ("ab", "a"),
        ("ab", "b"),
        ("b", "b"),
    ]


def test_several_predicates_must_all_hold(case: Case) -> None:
    left = lefts(case, [(1, "a", 10)])
    right = rights(case, [(1, "a", 11), (1, "a", 30), (1, "b", 11), (1, "a", 9)])
    joined = left.join(right, on=[SAME, ps.band("v", "w", 5), lambda x, y: y.w > x.v], within=5)
    case.gives(joined, BOTH, (1, "a", 10, 1, "a", 11))


def test_a_row_waits_for_partners_until_the_watermark_has_passed_its_bound(case: Case) -> None:
    #  left 95, within 5: a right row at 100 may come as long as W <= 100
    left = lefts(case, [(95, "a", 1), (100, "z", 0)], [], [])
    right = rights(case, [(100, "z", 0)], [(100, "a", 2)], [])
    got = case.run(left.join(right, on=SAME, within=5)).rows()
    assert sorted((row["t"], row["u"]) for row in got) == [(95, 100), (100, 100)]


@pytest.mark.parametrize(("t", "lateness", "late"), [(99, 0, 1), (100, 0, 0), (97, 2, 1), (98, 2, 0)])
def test_a_row_behind_the_watermark_of_both_sides_is_late(
    case: Case, t: int, lateness: int, late: int
) -> None:
    left = lefts(case, [(100, "a", 1)], [(t, "a", 2)])
    right = rights(case, [(120, "a", 3)], [])
    joined = left.join(right, on=SAME, within=1000, lateness=lateness, name="j")
    outcome = case.run(joined, joined.late, joined.late_right)
    assert (len(outcome.rows(0)), len(outcome.rows(1)), len(outcome.rows(2))) == (2 - late, late, 0)
    assert outcome.account("j").late == late


def test_late_rows_of_the_right_have_an_output_of_their_own(case: Case) -> None:
    left = lefts(case, [(100, "a", 1)], [(101, "a", 1)])
    right = rights(case, [(100, "b", 1)], [(5, "a", 2)])
    joined = left.join(right, on=SAME, within=1000)
    outcome = case.run(joined, joined.late, joined.late_right)
    assert (outcome.rows(0), outcome.rows(1)) == ([], [])
    same_rows(outcome.tables[2], "u k w", (5, "a", 2))


def test_a_pair_happens_at_the_later_of_its_two_times(case: Case) -> None:
    left = lefts(case, [(9, "a", 1), (12, "b", 1)])
    right = rights(case, [(11, "a", 1), (8, "b", 1)])
    counts = left.join(right, on=SAME, within=5).window(ps.tumbling(10)).aggregate(at=ps.event_time_max())
    case.gives(counts, "window_start window_end at", (10, 20, 12))


def test_pairs_are_in_time_for_a_window_behind_the_join(case: Case) -> None:
    left = lefts(case, *([(t, "a", 1)] for t in range(0, 40, 2)))
    right = rights(case, *([(t + 1, "a", 1)] for t in range(0, 40, 2)))
    pairs = left.join(right, on=SAME, within=1).window(ps.tumbling(10), name="w").aggregate(n=ps.count())
    # (t, t + 1) and (t + 2, t + 1): ten a window, less the one before the first row.
    outcome = case.gives(
        pairs, "window_start window_end n", (0, 10, 9), (10, 20, 10), (20, 30, 10), (30, 40, 10)
    )
    assert outcome.account("w").late == 0


def test_rows_of_one_tumbling_window_can_be_paired(case: Case) -> None:
    #  0         10        20
    #  [t t    u )[u       )
    left = lefts(case, [(0, "a", 1), (9, "a", 2), (10, "a", 3)])
    right = rights(case, [(9, "a", 4), (10, "a", 5), (19, "b", 6)])
    got = case.run(left.join(right, on=SAME, window=ps.tumbling(10))).rows()
    assert sorted((row["v"], row["w"]) for row in got) == [(1, 4), (2, 4), (3, 5)]


@pytest.mark.parametrize(("latest", "late"), [(9, 0), (10, 1)])
def test_in_a_join_by_window_a_row_is_late_when_its_window_has_left(
    case: Case, latest: int, late: int
) -> None:
    left = lefts(case, [(latest, "z", 1)], [(1, "a", 2)])
    right = rights(case, [(3, "a", 3), (latest, "y", 1)], [])
    outcome = case.run(left.join(right, on=SAME, window=ps.tumbling(10), name="j"))
    assert (outcome.account("j").late, len(outcome.rows())) == (late, 1 - late)


@pytest.mark.parametrize("layout", [(1, 1), (2, 3), (4, 1)])
def test_the_layout_of_workers_does_not_change_the_pairs(case: Case, layout: tuple[int, int]) -> None:
    left = lefts(case, [(t, "ab"[t % 2], t) for t in range(6)])
    right = rights(case, [(t, "ab"[t % 2], t) for t in range(6)])
    got = case.run(left.join(right, on=anything, within=1, layout=layout)).rows()
    wanted = [(t, u) for t in range(6) for u in range(6) if abs(t - u) <= 1]
    assert sorted((row["t"], row["u"]) for row in got) == wanted


def test_a_stream_can_be_joined_with_itself(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (2, 2), (9, 3)])
    other = rows.select(u=ps.col("t"), w=ps.col("v"))
    got = case.run(rows.join(other, on=lambda x, y: x.v < y.w, within=2)).rows()
    assert [(row["v"], row["w"]) for row in got] == [(1, 2)]


def test_an_empty_side_gives_no_pairs(case: Case) -> None:
    case.gives(lefts(case, [(1, "a", 1)]).join(rights(case), on=SAME, within=5), BOTH)


def test_every_row_that_is_not_late_has_passed(case: Case) -> None:
    left = lefts(case, [(100, "a", 1)], [(1, "a", 2)])
    right = rights(case, [(100, "b", 1)], [(101, "a", 2)])
    account = case.run(left.join(right, on=SAME, within=5, name="j")).account("j")
    assert (account.rows_in, account.passed, account.late, account.rows_out) == (4, 3, 1, 1)


def test_a_row_meets_itself_in_a_join_of_a_stream_with_itself(case: Case) -> None:
    rows = case.timed_source("t key v", [(1, "a", 1), (2, "a", 2)], [(3, "b", 3), (9, "a", 4)])
    joined = rows.join(rows, on="key", within=1, suffix="_r", name="j")
    outcome = case.run(joined)
    assert sorted((row["v"], row["v_r"]) for row in outcome.rows()) == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (3, 3),
        (4, 4),
    ]
    assert outcome.account("j").rows_in == 8


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_stream_without_nulls_is_never_alone_beside_itself(case: Case, how: Any) -> None:
    rows = case.timed_source("t key v", *([(t, "ab"[t % 2], t)] for t in range(6)))
    got = case.run(rows.join(rows, on="key", within=2, how=how, suffix="_r")).rows()
    wanted = [(t, u) for t in range(6) for u in range(6) if t % 2 == u % 2 and abs(t - u) <= 2]
    assert sorted((row["v"], row["v_r"]) for row in got) == wanted


def third(case: Case, *batches: list[tuple[Any, ...]], **options: Any) -> ps.MultiPipe:
    """A third source, (s, name, x)."""
    return case.timed_source("s:int64 name:string x:int64", *batches, name="third", **options)


def test_three_streams_join_by_two_joins(case: Case) -> None:
    #  the pair (1, 4) happens at 4, so a third row at 8 is within 4 of it; the pair (1, 2) happens at 2
    pairs = lefts(case, [(1, "a", 1)]).join(
        rights(case, [(2, "a", 2), (4, "a", 4), (1, "b", 9)]), on=SAME, within=4
    )
    joined = pairs.join(third(case, [(8, "a", 5), (8, "b", 6)]), on=ps.equal("k", "name"), within=4)
    case.gives(joined, f"{BOTH} s name x", (1, "a", 1, 4, "a", 4, 8, "a", 5))


@pytest.mark.parametrize("how", ["left", "right", "full", "semi", "anti"])
def test_joins_behind_other_kinds_of_joins_lose_no_row_to_lateness(case: Case, how: Any) -> None:
    left = lefts(case, *([(t, "ab"[t % 2], t)] for t in range(20)))
    right = rights(case, *([(t, "a", t)] for t in range(20)))
    first = left.join(right, on=SAME, within=(2, 1), how=how, name="first")
    joined = first.join(
        third(case, *([(t, "a", t)] for t in range(20))), on=ps.equal("key", "name"), within=3, name="second"
    )
    assert case.run(joined).account("second").late == 0


def test_three_streams_join_in_either_grouping(case: Case) -> None:
    xs = [(t, "ab"[t % 2], t) for t in range(6)]
    inner = rights(case, xs).join(third(case, xs), on=ps.equal("k", "name"), within=100)
    joined = lefts(case, xs).join(inner, on=SAME, within=100)
    got = sorted((row["v"], row["w"], row["x"]) for row in case.run(joined).rows())
    assert got == [combo for combo in product(range(6), repeat=3) if len({n % 2 for n in combo}) == 1]


def test_times_before_1970_join(case: Case) -> None:
    left, right = lefts(case, [(-3, "a", 1)]), rights(case, [(-6, "a", 1), (-5, "a", 2), (1, "a", 3)])
    joined = left.join(right, on=SAME, within=(4, 2))
    assert sorted(case.run(joined).values("u")) == [-5, 1]


@pytest.mark.parametrize(("within", "us"), [((0, 3), [7, 8, 9, 10]), ((3, 0), [10, 11, 12, 13]), (0, [10])])
def test_a_bound_of_zero_lets_that_side_be_no_older(case: Case, within: Any, us: list[int]) -> None:
    left = lefts(case, [(10, "a", 1)])
    right = rights(case, [(u, "a", u) for u in range(5, 16)])
    assert sorted(case.run(left.join(right, on=SAME, within=within)).values("u")) == us


def test_rows_of_one_time_all_meet(case: Case) -> None:
    left = lefts(case, [(5, "a", v) for v in range(3)], [(5, "a", 3)])
    right = rights(case, [(5, "a", 7)], [(5, "a", w) for w in (8, 9)])
    got = case.run(left.join(right, on=SAME, within=0)).rows()
    assert sorted((row["v"], row["w"]) for row in got) == list(product(range(4), (7, 8, 9)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_slower_side_holds_the_watermark_back(case: Case, side: str) -> None:
    #  one side is at 100, the other at 10: a row at 10 on either side is in time
    fast: list[list[tuple[Any, ...]]] = [[(100, "z", 0)], [(10, "a", 1)]]
    slow: list[list[tuple[Any, ...]]] = [[(10, "y", 0)], [(12, "a", 2)]]
    left = lefts(case, *(fast if side == "left" else slow))
    right = rights(case, *(slow if side == "left" else fast))
    outcome = case.run(left.join(right, on=SAME, within=5, name="j"))
    assert (len(outcome.rows()), outcome.account("j").late) == (1, 0)


def test_late_rows_of_both_sides_join_nothing_with_each_other(case: Case) -> None:
    left = lefts(case, [(100, "z", 1)], [(5, "a", 2)])
    right = rights(case, [(100, "y", 1)], [(5, "a", 2)])
    joined = left.join(right, on=SAME, within=1000, name="j")
    outcome = case.run(joined, joined.late, joined.late_right)
    assert [len(outcome.rows(n)) for n in range(3)] == [0, 1, 1]
    assert (outcome.account("j").passed, outcome.account("j").late) == (2, 2)


def test_a_late_row_may_be_joined_elsewhere(case: Case) -> None:
    left = lefts(case, [(100, "z", 1)], [(5, "a", 2)])
    right = rights(case, [(100, "y", 1)], [(6, "b", 2)])
    late = left.join(right, on=SAME, within=1).late
    case.gives(late, "t key v", (5, "a", 2))


def test_a_join_behind_windows(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (2, "a", 2), (11, "a", 3)]).key_by("key")
    right = rights(case, [(3, "a", 5), (12, "a", 6)]).key_by("k")
    sums = left.window(ps.tumbling(10)).aggregate(v=ps.sum("v")).select("key", "v")
    maxima = right.window(ps.tumbling(10)).aggregate(w=ps.max("w")).select("k", "w")
    joined = sums.join(maxima, on=SAME, within=0)
    case.gives(joined, "key v k w", ("a", 3, "a", 5), ("a", 3, "a", 6))


def test_a_keyed_window_behind_a_join(case: Case) -> None:
    left = lefts(case, *([(t, "ab"[t % 2], t)] for t in range(20)))
    right = rights(case, *([(t, "ab"[t % 2], t)] for t in range(20)))
    joined = left.join(right, on=SAME, within=0).key_by("key")
    sums = joined.window(ps.tumbling(10)).aggregate(n=ps.count(), s=ps.sum("w"))
    case.gives(
        sums,
        "key window_start window_end n s",
        ("a", 0, 10, 5, 20),
        ("b", 0, 10, 5, 25),
        ("a", 10, 20, 5, 70),
        ("b", 10, 20, 5, 75),
    )


@pytest.mark.parametrize(("left", "right"), [(0, 0), (3, 0), (0, 3)])
def test_an_empty_side_gives_no_pairs_whichever_it_is(case: Case, left: int, right: int) -> None:
    rows = [[(t, "a", t)] for t in range(3)]
    case.gives(lefts(case, *rows[:left]).join(rights(case, *rows[:right]), on=SAME, within=5), BOTH)


def test_timestamps_join_within_a_timedelta(case: Case) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)
    left = case.timed_source("t:timestamp[us,UTC] v", [(start, 1)], name="left")
    right = case.timed_source(
        "u:timestamp[us,UTC] w:int64",
        [(start + timedelta(microseconds=n), n) for n in (-1, 0, 1_500_000, 1_500_001)],
        name="right",
    )
    joined = left.join(right, on=anything, within=(timedelta(seconds=1.5), "0 s"))
    assert sorted(case.run(joined).values("w")) == [0, 1_500_000]
