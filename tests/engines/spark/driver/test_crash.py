"""A run that dies at any moment, and is started again, loses nothing and doubles nothing.

Here the fragments run in this process, and what a death would leave is kept at every named point, and before
and after every call that changes the order of things on the disk. A run that dies again and again is a forked
process that ends by os._exit, so no cleanup code of ours runs.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.crash_points import POINTS
from penstock.engines.spark.driver import rounds as ahead
from tests.support import crashing_graph as dying
from tests.support.disk_states import keep_states
from tests.support.spark_in_process import InProcessSparkEngine

DIED, FAILED = 9, 1
CALLS = ("replace", "unlink")


def in_a_child(work: Callable[[], object]) -> int:
    """The exit code of the work, done in a forked process."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(FAILED)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def dies_in_call(folder: Path, number: int) -> None:
    """Run; die before the n-th call that the disk sees."""
    die_if_due = dying.dying_at(number, lambda: os._exit(DIED))

    def patch(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **kwargs: Any) -> Any:
            die_if_due()
            return call(*args, **kwargs)

        return instead

    for name in CALLS:
        setattr(os, name, patch(getattr(os, name)))
    dying.run(folder, InProcessSparkEngine())


def go_on(folder: Path) -> None:
    """Start again, after a death; a run that had got to its very end says so again."""
    assert dying.run(folder, InProcessSparkEngine()).outcome == "drained"


@pytest.fixture
def few_rounds_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("few_rounds_a_turn")
def test_a_run_that_dies_at_any_point_or_around_any_rename_and_goes_on_writes_every_row_once(
    tmp_path: Path,
) -> None:
    expected, folder = dying.expected_sinks(tmp_path / "whole"), tmp_path / "run"
    folder.mkdir()
    with keep_states(folder, tmp_path / "states", *CALLS) as states:
        dying.run(folder, InProcessSparkEngine())
    assert states.points == set(POINTS)
    assert len(states.moments) > 60
    for moment in states.restore_each():
        go_on(folder)
        assert dying.read_sinks(folder) == expected, f"died at {moment}"


@pytest.mark.slow
@pytest.mark.usefixtures("few_rounds_a_turn")
def test_a_run_that_dies_whenever_it_goes_on_gets_to_the_end_all_the_same(tmp_path: Path) -> None:
    expected, deaths = dying.expected_sinks(tmp_path / "whole"), 0
    while not any((tmp_path / "checkpoint").glob("commits/*-end.json")):
        assert in_a_child(lambda: dies_in_call(tmp_path, 7)) in (0, DIED)
        deaths += 1
    assert deaths > 4
    assert dying.read_sinks(tmp_path) == expected


@pytest.mark.usefixtures("few_rounds_a_turn")
@pytest.mark.parametrize("stops", [(1,), (2, 3), (1, 1, 1, 2)])
@pytest.mark.parametrize("n_partitions", [(3,), (1, 4, 2)])
def test_a_run_that_is_stopped_and_goes_on_writes_every_row_once_on_any_number_of_parts(
    tmp_path: Path, stops: tuple[int, ...], n_partitions: tuple[int, ...]
) -> None:
    expected = dying.expected_sinks(tmp_path / "whole")
    for turn, until in enumerate(stops):
        here = InProcessSparkEngine(n_partitions[turn % len(n_partitions)], seed=turn)
        assert dying.run(tmp_path, here, until=until).outcome == "stopped"
    assert dying.run(tmp_path, InProcessSparkEngine(n_partitions[-1])).outcome == "drained"
    assert dying.read_sinks(tmp_path) == expected
