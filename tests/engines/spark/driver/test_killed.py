"""A program on real Spark that is killed and started again: every sink has every row once.

Death at every named point, by os._exit, in one chain of restarts; and kill -9 of everything at a moment that
chance decides. What stands between the points is tried in test_crash.py, where a restart takes no seconds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.crash_points import (
    CLEANED,
    COMMITTED,
    LISTED,
    POINTS,
    PROCESSED,
    PUBLISHED,
    READ,
    RENAMED,
    STAGED,
    WRITTEN,
)
from tests.support import crashing_graph as dying
from tests.support.crashing_program import DIED

pytestmark = pytest.mark.slow
CHAIN = [(READ, 2), (PROCESSED, 1), (COMMITTED, 2), (STAGED, 2), (RENAMED, 1), (CLEANED, 1)]
"""How often each point is passed before the process ends there: each restart gets a little further."""


def program(folder: Path, *args: str) -> subprocess.Popen[str]:
    """The program, begun."""
    return dying.program("tests.support.crashing_program", folder, *args)


def surprising_lines(complaints: str) -> list[str]:
    """Return what a program printed besides that it dropped late rows."""
    return [line for line in complaints.splitlines() if "came too late" not in line]


@pytest.mark.nightly  # each point takes a Java of its own; test_crash.py tries all of them without one
def test_a_program_that_dies_at_every_point_in_turn_writes_every_row_once(tmp_path: Path) -> None:
    of_the_run = set(POINTS) - {WRITTEN, LISTED, PUBLISHED}  # a writer's own are tried in test_crash.py
    assert {point for point, _ in CHAIN} == of_the_run
    for point, number in CHAIN:
        run = program(tmp_path, point, str(number))
        points, complaints = run.communicate()
        assert (run.returncode, points.splitlines()[-1], complaints) == (DIED, point, "")
    run = program(tmp_path)
    points, complaints = run.communicate()
    assert (run.returncode, surprising_lines(complaints)) == (0, [])
    assert set(points.splitlines()) <= set(POINTS), "nothing else may be printed"
    assert dying.read_sinks(tmp_path) == dying.expected_sinks(tmp_path / "whole")


def test_a_program_killed_at_a_moment_that_chance_decides_writes_every_row_once(tmp_path: Path) -> None:
    # `make faults` kills at forty such moments and more.
    with program(tmp_path) as run:
        assert run.stdout is not None
        for _ in range(random.Random(7).randint(4, 12)):
            run.stdout.readline()
        os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == -signal.SIGKILL
    last = program(tmp_path)
    points, complaints = last.communicate()
    assert (last.returncode, surprising_lines(complaints)) == (0, [])
    assert set(points.splitlines()) <= set(POINTS), "nothing else may be printed"
    assert dying.read_sinks(tmp_path) == dying.expected_sinks(tmp_path / "whole")
