"""Session windows: when they merge, and which late rows they still take in."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from penstock.operators.aggregates import collect
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import session
from tests.support.plans import PlanBuilder, Rows, late_port


def sessions(*batches: Rows, delay: int = 0, lateness: int = 0) -> tuple[list[Any], list[Any]]:
    builder = PlanBuilder()
    rows = builder.source(*batches, delay=delay)
    op = KeyedWindows(windows=session(5), aggregates={"all": collect("v")}, lateness=lateness)
    out = builder.add(op, rows, key=("k",))
    ran = builder.run()
    assert ran.account(out).is_balanced
    return ran.rows(out), ran.rows(late_port(out))


def test_rows_less_than_the_gap_apart_are_one_session() -> None:
    output, _ = sessions([("a", 1, 1), ("a", 5, 2), ("a", 20, 3)])
    assert output == [("a", 1, 10, [1, 2]), ("a", 20, 25, [3])]


def test_sessions_that_touch_are_one() -> None:
    # [3, 8) and [8, 13)
    output, _ = sessions([("a", 3, 1), ("a", 8, 2)])
    assert output == [("a", 3, 13, [1, 2])]


def test_sessions_one_microsecond_apart_are_two() -> None:
    output, _ = sessions([("a", 3, 1), ("a", 9, 2)])
    assert output == [("a", 3, 8, [1]), ("a", 9, 14, [2])]


def test_keys_have_sessions_of_their_own() -> None:
    output, _ = sessions([("a", 3, 1), ("b", 4, 2)])
    assert output == [("a", 3, 8, [1]), ("b", 4, 9, [2])]


def test_a_row_that_comes_later_bridges_two_open_sessions() -> None:
    # [1, 6) and [10, 15) are open (W = 0); 6 touches both
    output, dropped = sessions([("a", 1, 1), ("a", 10, 2)], [("a", 6, 3)], delay=10)
    assert output == [("a", 1, 15, [1, 3, 2])]
    assert dropped == []


def test_a_row_behind_the_watermark_is_late_when_no_open_session_takes_it_in() -> None:
    # W = 30 >= 20 + 5: late
    output, dropped = sessions([("a", 30, 1)], [("a", 20, 2)])
    assert output == [("a", 30, 35, [1])]
    assert dropped == [("a", 20, 2)]


def test_a_row_behind_the_watermark_is_taken_in_by_an_open_session() -> None:
    # W = 30 >= 25 + 5, but [30, 35) is open and touches [25, 30)
    output, dropped = sessions([("a", 30, 1)], [("a", 25, 2)])
    assert output == [("a", 25, 35, [2, 1])]
    assert dropped == []


@pytest.mark.parametrize("arrival", list(permutations([(25, 2), (21, 3), (10, 4)])))
def test_what_a_session_takes_in_does_not_depend_on_the_order_inside_a_batch(
    arrival: tuple[tuple[int, int], ...],
) -> None:
    # 25 joins [30, 35); then 21 touches [25, 35); 10 touches nothing
    output, dropped = sessions([("a", 30, 1)], [("a", time, value) for time, value in arrival])
    assert output == [("a", 21, 35, [3, 2, 1])]
    assert dropped == [("a", 10, 4)]


def test_lateness_keeps_a_session_open_for_as_long() -> None:
    # [1, 6) with lateness 4 leaves when W >= 10
    output, _ = sessions([("a", 1, 1)], [("b", 9, 0)], [("a", 4, 2)], [("b", 20, 0)], lateness=4)
    assert output[0] == ("a", 1, 9, [1, 2])
