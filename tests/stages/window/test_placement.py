"""Where a window step's registers are kept, on a machine without a device, and what explain() says of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import EngineError, NotSupported, Where
from penstock.kernels.cuda import device
from penstock.kernels.user_functions import FunctionSource
from penstock.kernels.windows.accumulate import Rule
from penstock.kernels.windows.folds import build_fold_rule
from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.stages.stage import StageContext
from penstock.stages.window.groups import Placement, choose_placement
from penstock.timing.windows import session, tumbling
from tests.support.window_cases import WIDE
from tests.support.windows import STEP, Case, Driven, case

WHERE = Where("app.py", 7)
ROWS = [[("a", 1, 1)]]


def place(*, totally_ordered: bool = False, folds: Sequence[Rule] = (), **changes: Any) -> Placement:
    op = KeyedWindows(**{"windows": tumbling(10), "aggregates": {"n": spec.count()}, **changes})
    site = StageContext(STEP, WHERE, Accounts(), ManualClock())
    return choose_placement(
        op, Case(op, [], schema=WIDE).up, site, totally_ordered=totally_ordered, folds=folds
    )


@pytest.fixture
def a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were one: what is decided does not touch it."""
    monkeypatch.setattr("penstock.stages.window.groups.explain_auto_cpu", lambda: None)


@pytest.mark.usefixtures("a_device")
def test_auto_takes_a_device_that_is_there() -> None:
    text = str(place())
    assert text == (
        "device: cuda, because there is a CUDA device, and it can hold all accumulators of the step"
    )


def plus(a: float, b: float) -> float:
    return a + b


@pytest.mark.usefixtures("a_device")
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"windows": session(5)}, "session with gap 5 is not made of slices of time"),
        ({"device": "cpu"}, "it was asked for by name"),
        (
            {"aggregates": {"f": spec.fold(lambda row: row.x, plus, 0.0, columns="x", type="float64")}},
            "a device cannot tell when fold(plus) fails",
        ),
        (
            {"aggregates": {"f": spec.first("v")}},
            'f=first(col("v")) needs more than accumulators: '
            "rows of one time have no number that puts them in order",
        ),
    ],
)
def test_auto_leaves_to_the_cpu_what_a_device_cannot_do_as_well(changes: dict[str, Any], why: str) -> None:
    assert place(**changes) == Placement("cpu", why)


@pytest.mark.usefixtures("a_device")
def test_rows_that_are_numbered_have_a_first_on_a_device() -> None:
    assert place(aggregates={"f": spec.first("v")}, totally_ordered=True).device == "cuda"


def test_a_run_whose_rows_have_no_numbers_is_refused_a_first_on_a_device() -> None:
    with pytest.raises(NotSupported) as failure:
        place(aggregates={"f": spec.first("v")}, device="cuda")
    assert (failure.value.step, failure.value.where) == (STEP, WHERE)
    assert failure.value.fact.startswith(
        'device="cuda" was asked for, but f=first(col("v")) needs more than '
    )


def test_without_a_device_auto_is_the_cpu_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_no_driver", lambda: "there is no NVIDIA driver (libcuda.so.1)")
    driven = Driven(case(KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()}), ROWS))
    assert driven.stage.explain()[-1] == "device: cpu, because there is no NVIDIA driver (libcuda.so.1)"


def test_without_a_device_asking_for_one_is_an_error_when_the_stage_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "explain_missing", lambda: "the package numba-cuda is not installed")
    with pytest.raises(EngineError) as failure:
        place(device="cuda")
    assert (failure.value.step, failure.value.where) == (STEP, WHERE)
    assert failure.value.fact == 'device="cuda" was asked for, and there is no CUDA device here'
    assert "numba-cuda is not installed" in (failure.value.detail or "")


def test_a_combine_that_cannot_be_compiled_for_a_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = build_fold_rule("plus", FunctionSource(plus), (0.0,), alone=True)
    monkeypatch.setattr("penstock.stages.window.groups.choose_device", lambda device: device)
    monkeypatch.setattr("penstock.stages.window.groups._why_not_compiled", lambda rule: "no strings here")
    with pytest.raises(NotSupported) as failure:
        place(device="cuda", folds=[rule])
    assert (failure.value.step, failure.value.where) == (STEP, WHERE)
    assert failure.value.fact == f"numba cannot compile {rule.name} for a CUDA device"
    assert failure.value.detail == "no strings here"


LARGE_RUN = """
import sys
from penstock.operators import aggregates as spec
from penstock.timing.windows import sliding
from penstock.operators.windows import KeyedWindows
from tests.support.windows import by_stage, case
rows = [("ab"[i % 2], i, i) for i in range(20_000)]
by_stage(case(KeyedWindows(windows=sliding(10, 5), aggregates={"s": spec.sum("v")}, device="DEVICE"), [rows]))
assert "numba" in sys.modules
sys.exit("numba.cuda" in sys.modules or "numba_cuda" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["auto", "cpu"])
def test_a_run_on_the_cpu_does_not_load_what_is_for_cuda(asked: str) -> None:
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, "-c", LARGE_RUN.replace("DEVICE", asked)], env=env, check=False, text=True
    )
    assert done.returncode == 0
