"""A user's function of a window's rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.errors import FunctionError
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import tumbling
from tests.support.plans import PlanBuilder, Rows


def apply_windows(fn: Any, *batches: Rows) -> list[tuple[Any, ...]]:
    builder = PlanBuilder()
    rows = builder.source(*batches, delay=100)
    op = KeyedWindows(windows=tumbling(10), apply=fn, schema={"x": "int64"}, name="w")
    out = builder.add(op, rows, key=("k",))
    return builder.run().rows(out)


def test_it_sees_the_rows_in_order_and_may_give_one_row() -> None:
    def first(rows: list[Any]) -> dict[str, Any]:
        return {"x": rows[0].v * 10 + rows[1].v}

    assert apply_windows(first, [("a", 2, 2)], [("a", 1, 1)]) == [("a", 0, 10, 12)]


def test_it_may_give_several_rows_or_none() -> None:
    def positive(rows: list[Any]) -> Iterable[dict[str, Any]]:
        return ({"x": row.v} for row in rows if row.v > 0)

    output = apply_windows(positive, [("a", 1, 5), ("a", 2, 4), ("a", 3, -1), ("b", 1, -2)])
    assert output == [("a", 0, 10, 5), ("a", 0, 10, 4)]


def test_none_is_no_row() -> None:
    assert apply_windows(lambda rows: None, [("a", 1, 5)]) == []


def test_it_may_ask_for_its_window_but_a_default_is_its_own_affair() -> None:
    def window_length(rows: list[Any], window: Any) -> dict[str, Any]:
        assert (window.key, window.index, window.label) == (("a",), None, None)
        return {"x": window.end - window.start}

    def top(rows: list[Any], n: int = 3) -> dict[str, Any]:
        return {"x": n}

    assert apply_windows(window_length, [("a", 1, 5)]) == [("a", 0, 10, 10)]
    assert apply_windows(top, [("a", 1, 5)]) == [("a", 0, 10, 3)]


@pytest.mark.parametrize(
    ("fn", "detail"),
    [
        (lambda rows: rows[5], "IndexError: list index out of range"),
        (lambda rows: 5, "gave int 5, not an iterable of rows"),
        (lambda rows: {"y": 1}, "gave a row that lacks x and has unknown y; its schema is x"),
    ],
)
def test_when_it_fails_the_run_fails_naming_function_window_and_key(fn: Any, detail: str) -> None:
    with pytest.raises(FunctionError) as failure:
        apply_windows(fn, [("a", 1, 1)])
    assert "<lambda> failed on window tumbling 10 us from 0 to 10 of key k='a'" in failure.value.fact
    assert failure.value.detail == detail
    assert failure.value.step == "w"
    assert "test_apply.py" in str(failure.value.where)
