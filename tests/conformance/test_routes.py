"""Split, merge and copies: where each row goes, and that none gets lost on the way."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, same_rows

FEATURE = "Split, merge and broadcast"


def test_a_function_sends_each_row_to_the_branch_of_its_index(case: Case) -> None:
    even, odd = case.untimed_source("v", [(1,), (2,)], [(3,), (4,)]).split(lambda row: row.v % 2, 2)
    outcome = case.run(even, odd)
    same_rows(outcome.tables[0], "v", (2,), (4,))
    same_rows(outcome.tables[1], "v", (1,), (3,))


def test_an_expression_can_give_the_index(case: Case) -> None:
    branches = case.untimed_source("v", [(1,), (2,), (3,)]).split(col("v") % 3, 3)
    outcome = case.run(*branches)
    assert [outcome.bag("v", i) for i in range(3)] == [[3], [1], [2]]


def test_several_indexes_mean_a_copy_each_and_none_is_unrouted(case: Case) -> None:
    def where(row: ps.Row) -> object:
        return {1: [0, 1], 2: None, 3: 1}[row["v"]]

    a, b = case.untimed_source("v", [(1,), (2,), (3,)]).split(where, 2, name="s")
    outcome = case.run(a, b)
    assert (outcome.bag("v", 0), outcome.bag("v", 1)) == ([1], [1, 3])
    account = outcome.account("s")
    assert (account.rows_in, account.rows_out, account.passed, account.unrouted) == (3, 3, 2, 1)


def test_named_branches_take_every_row_they_are_true_for(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (5,), (10,), (None,)])
    branches = rows.split(small=col("v") < 6, big=col("v") > 4, name="s")
    outcome = case.run(branches["small"], branches["big"])
    assert (outcome.bag("v", 0), outcome.bag("v", 1)) == ([1, 5], [5, 10])
    assert (outcome.account("s").passed, outcome.account("s").unrouted) == (3, 1)


def test_rows_of_a_branch_that_nobody_reads_are_counted(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (2,), (3,)])
    branches = rows.split(lambda row: [0, 1] if row.v == 2 else row.v % 2, 2, name="s")
    outcome = case.run(branches[0])
    assert outcome.bag("v") == [2]
    assert (outcome.account("s").passed, outcome.account("s").unrouted) == (1, 2)


def test_split_branches_go_their_own_ways_and_meet_again(case: Case) -> None:
    even, odd = case.untimed_source("v", [(1,), (2,)], [(3,)]).split(lambda row: row.v % 2, 2)
    both = even.with_columns(v=col("v") * 100).merge(odd.with_columns(v=col("v") * -1))
    case.gives(both, "v", (-1,), (200,), (-3,))


def test_a_pipe_used_twice_sends_every_row_both_ways(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (2,)])
    outcome = case.run(rows.with_columns(v=col("v") * 10), rows.filter(col("v") > 1))
    assert (outcome.bag("v", 0), outcome.bag("v", 1)) == ([10, 20], [2])


def test_merge_takes_all_rows_of_all_pipes(case: Case) -> None:
    a = case.untimed_source("v", [(1,)], [(2,)], name="a")
    b = case.untimed_source("v", [(3,)], name="b")
    c = case.untimed_source("v", [], [(4,)], [(4,)], name="c")
    case.gives(a.merge(b, c), "v", (1,), (2,), (3,), (4,), (4,))


def test_a_merged_pipe_used_twice_sends_every_row_both_ways(case: Case) -> None:
    a = case.timed_source("t key v", [(1, "x", 1)], [(12, "y", 2)], name="a").key_by("key")
    b = case.timed_source("t key v", [(2, "x", 4)], [(13, "x", 8)], name="b").key_by("key")
    both = a.merge(b)
    sums = both.window(ps.tumbling(10)).aggregate(s=ps.sum("v"))
    outcome = case.run(sums, both.filter(col("v") > 1), both.with_columns(v=col("v") * 10))
    assert outcome.bag("s", 0) == [2, 5, 8]
    assert (outcome.bag("v", 1), outcome.bag("v", 2)) == ([2, 4, 8], [10, 20, 40, 80])


def test_merged_pipes_of_one_key_stay_keyed(case: Case) -> None:
    a = case.timed_source("t key v", [(1, "x", 1)], name="a").key_by("key")
    b = case.timed_source("t key v", [(2, "x", 2), (3, "y", 4)], name="b").key_by("key")
    sums = a.merge(b).window(ps.tumbling(10)).aggregate(s=ps.sum("v"))
    case.gives(sums, "key window_start window_end s", ("x", 0, 10, 3), ("y", 0, 10, 4))


def test_windows_after_a_split_and_a_merge_hold_every_row(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (2, 2)], [(11, 3)], [(25, 4)])
    even, odd = rows.split(lambda row: row.v % 2, 2)
    sums = even.merge(odd).window(ps.tumbling(10)).aggregate(s=ps.sum("v"))
    case.gives(sums, "window_start window_end s", (0, 10, 3), (10, 20, 3), (20, 30, 4))


def test_a_branch_without_rows_does_not_hold_windows_back(case: Case) -> None:
    #  the watermark passes a split on every branch, rows or not
    rows = case.timed_source("t v", [(1, 1)], [(30, 1)], [(2, 1)])
    never, always = rows.split(lambda row: row.v, 2)
    result = case.run(never.merge(always).window(ps.tumbling(10), name="w").aggregate(n=ps.count()))
    assert result.account("w").late == 1


@pytest.mark.parametrize("degree", [1, 3])
def test_broadcast_gives_every_replica_every_row(case: Case, degree: int) -> None:
    rows = case.untimed_source("v", [(1,)], [(2,)])
    copies = rows.with_columns(v=col("v") * 10, routing="broadcast", parallelism=degree, name="copies")
    case.gives(copies, "v", *[(10,), (20,)] * degree)


@pytest.mark.parametrize("routing", ["forward", "rebalance"])
def test_other_routings_give_every_row_once(case: Case, routing: str) -> None:
    rows = case.untimed_source("v", [(1,), (2,)], [(3,)], parallelism=2)
    case.gives(rows.with_columns(v=col("v") * 10, routing=routing, parallelism=3), "v", (10,), (20,), (30,))


def test_a_split_may_part_again(case: Case) -> None:
    low, high = case.untimed_source("v", [(v,) for v in range(6)]).split(lambda row: row.v // 3, 2)
    even, odd = low.split(lambda row: row.v % 2, 2)
    outcome = case.run(even, odd, high)
    assert [outcome.bag("v", i) for i in range(3)] == [[0, 2], [1], [3, 4, 5]]
