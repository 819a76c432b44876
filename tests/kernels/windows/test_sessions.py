"""Runs into sessions, and cells put together, by the loops as they are written and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.accumulate import COUNT, MAX, MAX_COUNT, MOMENTS, add_parts, build_rule_loop
from penstock.kernels.windows.folds import build_fold_rule
from penstock.kernels.windows.sessions import NO_SESSION, assign_sessions

GAP = 3
SPEEDS = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])


class Lists:
    """Sessions of two slots in arrays of 64, as `OpenSessions` has them."""

    def __init__(self, compiled: bool) -> None:
        self.newest, self.older = np.full(2, NO_SESSION), np.full(64, NO_SESSION)
        self.opens, self.closes = np.zeros(64, np.int64), np.zeros(64, np.int64)
        self.free = list(range(64))
        self.place = assign_sessions.version(compiled)

    def add(self, slot: int, start: int, end: int, must_touch: bool = False) -> int:
        home, lost, survivor = (np.full(64, NO_SESSION) for _ in range(3))
        run = (np.array([slot]), np.array([start]), np.array([end]), int(must_touch))
        lists = (self.newest, self.older, self.opens, self.closes)
        self.place(*run, *lists, np.array(self.free), home[:1], lost, survivor)
        self.free = [item for item in self.free if item != home[0]]
        return int(home[0])

    def of(self, slot: int) -> list[tuple[int, int]]:
        """The sessions of a slot, the oldest first."""
        result, here = list[tuple[int, int]](), int(self.newest[slot])
        while here != NO_SESSION:
            result.append((int(self.opens[here]), int(self.closes[here])))
            here = int(self.older[here])
        return result[::-1]


def plainly(runs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """All runs joined where they touch."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(runs):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


@SPEEDS
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60)), max_size=15))
@settings(deadline=None, derandomize=True)
def test_runs_in_any_order_make_the_sessions_that_sorting_makes(
    compiled: bool, runs: list[tuple[int, int]]
) -> None:
    lists = Lists(compiled)
    for slot, start in runs:
        lists.add(slot, start, start + GAP)
    for slot in (0, 1):
        assert lists.of(slot) == plainly([(start, start + GAP) for owner, start in runs if owner == slot])


@SPEEDS
def test_a_run_that_must_touch_opens_no_session(compiled: bool) -> None:
    lists = Lists(compiled)
    lists.add(0, 10, 13)
    assert lists.add(0, 2, 5, must_touch=True) == NO_SESSION
    assert lists.add(0, 7, 10, must_touch=True) != NO_SESSION
    assert lists.of(0) == [(7, 13)]


@SPEEDS
@pytest.mark.parametrize(
    ("rule", "cells", "expected"),
    [
        (COUNT, [[1], [2], [4]], [7]),
        (MAX, [[1], [9], [4]], [9]),
        (MAX_COUNT, [[5, 1], [5, 2], [3, 7]], [5, 3]),
        (MOMENTS, [[1.0, 2.0, 0.0], [1.0, 4.0, 0.0], [1.0, 6.0, 0.0]], [3.0, 4.0, 8.0]),
    ],
    ids=["count", "greatest", "counted", "moments"],
)
def test_cells_are_put_together_in_the_target(
    compiled: bool, rule: Any, cells: list[list[float]], expected: list[float]
) -> None:
    state = np.array(cells, rule.dtype)
    merge = build_rule_loop(add_parts, rule).version(compiled)
    merge(np.array([0, 0]), state[1:], state, np.zeros(1, np.int64))
    assert state[0].tolist() == expected


@pytest.mark.slow
@SPEEDS
def test_cells_of_a_users_fold_are_put_together_by_its_combine(compiled: bool) -> None:
    rule = build_fold_rule("longest", lambda a, b: (max(a[0], b[0]), a[1] + b[1]), (0.0, 0.0), alone=False)
    state = np.array([[2.0, 1.0], [5.0, 1.0], [3.0, 4.0]])
    merge = build_rule_loop(add_parts, rule).version(compiled)
    merge(np.array([0, 0]), state[1:], state, np.zeros(1, np.int64))
    assert state[0].tolist() == [5.0, 6.0]
