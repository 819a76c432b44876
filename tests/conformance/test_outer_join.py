"""Outer joins: rows without a partner leave too, with nulls, once no partner can come any more."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from tests.conformance.case import Case
from tests.conformance.engines import JOINS, not_yet
from tests.conformance.test_stream_join import BOTH, SAME, lefts, rights

FEATURE = "Outer joins"
pytestmark = not_yet("spark", reason=JOINS)

OUTER: dict[str, list[tuple[Any, ...]]] = {
    "inner": [(1, "a", 1, 2, "a", 10)],
    "left": [(1, "a", 1, 2, "a", 10), (1, "b", 2, None, None, None)],
    "right": [(1, "a", 1, 2, "a", 10), (None, None, None, 3, "c", 20)],
    "full": [(1, "a", 1, 2, "a", 10), (1, "b", 2, None, None, None), (None, None, None, 3, "c", 20)],
}


@pytest.mark.parametrize("how", list(OUTER))
def test_rows_without_a_partner_leave_with_nulls_in_outer_joins(case: Case, how: Any) -> None:
    left = lefts(case, [(1, "a", 1), (1, "b", 2)], [(50, "z", 0)], delay=1)
    right = rights(case, [(2, "a", 10)], [(3, "c", 20)], delay=1)
    zs: list[tuple[Any, ...]] = [(50, "z", 0, None, None, None)] if how in ("left", "full") else []
    case.gives(left.join(right, on=SAME, within=5, how=how), BOTH, *OUTER[how], *zs)


def test_a_shared_column_of_a_right_row_alone_is_its_own(case: Case) -> None:
    left = lefts(case, [(1, "a", 1)])
    right = case.timed_source("u:int64 key w:int64", [(2, "b", 3)], name="right")
    case.gives(
        left.join(right, on="key", within=5, how="full"),
        "t key v u w",
        (1, "a", 1, None, None),
        (None, "b", None, 2, 3),
    )


def test_an_outer_row_waits_until_no_partner_can_come(case: Case) -> None:
    #  left 10 within 5 of a right row at 15, which comes when W = 12
    left = lefts(case, [(10, "a", 1), (12, "z", 0)], [(16, "z", 1)], [(40, "z", 2)])
    right = rights(case, [(12, "y", 0)], [(15, "a", 7)], [(40, "y", 1)])
    outcome = case.run(left.join(right, on=SAME, within=5, how="left"))
    assert [(row["v"], row["w"]) for row in outcome.rows() if row["key"] == "a"] == [(1, 7)]


def test_rows_that_leave_alone_are_in_time_for_a_window_behind_the_join(case: Case) -> None:
    left = lefts(case, *([(t, "a", 1)] for t in range(0, 40, 2)))
    right = rights(case, *([(t, "b", 1)] for t in range(0, 40, 2)))
    alone = left.join(right, on=SAME, within=7, how="full").window(ps.tumbling(20), name="w")
    outcome = case.gives(
        alone.aggregate(n=ps.count()), "window_start window_end n", (0, 20, 20), (20, 40, 20)
    )
    assert outcome.account("w").late == 0
