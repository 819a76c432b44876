"""The window stage against the reference engine, on any windows, aggregates, keys and cuts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.support.window_cases import SKETCHES, cases, sessions, several_counts, some_registers, timed
from tests.support.windows import Case, agree

LAW = settings(deadline=None, derandomize=True, max_examples=100)


@settings(LAW, max_examples=12)
@given(cases())
def test_a_few_streams_give_what_the_reference_engine_gives(case: Case) -> None:
    agree(case, approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(cases(windows=timed, names=some_registers))
def test_time_windows_of_registers_are_those_of_the_reference_engine(case: Case) -> None:
    agree(case)


@pytest.mark.slow
@LAW
@given(cases(windows=timed))
def test_time_windows_of_any_aggregates_are_those_of_the_reference_engine(case: Case) -> None:
    agree(case, approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(cases(windows=sessions))
def test_sessions_are_those_of_the_reference_engine(case: Case) -> None:
    agree(case, approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(cases())
def test_any_windows_side_by_side_are_those_of_the_reference_engine(case: Case) -> None:
    agree(case, approximate=tuple(SKETCHES))


@pytest.mark.slow
@LAW
@given(cases(windows=several_counts))
def test_rows_of_several_count_windows_are_counted_once(case: Case) -> None:
    agree(case, approximate=tuple(SKETCHES))
