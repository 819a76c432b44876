"""Joins whose run dies at many moments, and goes on with another number of partitions or another layout.

The fragments run in this process (`spark_in_process.py`), and what a death would leave is kept at every
moment, as in `test_crash.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.crash_points import POINTS
from penstock.engines.spark.driver import rounds as ahead
from tests.support import joining_graph as joining
from tests.support.disk_states import keep_states
from tests.support.spark_in_process import InProcessSparkEngine

AUTO = "auto"


@pytest.fixture(autouse=True)
def _few_rounds_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 5)


@pytest.mark.slow
@pytest.mark.parametrize("every", [23, pytest.param(7, marks=pytest.mark.nightly)])
def test_joins_that_die_at_many_moments_and_go_on_write_every_row_once(tmp_path: Path, every: int) -> None:
    expected, folder = joining.expected_sinks(tmp_path / "whole"), tmp_path / "run"
    folder.mkdir()
    with keep_states(folder, tmp_path / "states", "replace", "unlink") as states:
        joining.run(folder, AUTO, InProcessSparkEngine(3))
    assert states.points == set(POINTS)
    assert len(states.moments) > 20
    for number, moment in enumerate(states.restore_each()):
        if number % every:  # its neighbours are few renames away, and test_crash.py tries each of those
            continue
        again = InProcessSparkEngine(1 + number % 5, seed=number)
        assert joining.run(folder, AUTO, again).outcome == "drained"
        assert joining.read_sinks(folder) == expected, f"died at {moment}"


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(5, 4), (2, 1, 3)])
@pytest.mark.parametrize(
    "runs",
    [
        [(AUTO, 1), (AUTO, 6), (AUTO, 2)],
        [((2, 3), 2), ((3, 1), 1), (AUTO, 4)],
        [((1, 4), 2), ((2, 2), 8)],
    ],
    ids=str,
)
def test_joins_that_are_stopped_go_on_with_any_layout_and_number_of_partitions(
    tmp_path: Path, stops: tuple[int, ...], runs: list[tuple[Any, int]]
) -> None:
    expected = joining.expected_sinks(tmp_path / "whole")
    for turn, until in enumerate(stops):
        layout, n_partitions = runs[turn % len(runs)]
        engine = InProcessSparkEngine(n_partitions, seed=turn)
        assert joining.run(tmp_path, layout, engine, until=until).outcome == "stopped"
    layout, n_partitions = runs[-1]
    assert joining.run(tmp_path, layout, InProcessSparkEngine(n_partitions)).outcome == "drained"
    assert joining.read_sinks(tmp_path) == expected
