"""All four patterns, at every degree, give what the reference engine gives: rows, late rows and accounts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate
from penstock.operators.windows import PATTERNS, KeyedWindows, possible_patterns
from penstock.timing.windows import sliding, tumbling
from tests.support.patterns import by_pattern
from tests.support.window_cases import REGISTERS, WIDE, cut, small, timed, wide_rows
from tests.support.windows import Case, assert_same, by_reference, case

pytestmark = pytest.mark.slow

LAW = settings(deadline=None, max_examples=40)
ENDS: dict[str, Aggregate] = {
    "first_v": spec.first("v"),
    "last_v": spec.last("v"),
    "first_x": spec.first("x"),
    "last_x": spec.last("x"),
}
TRIED = {**REGISTERS, **ENDS}
several = st.one_of(timed, st.dictionaries(st.sampled_from("xyz"), timed, min_size=1, max_size=3))
degrees = st.integers(1, 6)


@st.composite
def numbered_cases(draw: st.DrawFn) -> Case:
    """Rows that come far behind the watermark more often than not, and always a fold and an end of theirs."""
    names = [
        *draw(st.lists(st.sampled_from(sorted(REGISTERS)), max_size=2)),
        draw(st.sampled_from(list(ENDS))),
    ]
    op = KeyedWindows(
        windows=draw(several),
        aggregates={name: TRIED[name] for name in ["folded", *names]},
        lateness=draw(small),
    )
    batches = cut(draw(wide_rows), draw(st.lists(st.integers(0, 30), min_size=1, max_size=6)))
    key = draw(st.sampled_from([("k",), ("k", "word"), ()]))
    return case(op, batches, seq=True, key=key, delay=draw(st.integers(0, 8)), schema=WIDE)


@pytest.mark.parametrize("pattern", PATTERNS)
@LAW
@given(case=numbered_cases(), degree=degrees, joining=degrees)
def test_every_pattern_and_degree_gives_the_rows_late_rows_and_accounts_of_the_reference_engine(
    pattern: str, case: Case, degree: int, joining: int
) -> None:
    assert pattern in possible_patterns(case.op, case.up, totally_ordered=True)
    assert_same(by_pattern(case, pattern, degree, joining=joining), by_reference(case))


ROWS: list[list[Any]] = [
    [("a", 1, 5, 0.5, "one", None), ("b", 12, None, None, "two", None), ("a", 14, 7, 1.5, None, None)],
    [("a", 2, 9, 2.5, "one", None), ("b", 31, 1, 0.0, "two", None), ("a", 6, 2, None, "é", None)],
    [("a", -30, 4, 1.0, "", None), ("b", 13, 3, 2.0, "two", None), ("a", 33, 8, 8.0, "one", None)],
]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("degree", range(1, 8))
def test_late_rows_are_late_once_whoever_gets_them(pattern: str, degree: int) -> None:
    windows = {"short": tumbling(5), "long": sliding(20, 10), "odd": sliding(7, 3)}
    op = KeyedWindows(windows=windows, aggregates={"n": spec.count(), **ENDS}, lateness=3)
    judged = case(op, ROWS, seq=True, delay=2, schema=WIDE)
    result = by_pattern(judged, pattern, degree, joining=2)
    assert_same(result, by_reference(judged))
    assert result.accounts.late == 1  # of the time -30: long windows still take 13 in, which misses others
    assert sum(result.accounts.late_by_window.values()) > result.accounts.late
