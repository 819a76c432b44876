"""Early results of the window stage: at the end of a batch, when the clock says so, what has changed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import tumbling
from tests.support.window_cases import SKETCHES, early_cases, ticks
from tests.support.windows import Case, Driven, assert_same, by_stage, case, shown_by_reference

LAW = settings(deadline=None, derandomize=True, max_examples=80)


@pytest.mark.slow
@LAW
@given(early_cases(), ticks)
def test_early_results_are_those_of_the_reference_engine(case: Case, ticks: list[int]) -> None:
    assert_same(by_stage(case, ticks), shown_by_reference(case, ticks), approximate=tuple(SKETCHES))


def test_a_window_is_shown_again_only_when_it_has_changed() -> None:
    op = KeyedWindows(
        windows=tumbling(10), aggregates={"n": spec.count(), "all": spec.collect("v")}, early="1 us"
    )
    driven = Driven(case(op, [[("a", 1, 1), ("b", 2, 2)], [("a", 3, 3)], [("a", 15, 4)]]))
    firings = []
    for rows in driven.case.batches:
        driven.clock.advance(1)
        driven.push(rows)
        firings.append([row for batch in driven.out["out"] for row in batch.rows.to_pylist()])
        driven.out["out"].clear()
    a = {"k": "a", "window_start": 0, "window_end": 10, "n": 1, "all": [1], "final": False}
    b = {**a, "k": "b", "all": [2]}
    assert firings[0] == [a, b]
    assert firings[1] == [{**a, "n": 2, "all": [1, 3]}]
    assert firings[2] == [
        {**a, "n": 2, "all": [1, 3], "final": True},
        {**b, "final": True},
        {**a, "window_start": 10, "window_end": 20, "all": [4]},
    ]
