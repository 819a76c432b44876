"""Functions of whole windows in the window stage, and folds that fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import FunctionError
from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows, WindowContext
from penstock.timing.windows import count_window, session, sliding, tumbling
from tests.support.window_cases import cut, small, specs
from tests.support.windows import agree, by_stage, case

ROWS = [[("a", 1, 1), ("b", 2, 2), ("a", 3, 3)], [("a", 15, 4)]]
TOLD = {"told": "string"}


def describe_window(rows: list[Any], window: WindowContext) -> Iterator[dict[str, str]] | None:
    """No row, one row or several, from all that a function can see."""
    if len(rows) % 3 == 2:
        return None
    line = f"{window} {[(row.k, row.t, row.v) for row in rows]}"
    return ({"told": f"{line} {n}"} for n in range(len(rows) % 3 or 3))


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", None]), st.integers(-20, 20), st.one_of(st.none(), st.integers(0, 3))
        ),
        max_size=20,
    ),
    st.lists(st.integers(0, 20), max_size=4),
    specs,
    small,
    small,
)
@settings(deadline=None, derandomize=True, max_examples=100)
def test_functions_of_windows_give_what_they_give_in_the_reference_engine(
    rows: list[Any], places: list[int], spec_: Any, delay: int, lateness: int
) -> None:
    op = KeyedWindows(windows=spec_, apply=describe_window, schema=TOLD, lateness=lateness)
    agree(case(op, cut(rows, places), delay=delay))


@pytest.mark.parametrize("windows", [tumbling(10), sliding(10, 5), session(5), count_window(2)])
def test_a_function_sees_the_rows_of_its_window_in_order(windows: Any) -> None:
    op = KeyedWindows(windows=windows, apply=lambda rows: {"told": str([row.t for row in rows])}, schema=TOLD)
    agree(case(op, [[("a", 3, 1), ("a", 1, 2), ("a", 2, 3)], [("a", 1, 9)]], delay=5))


def fail(rows: list[Any]) -> dict[str, str]:
    raise ValueError("too many rows")


def test_a_function_that_raises_stops_the_run_and_names_window_and_key() -> None:
    op = KeyedWindows(windows=tumbling(10), apply=fail, schema=TOLD)
    with pytest.raises(FunctionError) as failed:
        by_stage(case(op, ROWS))
    assert failed.value.fact == "function fail failed on window tumbling 10 us from 0 to 10 of key k='a'"
    assert failed.value.detail == "ValueError: too many rows"
    assert failed.value.step == "window-1"


def test_what_is_no_row_stops_the_run() -> None:
    op = KeyedWindows(windows=tumbling(10), apply=lambda rows: 7, schema=TOLD)
    with pytest.raises(FunctionError) as failed:
        by_stage(case(op, ROWS))
    assert failed.value.detail == "gave int 7, not an iterable of rows"


def fail_to_combine(a: int, b: int) -> int:
    raise ZeroDivisionError("no")


def test_a_combine_that_raises_stops_the_run_and_names_window_and_key() -> None:
    fold = spec.fold(lambda row: row.v, fail_to_combine, 0, type="int64")
    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=tumbling(10), aggregates={"f": fold}), ROWS))
    fact = "function fail_to_combine failed on window tumbling 10 us from 0 to 10 of key k='a'"
    assert failed.value.fact == fact
    assert failed.value.detail == "ZeroDivisionError: no"


def test_a_callable_that_cannot_be_copied_is_refused() -> None:
    class Holder:
        def __deepcopy__(self, memo: object) -> object:
            raise TypeError("holds a connection")

        def __call__(self, rows: list[Any]) -> dict[str, str]:
            return {"told": ""}

    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=tumbling(10), apply=Holder(), schema=TOLD), ROWS))
    assert "cannot be copied" in failed.value.fact
    assert failed.value.detail == "TypeError: holds a connection"
