"""Folds of the window stage: by registers where parts are floats, in Python elsewhere, with one answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.errors import FunctionError
from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Fold
from penstock.operators.window import session, sliding
from penstock.operators.windows import KeyedWindows
from penstock.stages import folding
from penstock.stages.folding import why_python
from tests.stages.judge import Driven, agree, by_stage, case

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


def counted(stage_fold: Fold, windows: Any, n: int, on_error: str = "skip") -> Any:
    op = KeyedWindows(windows=windows, aggregates={"f": stage_fold, "n": spec.count()}, on_error=on_error)
    given = rows(n)
    return case(op, [given[: n // 2], given[n // 2 :]], delay=20)


@pytest.mark.parametrize("windows", [sliding(50, 20), session(2)])
def test_a_fold_of_floats_gives_what_the_reference_engine_gives(windows: Any) -> None:
    agree(counted(FOLD, windows, 300))


@pytest.mark.slow
@pytest.mark.parametrize("windows", [sliding(500, 200), session(2)])
@pytest.mark.parametrize("lifted", [lift, lift_by_name])
def test_a_compiled_fold_gives_what_the_reference_engine_gives(
    windows: Any, lifted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "SMALL", 0)
    agree(counted(spec.fold(lifted, combine, ZERO, lower, columns="v", type="float64"), windows, 12_000))


@pytest.mark.slow
def test_rows_on_which_nothing_fails_are_lifted_by_the_compiled_loop_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folding, "SMALL", 0)
    monkeypatch.delattr(folding.Folding, "_one_by_one")
    agree(
        counted(
            spec.fold(lift_any, combine, ZERO, lower, columns="v", type="float64"), sliding(500, 200), 12_000
        )
    )


@pytest.mark.slow
def test_explain_says_whether_a_fold_is_compiled() -> None:
    assert (
        Driven(counted(FOLD, sliding(10, 5), 0)).stage.explain()[-1] == "fold(combine) is compiled by Numba"
    )
    refused = spec.fold(lift_by_name, combine, ZERO, lower, columns="v", type="float64")
    told = Driven(counted(refused, sliding(10, 5), 0)).stage.explain()[-1]
    assert told.startswith("fold(combine): lift_by_name runs in Python, because Numba says: ")


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


def torn(a: float, b: float) -> float:
    return a / (b - b)


def test_a_combine_of_floats_that_fails_stops_the_run_and_is_named() -> None:
    fold = spec.fold(lambda row: float(row.v), torn, 0.0, columns="v", type="float64")
    with pytest.raises(FunctionError) as failed:
        by_stage(case(KeyedWindows(windows=sliding(10, 5), aggregates={"f": fold}), [[("a", 1, 1)]]))
    assert failed.value.fact == "function torn failed while parts of windows were combined"
    assert failed.value.detail == "ZeroDivisionError: float division by zero"
    assert failed.value.step == "window-1"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"commutative": False}, "the order of rows matters"),
        ({"zero": (0, 0.0)}, "its zero is not of floats; with 0.0 in it, it could be compiled"),
        ({"columns": None}, "it does not say which columns it reads; with columns=... it could be compiled"),
        ({"columns": "k"}, "column k is not of numbers"),
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
