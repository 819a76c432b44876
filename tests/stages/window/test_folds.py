"""Folds of the window stage: by registers where parts are floats, in Python elsewhere, with one answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import FunctionError
from penstock.kernels.user_functions import FunctionSource
from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Fold
from penstock.operators.choices import may_raise, why_python
from penstock.operators.windows import KeyedWindows
from penstock.stages.window import folds as folding
from penstock.timing.windows import count_window, session, sliding
from tests.support.sizes import set_sizes
from tests.support.windows import Driven, agree, assert_same, by_reference, by_stage, case

Part = tuple[float, float]


def lift(row: Any) -> Part:
    return 1.0, 100.0 / row.v


def lift_by_name(row: Any) -> Part:
    return 1.0, 100.0 / row["v"]


def lift_any(row: Any) -> Part:
    return 1.0, 100.0 / (row.v + 1.0)


def combine(a: Part, b: Part) -> Part:
    return a[0] + b[0], max(a[1], b[1])


def lower(part: Part) -> float:
    return part[1] / (part[0] + 1.0)


ZERO = (0.0, -math.inf)
FOLD = spec.fold(lift, combine, ZERO, lower, columns="v", type="float64")


def rows(n: int) -> list[tuple[str, int, int | None]]:
    """Nearly in order, some nulls, and now and then a zero, on which lift fails."""
    return [
        ("abc"[i % 3], i + 3 * (i % 5), None if i % 17 == 0 else i * 7919 % 1000 if i % 11 else 1)
        for i in range(n)
    ]


def count_case(stage_fold: Fold, windows: Any, n: int, on_error: str = "skip") -> Any:
    op = KeyedWindows(windows=windows, aggregates={"f": stage_fold, "n": spec.count()}, on_error=on_error)
    rows_in = rows(n)
    return case(op, [rows_in[: n // 2], rows_in[n // 2 :]], delay=20)


@pytest.mark.parametrize("windows", [sliding(50, 20), session(2)])
def test_a_fold_of_floats_gives_what_the_reference_engine_gives(windows: Any) -> None:
    agree(count_case(FOLD, windows, 300))


@pytest.mark.slow
@pytest.mark.parametrize("windows", [sliding(500, 200), session(2)])
@pytest.mark.parametrize("lifted", [lift, lift_by_name])
def test_a_compiled_fold_gives_what_the_reference_engine_gives(
    windows: Any, lifted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_sizes(monkeypatch, compile_after=0)
    agree(count_case(spec.fold(lifted, combine, ZERO, lower, columns="v", type="float64"), windows, 12_000))


@pytest.mark.slow
def test_rows_on_which_nothing_fails_are_lifted_by_the_compiled_loop_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_sizes(monkeypatch, compile_after=0)
    monkeypatch.delattr(folding.AccumulatorFold, "_lift_in_python")
    agree(
        count_case(
            spec.fold(lift_any, combine, ZERO, lower, columns="v", type="float64"), sliding(500, 200), 12_000
        )
    )


@pytest.mark.slow
def test_explain_says_whether_a_fold_is_compiled() -> None:
    assert (
        Driven(count_case(FOLD, sliding(10, 5), 0)).stage.explain()[-1]
        == "fold(combine) is compiled by Numba"
    )
    refused = spec.fold(lift_by_name, combine, ZERO, lower, columns="v", type="float64")
    text = Driven(count_case(refused, sliding(10, 5), 0)).stage.explain()[-1]
    assert text.startswith("fold(combine): lift_by_name runs in Python, because Numba says: ")


def root(row: Any) -> Part:
    return 1.0, math.sqrt(row.v - 3.0)


def square(row: Any) -> Part:
    return 1.0, (row.v * 1e153) ** 2


def take_root(part: Part) -> float:
    return math.sqrt(part[1] - 20.0) if part[1] > 15.0 else part[1]


def first_of(part: Part) -> float:
    return part[0]


@pytest.mark.slow
@pytest.mark.parametrize("lifted", [root, square])
def test_rows_that_python_refuses_are_row_errors_though_machine_code_would_give_nan_or_infinity(
    lifted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_sizes(monkeypatch, compile_after=0)
    fold = spec.fold(lifted, combine, ZERO, first_of, columns="v", type="float64")
    rows = [("a", i, (i * 7) % 40) for i in range(200)]
    op = KeyedWindows(windows=sliding(50, 20), aggregates={"f": fold}, on_error="skip")
    result = by_stage(case(op, [rows], delay=20))
    assert result.accounts.errors > 0
    assert_same(result, by_reference(case(op, [rows], delay=20)))


@pytest.mark.slow
def test_a_lower_that_python_refuses_stops_the_run_though_machine_code_would_give_nan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_sizes(monkeypatch, compile_after=0)
    fold = spec.fold(lift_any, combine, ZERO, take_root, columns="v", type="float64")
    op = KeyedWindows(windows=sliding(10, 10), aggregates={"f": fold})
    with pytest.raises(FunctionError, match="function take_root failed on window"):
        by_stage(case(op, [[("a", 1, 5), ("a", 2, 6)]], delay=20))


def apart(a: Part, b: Part) -> Part:
    return a[0] + b[0], math.sqrt(a[1] - b[1] + 3.0)


def cube(a: Part, b: Part) -> Part:
    return a[0] + b[0], (a[1] + b[1] * 1e120) ** 3


@pytest.mark.slow
@pytest.mark.parametrize("combined", [apart, cube])
def test_a_combine_that_python_refuses_stops_the_run_though_machine_code_would_give_nan_or_infinity(
    combined: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_sizes(monkeypatch, compile_after=0)
    fold = spec.fold(lift_any, combined, (0.0, 0.0), first_of, columns="v", type="float64")
    op = KeyedWindows(windows=sliding(10, 10), aggregates={"f": fold})
    rows = [("a", i % 10, 30) for i in range(2000)]
    for carried in (by_stage, by_reference):
        with pytest.raises(FunctionError, match=f"function {combined.__name__} failed on window"):
            carried(case(op, [rows], delay=20))


def test_powers_and_functions_of_math_are_known_to_refuse_some_numbers() -> None:
    assert may_raise(root)
    assert may_raise(square)
    assert not may_raise(lift)
    assert not may_raise(combine)


def test_a_lower_that_fails_names_window_and_key() -> None:
    def fails(part: Part) -> float:
        raise ValueError("no")

    op = KeyedWindows(
        windows=sliding(10, 5),
        aggregates={"f": spec.fold(lift, combine, ZERO, fails, columns="v", type="float64")},
    )
    with pytest.raises(FunctionError) as failed:
        by_stage(case(op, [[("a", 1, 1)]]))
    assert "fails failed on window sliding 10 us every 5 us from -5 to 5 of key k='a'" in failed.value.fact
    assert failed.value.detail == "ValueError: no"


def strict(a: float, b: float) -> float:
    if a + b > 100.0:
        raise ValueError("too much")
    return a + b


STRICT = spec.fold(lambda row: float(row.v), strict, 0.0, columns="v", type="float64")
COUNTED = "count 3 every 2 from 1 to 4 of key k='b'"


@pytest.mark.slow
@pytest.mark.parametrize("small", [10_000, 0], ids=["plain", "compiled"])
@pytest.mark.parametrize(
    ("windows", "place"),
    [
        (sliding(10, 5), "sliding 10 us every 5 us from -5 to 5 of key k='b'"),  # one slice has too much
        (sliding(4, 2), "sliding 4 us every 2 us from 0 to 4 of key k='b'"),  # two slices of a window have
        (session(5), "session with gap 5 us from 1 to 9 of key k='b'"),
        (count_window(3, 2), COUNTED),
    ],
    ids=["slice", "window", "session", "count"],
)
def test_a_combine_that_fails_stops_the_run_and_is_named_with_window_and_key(
    windows: Any, place: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_sizes(monkeypatch, compile_after=small)
    rows = [("a", 0, 60), ("b", 1, 60), ("b", 3, 60), ("b", 4, 1)]
    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=windows, aggregates={"f": STRICT}), [rows], delay=20))
    assert failed.value.fact == f"function strict failed on window {place}"
    assert failed.value.detail == "ValueError: too much"
    assert failed.value.step == "window-1"
    assert failed.value.where is not None
    assert failed.value.where.line == strict.__code__.co_firstlineno


def test_sessions_that_cannot_be_joined_are_named() -> None:
    first, bridge = [("a", 0, 60), ("a", 10, 60), ("b", 0, 1), ("b", 10, 1)], [("b", 5, 1), ("a", 5, 0)]
    op = KeyedWindows(windows=session(5), aggregates={"f": STRICT})
    with pytest.raises(FunctionError) as failed:
        by_stage(case(op, [first, bridge], delay=20))
    assert (
        failed.value.fact
        == "function strict failed on window session with gap 5 us from 0 to 15 of key k='a'"
    )


def test_a_combine_that_fails_on_an_early_result_is_named_too() -> None:
    op = KeyedWindows(windows=sliding(4, 2), aggregates={"f": STRICT}, early="1 us")
    driven = Driven(case(op, [[("a", 1, 60), ("a", 3, 60)]], delay=20))
    driven.clock.advance(10)
    with pytest.raises(
        FunctionError, match="function strict failed on window sliding 4 us every 2 us from 0"
    ):
        driven.push(driven.case.batches[0])


def test_a_combine_that_fails_behind_windows_without_rows_is_named_by_its_own_window() -> None:
    #  rows at 1 and 9; windows [2, 6) and [4, 8) have none; [8, 12) combines 60 and 60
    op = KeyedWindows(windows=sliding(4, 2), aggregates={"f": STRICT})
    rows = [("a", 1, 60), ("a", 9, 60), ("a", 11, 60)]
    with pytest.raises(
        FunctionError, match="function strict failed on window sliding 4 us every 2 us from 8 to 12"
    ):
        by_stage(case(op, [rows]))


@pytest.mark.parametrize("part", [(1.0,), (1.0, 2.0, 3.0), "no", (1.0, "x"), 1.0])
def test_a_lift_that_gives_no_part_fails_its_row(part: Any) -> None:
    fold = spec.fold(lambda row: part, combine, ZERO, lower, columns="v", type="float64")
    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=sliding(10, 5), aggregates={"f": fold}), [[("a", 1, 1)]]))
    assert failed.value.fact.endswith("<lambda> failed on a row")


def make_fold(factor: float) -> Fold:
    """A fold as a program makes it that builds its graph again."""
    return spec.fold(
        lambda row: (1.0, row.v * factor),
        lambda a, b: (a[0] + b[0], max(a[1], b[1])),
        ZERO,
        lambda part: part[1] / (part[0] + 1.0),
        columns="v",
        type="float64",
    )


@pytest.mark.slow
def test_a_second_stage_with_the_same_functions_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core.event import install_recorder

    set_sizes(monkeypatch, compile_after=0)
    monkeypatch.setattr(FunctionSource, "is_stable", False)  # the disk knows them from the last time

    def compiled(factor: float) -> int:
        with install_recorder("numba:compile") as recorder:
            by_stage(count_case(make_fold(factor), sliding(500, 200), 12_000))
        return len(recorder.buffer)

    assert compiled(2.5) > 0
    assert compiled(2.5) == 0
    assert compiled(3.5) > 0  # a captured value is part of a function


@pytest.mark.slow
def test_a_fold_whose_functions_capture_numbers_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    set_sizes(monkeypatch, compile_after=0)
    agree(count_case(make_fold(2.0), sliding(500, 200), 12_000))
    text = Driven(count_case(make_fold(2.0), sliding(10, 5), 0)).stage.explain()[-1]
    assert text == "fold(make_fold.<locals>.<lambda>) is compiled by Numba"


@pytest.mark.parametrize("windows", [sliding(20, 5), session(5), count_window(6, 2)])
def test_a_fold_in_python_lifts_every_row_once_whatever_number_of_windows_it_is_in(windows: Any) -> None:
    lifted: list[int] = []

    def note(row: Any) -> list[int]:
        lifted.append(row.t)
        return [row.t]

    fold = spec.fold(note, lambda a, b: a + b, [], lambda part: float(len(part)), type="float64")
    op = KeyedWindows(windows=windows, aggregates={"f": fold})
    rows = [[("ab"[i % 2], 3 * i, 1) for i in range(start, start + 10)] for start in (0, 10, 20)]
    by_stage(case(op, rows, delay=7))
    assert sorted(lifted) == list(range(0, 90, 3))


def test_a_fold_in_python_goes_on_after_its_rows_came_back_from_a_snapshot() -> None:
    fold = spec.fold(
        lambda row: [row.v], lambda a, b: a + b, [], lambda part: float(sum(part)), type="float64"
    )
    one = case(
        KeyedWindows(windows=sliding(20, 5), aggregates={"f": fold}),
        [[("ab"[i % 2], 3 * i, i) for i in range(start, start + 10)] for start in (0, 10)],
        delay=7,
    )
    driven = Driven(one)
    driven.push(one.batches[0])
    saved, driven.stage = driven.stage.snapshot(), driven.new_stage()
    driven.stage.restore(saved)
    driven.push(one.batches[1])
    assert_same(driven.end(), by_reference(one))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"commutative": False}, "the order of rows matters"),
        ({"zero": (0, 0.0)}, "its zero is not of floats; with 0.0 in it, it could be compiled"),
        ({"columns": None}, "it does not say which columns it reads; with columns=... it could be compiled"),
        ({"columns": "k"}, "column k is not of numbers"),
        ({"lift": lambda row, seen=[]: (1.0, 1.0)}, "lift or combine has a state of its own"),
        ({"combine": max}, "lift or combine has a state of its own"),
        ({"lower": None}, "its parts are not results"),
    ],
)
def test_a_fold_that_cannot_go_by_registers_says_why(changes: dict[str, Any], reason: str) -> None:
    options = {"lift": lift, "combine": combine, "zero": ZERO, "lower": lower, "columns": "v", **changes}
    fold = spec.fold(**options, type="float64")
    built = case(KeyedWindows(windows=sliding(10, 5), aggregates={"f": fold}), [])
    assert why_python(fold, built.up) == reason
    assert Driven(built).stage.explain()[-1] == f"{fold} runs in Python: {reason}"


WRONG: dict[str, Callable[[Any], Any]] = {
    "text": lambda row: "3",
    "nothing": lambda row: None,
    "one more number": lambda row: (1.0, 2.0),
    "a tuple": lambda row: (1.0,),
}


@pytest.mark.parametrize("part", WRONG)
def test_a_part_that_is_not_like_zero_is_an_error_of_its_row_on_every_engine(part: str) -> None:
    def lift(row: Any) -> Any:
        return row.v * 1.0 if row.v != 3 else WRONG[part](row)

    fold = spec.fold(lift, lambda a, b: a + b, 0.0, columns="v", type="float64")
    op = KeyedWindows(windows=sliding(10, 10), aggregates={"f": fold}, on_error="skip")
    rows_ = [("a", 1, 5), ("a", 2, 3), ("a", 3, 4)]
    result = by_stage(case(op, [rows_], delay=20))
    assert result.accounts.errors == 1
    assert result.tables["out"]["f"].to_pylist() == [9.0]
    assert_same(result, by_reference(case(op, [rows_], delay=20)))


@pytest.mark.parametrize("part", [None, "3", (1.0, 2.0)])
def test_a_combine_that_gives_no_part_stops_the_run_on_every_engine(part: Any) -> None:
    fold = spec.fold(lambda row: row.v * 1.0, lambda a, b: part, 0.0, columns="v", type="float64")
    op = KeyedWindows(windows=sliding(10, 10), aggregates={"f": fold}, on_error="skip")
    for carried in (by_stage, by_reference):
        with pytest.raises(FunctionError, match="<lambda> failed on window"):
            carried(case(op, [[("a", 1, 5)]], delay=20))


def test_parts_have_the_form_of_a_zero_of_floats_and_any_form_otherwise() -> None:
    pair = spec.fold(lift, combine, (0.0, 0.0), columns="v", type="float64")
    assert pair.check_partial((1, 2.5)) == (1, 2.5)
    with pytest.raises(TypeError, match=r"gave \(1.0,\), and zero has 2 numbers"):
        pair.check_partial((1.0,))
    with pytest.raises(TypeError, match=r"gave \(1.0, 'x'\), which are not all numbers"):
        pair.check_partial((1.0, "x"))
    with pytest.raises(TypeError, match="gave 'x', and zero is a number"):
        spec.fold(lift, combine, 0.0, columns="v", type="float64").check_partial("x")
    assert spec.fold(lift, combine, (), columns="v", type="float64").check_partial(("any", "form")) == (
        "any",
        "form",
    )
