"""Loops at two speeds: Numba is loaded when there is enough to do, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.kernels.build import build, list_loops
from penstock.kernels.loops import Loop, loop
from penstock.kernels.windows.accumulate import RULES, Cells, build_rule_loop, merge, merge_add, merge_max
from penstock.kernels.windows.combine import query_windows, sweep_windows, update_trees

ROOT = Path(__file__).parents[2]

_FEW_ROWS = """
import sys
import numpy as np
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.time_store import TimeStore
from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

accumulators = [WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0)]
store = TimeStore(Slicing.of([TimeWindow(10, 5)]), 0, accumulators)
rows = np.arange(500)
store.add(InputRows(rows % 7, rows, (), (Values(rows.astype(float)),)), NEVER)
n_windows = len(store.close(ENDED).slots)  # 99 windows with all 7 keys, and the first and last with 5
assert n_windows == 703, n_windows
assert "numba" not in sys.modules, "numba was loaded for 500 rows"
"""


@loop()
def fold_all(cells: Cells, n: int) -> None:
    """cells[0] becomes the merge of the first `n`."""
    for i in range(1, n):
        merge(cells, 0, cells, i)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
def test_a_loop_runs_under_the_rule_it_is_given(compiled: bool) -> None:
    for rule, wanted in ((merge_add, 6), (merge_max, 3)):
        cells = np.array([[1], [3], [2]])
        fold_all.with_rules("I2 i", merge=rule).version(compiled)(cells, 3)
        assert cells[0, 0] == wanted


def test_loops_under_different_rules_have_different_names_in_the_cache() -> None:
    for loop_of_any in (sweep_windows, update_trees, query_windows):
        names = {build_rule_loop(loop_of_any, rule).compiled.__qualname__ for rule in RULES}
        # counts and both sums share a rule but not always a type of cell
        assert len(names) == len({id(rule.merge) for rule in RULES})


def test_what_a_loop_calls_is_part_of_its_name() -> None:
    def outer(cells: Cells) -> None:
        merge(cells, 0, cells, 1)

    one, other = (Loop(outer, None).with_rules(None, merge=rule) for rule in (merge_add, merge_max))
    assert one._digest() != other._digest()


def test_the_loops_are_few_enough_to_build_in_under_a_minute() -> None:
    # About 0.7 s each on one core of the machine they were written on, when nothing is cached.
    assert 30 <= len(list_loops()) <= 70


def test_every_loop_says_the_types_it_is_for_and_compiles() -> None:
    assert build() == len(list_loops())


def test_few_rows_never_load_numba() -> None:
    subprocess.run([sys.executable, "-c", _FEW_ROWS], check=True, cwd=ROOT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "tests",
    [
        [f"tests/kernels/windows/test_{file}.py" for file in ("slice_loop", "accumulate", "combine", "ring")],
        pytest.param(
            ["tests/kernels/windows/test_rules.py", "tests/stages/window/test_panes.py"],
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["loops", "whole stores"],
)
def test_the_sources_of_the_loops_stay_inside_their_arrays_when_nothing_is_compiled(tests: list[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-k",
        "not million",
        *tests,
    ]
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
