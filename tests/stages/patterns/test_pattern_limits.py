"""What a pattern cannot take is refused before a run, naming the patterns that can."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import GraphError, Where
from penstock.operators import aggregates as spec
from penstock.operators.windows import (
    KeyedWindows,
    MapReduceWindows,
    PanedWindows,
    ParallelWindows,
    Windows,
    possible_patterns,
)
from penstock.stages.patterns.pattern import decompose
from penstock.stages.stage import StageContext
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.support.window_cases import ALL, REGISTERS, WIDE, join_text
from tests.support.windows import case

N = {"n": spec.count()}
WHERE = Where("views.py", 7)


def all_of(rows: list[Any]) -> dict[str, int]:
    return {"n": len(rows)}


def refuse(op: Windows) -> GraphError:
    up = case(op, [], schema=WIDE).up
    with pytest.raises(GraphError) as caught:
        decompose(op, up, 3, lambda: StageContext("views", WHERE, Accounts(), ManualClock()))
    assert (caught.value.step, caught.value.where) == ("views", WHERE)
    return caught.value


@pytest.mark.parametrize("pattern", [ParallelWindows, PanedWindows, MapReduceWindows])
@pytest.mark.parametrize(
    ("windows", "named"),
    [
        (session(5), "session with gap 5 us"),
        (count_window(3), "count 3"),
        ({"x": tumbling(5), "y": session(2)}, "session with gap 2 us"),
    ],
)
def test_sessions_and_count_windows_are_spread_by_key_only(
    pattern: type[Windows], windows: Any, named: str
) -> None:
    error = refuse(pattern(windows=windows, aggregates=N))
    assert error.fact == f'pattern="{pattern.pattern}" cannot compute {named}'
    assert (
        error.detail
        == "which windows a row is in depends on other rows, so windows cannot be sent to replicas"
    )
    assert error.hint == 'use pattern="keyed"'


@pytest.mark.parametrize("pattern", [PanedWindows, MapReduceWindows])
def test_a_function_of_whole_windows_is_not_made_of_parts(pattern: type[Windows]) -> None:
    error = refuse(pattern(windows=tumbling(5), apply=all_of, schema={"n": "int64"}))
    assert error.fact.startswith(f'pattern="{pattern.pattern}" cannot compute ')
    assert "all_of" in error.fact
    assert error.detail == "it sees all rows of a window at once, which here are never together"
    assert error.hint == 'use pattern="keyed" or pattern="parallel"'


@pytest.mark.parametrize("pattern", [PanedWindows, MapReduceWindows])
def test_what_is_made_from_rows_is_not_made_of_parts(pattern: type[Windows]) -> None:
    error = refuse(pattern(windows=tumbling(5), aggregates={**N, "all": spec.collect("v")}))
    assert error.fact == f'pattern="{pattern.pattern}" cannot compute all={spec.collect("v")}'
    assert error.detail == "it is computed from the rows of a window, and partials hold numbers only"
    assert error.hint == 'use pattern="keyed" or pattern="parallel"'


@pytest.mark.parametrize("pattern", [PanedWindows, MapReduceWindows])
def test_a_fold_of_rows_in_order_is_not_made_of_parts(pattern: type[Windows]) -> None:
    text = spec.fold(lambda row: row.word or "", join_text, "", type="string", commutative=False)
    error = refuse(pattern(windows=sliding(5, 2), aggregates={"text": text}))
    assert error.fact == f'pattern="{pattern.pattern}" cannot compute text=fold(join_text)'
    assert error.detail == "commutative=False asks for rows in order, and partials are merged in any order"


@pytest.mark.parametrize("pattern", [PanedWindows, MapReduceWindows])
def test_a_fold_that_registers_cannot_hold_is_refused_with_what_would_help(pattern: type[Windows]) -> None:
    total = spec.fold(lambda row: row.v, lambda a, b: a + b, 0, columns="v", type="int64")
    error = refuse(pattern(windows=sliding(5, 2), aggregates={"total": total}))
    assert error.fact.startswith(f'pattern="{pattern.pattern}" cannot compute total=fold(')
    assert error.detail == "its zero is not of floats; with 0.0 in it, it could be compiled"


def test_first_and_last_are_made_of_parts_only_where_the_reader_numbers_rows() -> None:
    op = KeyedWindows(windows=tumbling(5), aggregates={"first": spec.first("v")})
    up = case(op, [], schema=WIDE).up
    assert possible_patterns(op, up, totally_ordered=False) == ("keyed", "parallel")
    assert possible_patterns(op, up, totally_ordered=True) == ("keyed", "parallel", "paned", "map_reduce")


@pytest.mark.parametrize("name", REGISTERS)
def test_aggregates_of_registers_can_be_spread_in_every_way(name: str) -> None:
    op = KeyedWindows(windows=sliding(5, 2), aggregates={name: REGISTERS[name]})
    assert possible_patterns(op, case(op, [], schema=WIDE).up, totally_ordered=False) == (
        "keyed",
        "parallel",
        "paned",
        "map_reduce",
    )


@pytest.mark.parametrize("name", ALL)
def test_every_aggregate_of_time_windows_can_be_spread_by_key_and_by_window(name: str) -> None:
    op = KeyedWindows(windows=sliding(5, 2), aggregates={name: ALL[name]})
    assert possible_patterns(op, case(op, [], schema=WIDE).up, totally_ordered=False)[:2] == (
        "keyed",
        "parallel",
    )
