"""Splits, merges and what nobody reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.expr import col
from penstock.operators.aggregates import count
from penstock.operators.rows import Relay, Split
from penstock.operators.windows import KeyedWindows
from penstock.plan.plan import Ref
from penstock.timing.windows import tumbling
from tests.support.plans import PlanBuilder, PlanRun, errors_port

ROWS = [("a", 1, 0), ("b", 2, 1), ("c", 3, 2)]


def split(function: Any, n: int = 2, *, read: tuple[str, ...] = ("0", "1"), **options: Any) -> PlanRun:
    builder = PlanBuilder()
    builder.add(Split(function=function, branches=n, name="s", **options), builder.source(ROWS))
    ran = builder.run(*(Ref("s", branch) for branch in read))
    assert ran.result.accounts["s"].is_balanced
    return ran


def branch(ran: PlanRun, name: str) -> str:
    return "".join(row[0] for row in ran.rows(Ref("s", name)))


def test_an_index_sends_a_row_to_one_branch() -> None:
    ran = split(lambda row: row.v % 2)
    assert (branch(ran, "0"), branch(ran, "1")) == ("ac", "b")


def test_an_expression_gives_the_index() -> None:
    ran = split(col("v") % 2)
    assert (branch(ran, "0"), branch(ran, "1")) == ("ac", "b")


def test_several_indexes_give_a_copy_each_and_none_is_unrouted() -> None:
    ran = split(lambda row: [[0, 1, 1], None, [np.int64(1)]][row.v])
    assert (branch(ran, "0"), branch(ran, "1")) == ("a", "ac")
    account = ran.result.accounts["s"]
    assert (account.passed, account.unrouted, account.rows_out) == (2, 1, 3)


def test_rows_to_a_branch_that_nobody_reads_are_unrouted() -> None:
    ran = split(lambda row: row.v % 2, read=("1",))
    assert (ran.result.accounts["s"].passed, ran.result.accounts["s"].unrouted) == (1, 2)


def test_named_branches_get_every_row_for_which_they_are_true() -> None:
    builder = PlanBuilder()
    branches = {"small": col("v") < 2, "odd": col("v") == 1}
    builder.add(Split(branches=branches, name="s"), builder.source(ROWS))
    ran = builder.run()
    assert (branch(ran, "small"), branch(ran, "odd")) == ("ab", "b")
    assert ran.result.accounts["s"].unrouted == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2, "gave branch 2, and the branches are 0 to 1"),
        (-1, "gave branch -1, and the branches are 0 to 1"),
        (True, "gave True, not the number of a branch"),
        ("0", "gave '0', not the number of a branch"),
        ([0, None], "gave None, not the number of a branch"),
    ],
)
def test_what_is_not_a_branch_is_a_row_error(value: object, reason: str) -> None:
    builder = PlanBuilder()
    op = Split(function=lambda row: value, branches=2, on_error="dead_letter", name="s")
    out = builder.add(op, builder.source(ROWS[:1]))
    ran = builder.run()
    assert ran.rows(errors_port(out)) == [("a", 1, 0, reason, "s")]
    assert ran.result.accounts["s"].is_balanced


def test_a_predicate_that_fails_sends_the_row_to_no_branch() -> None:
    builder = PlanBuilder()
    branches = {"all": col("v") >= 0, "bad": 1 // col("v") == 1}
    builder.add(Split(branches=branches, on_error="skip", name="s"), builder.source(ROWS))
    ran = builder.run()
    assert branch(ran, "all") == "bc"
    assert ran.result.accounts["s"].errors == 1


def test_merged_streams_have_the_least_watermark() -> None:
    # the right source stays at 2, so [0, 10) waits for it, and its row at 3 is not late
    builder = PlanBuilder()
    left = builder.source([("a", 30, 1)], [("a", 31, 1)])
    right = builder.source([("b", 2, 1)], [("b", 3, 1)])
    both = builder.add(Relay(), [left, right])
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), both)
    ran = builder.run()
    assert ran.rows(out) == [(0, 10, 2), (30, 40, 2)]
    assert ran.account(out).late == 0


def test_a_source_that_has_ended_holds_nothing_back() -> None:
    # round 1: the right source has ended; the left alone moves W to 12 and closes [0, 10)
    builder = PlanBuilder()
    left = builder.source([("a", 1, 1)], [("a", 12, 1)], [("a", 2, 1)])
    right = builder.source([("b", 0, 1)])
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), [left, right])
    ran = builder.run()
    assert ran.rows(out) == [(0, 10, 2), (10, 20, 1)]
    assert ran.account(out).late == 1


def test_on_a_late_port_nothing_is_promised_so_its_windows_take_rows_of_any_age() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 100, 1)], [("a", 50, 1), ("a", 5, 1)], [("a", 6, 1)])
    first = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows)
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), Ref(first.step, "late"))
    assert builder.run().rows(out) == [(0, 10, 2), (50, 60, 1)]
