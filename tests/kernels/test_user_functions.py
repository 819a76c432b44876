"""Users' functions as loops: the same when they say the same, and kept on disk when they will next time."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.kernels.user_functions import FunctionSource
from penstock.kernels.windows.folds import FoldFunctions, build_lift_loop, build_probe_loop

SCALE = 2.0
LOG = [0.0]


def make_lift(factor: Any = 3.0, shift: Any = 1.0) -> Callable[[Any], Any]:
    def lift(row: Any, by: Any = shift) -> Any:
        return row.v * factor + by

    return lift


def scale(row: Any) -> float:
    return float(row.v * SCALE)


def take_root(row: Any) -> float:
    return math.sqrt(row.v)


def add_log(row: Any) -> float:
    return float(row.v + LOG[0])


def test_a_function_made_twice_is_one_function() -> None:
    assert FunctionSource(make_lift()) == FunctionSource(make_lift())
    assert hash(FunctionSource(make_lift())) == hash(FunctionSource(make_lift()))
    assert FunctionSource(make_lift())._digest() == FunctionSource(make_lift())._digest()


@pytest.mark.parametrize(
    "other",
    [
        make_lift(4.0),
        make_lift(3),
        make_lift(shift=2.0),
        make_lift(shift=1),
        make_lift(shift=True),
        lambda row: row.v * 3.0 + 1.0,
    ],
    ids=["captured value", "captured type", "default", "type of default", "bool", "code"],
)
def test_functions_that_differ_in_anything_are_two(other: Callable[[Any], Any]) -> None:
    assert FunctionSource(make_lift()) != FunctionSource(other)
    assert FunctionSource(make_lift())._digest() != FunctionSource(other)._digest()


def test_the_two_zeros_and_constants_of_other_types_are_told_apart() -> None:
    ways = [lambda row: 0.0, lambda row: -0.0, lambda row: 0, lambda row: False, lambda row: (0.0, 0)]
    assert len({FunctionSource(item) for item in ways}) == len(ways)


def test_a_global_that_a_function_names_is_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = FunctionSource(scale)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert FunctionSource(scale) != before


def test_code_is_kept_on_disk_when_all_that_it_says_has_words() -> None:
    assert FunctionSource(take_root).is_stable
    assert FunctionSource(scale).is_stable
    assert not FunctionSource(add_log).is_stable  # a list may hold something else next time
    space: dict[str, Any] = {}
    exec("def typed(row): return row.v", space)  # in no file, as at a prompt
    assert not FunctionSource(space["typed"]).is_stable


def test_captured_values_and_defaults_are_compiled_in() -> None:
    parts = np.empty((2, 1))
    of = FoldFunctions(
        FunctionSource(make_lift(10.0, 4.0)), FunctionSource(lambda a, b: a + b), ("v",), 1, True
    )
    loop = build_lift_loop(of)
    assert loop.compiles
    loop.compiled(np.array([1.0, 2.0]), parts)
    assert parts[:, 0].tolist() == [14.0, 24.0]


def test_what_a_function_captured_does_not_change_under_a_compiled_loop() -> None:
    factor = 2.0

    def lift(row: Any) -> Any:
        return row.v * factor

    written = FunctionSource(lift)
    factor = 3.0
    parts = np.empty((1, 1))
    build_lift_loop(FoldFunctions(written, FunctionSource(lambda a, b: a + b), ("v",), 1, True)).plain(
        np.array([1.0]), parts
    )
    assert parts.tolist() == [[2.0]]


def test_rows_that_cannot_be_lifted_are_found_before_any_is_combined() -> None:
    probe = build_probe_loop(
        FoldFunctions(FunctionSource(lambda row: 1.0 / row.v), FunctionSource(max_of), ("v",), 1, True)
    )
    assert probe.compiles
    probe.compiled(np.array([1.0, 2.0]))
    with pytest.raises(ZeroDivisionError):
        probe.compiled(np.array([1.0, 0.0]))


def test_a_lift_that_gives_too_many_numbers_is_refused_row_by_row() -> None:
    probe = build_probe_loop(
        FoldFunctions(FunctionSource(lambda row: (row.v, 1.0)), FunctionSource(max_of), ("v",), 1, False)
    )
    with pytest.raises(ValueError, match="a part has 1 numbers"):
        probe.version(True)(np.array([1.0]))


def max_of(a: float, b: float) -> float:
    return max(a, b)


_MODULE = """
import numpy as np
from numba.core.event import install_recorder
from penstock.kernels.windows.folds import FoldFunctions, build_lift_loop
from penstock.kernels.user_functions import FunctionSource

def lift(row):
    return row.v * {factor}

def combine(a, b):
    return max(a, b)

parts = np.zeros((2, 1))
loop = build_lift_loop(FoldFunctions(FunctionSource(lift), FunctionSource(combine), ("v",), 1, True))
with install_recorder("numba:compile") as compiling:
    loop.compiled(np.array([1.0, 2.0]), parts)
print(parts[1, 0], any("lift_rows" in str(event.data["dispatcher"]) for _, event in compiling.buffer))
"""


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled_unless_the_function_has_changed(
    tmp_path: Path,
) -> None:
    def run(factor: float) -> str:
        file = tmp_path / "program.py"
        file.write_text(_MODULE.format(factor=factor), encoding="utf-8")
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, file], check=True, env=env, capture_output=True, text=True)
        return done.stdout.strip()

    assert [run(2.0), run(2.0), run(4.0)] == ["4.0 True", "4.0 False", "8.0 True"]
