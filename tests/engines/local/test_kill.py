"""A program in process that is killed and started again: every sink has every row once."""

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
from tests.support.dying_local_program import DIED

pytestmark = pytest.mark.slow
CHAINS = [
    [(READ, 2), (PROCESSED, 1), (WRITTEN, 1), (LISTED, 1), (PUBLISHED, 1)],
    [(COMMITTED, 2), (STAGED, 2), (RENAMED, 1), (CLEANED, 1)],
]
"""How often each point is passed before the process ends there: each restart gets a little further."""


def program(folder: Path, *args: str) -> subprocess.Popen[str]:
    """The program, begun."""
    return dying.program("tests.support.dying_local_program", folder, *args)


def has_ended(folder: Path) -> bool:
    """Whether it has come to its end, from where no run goes on."""
    return any((folder / "checkpoint" / "commits").glob("*-end.json"))


def finish(folder: Path) -> None:
    """Let it run to its end, unless it has come there."""
    if not has_ended(folder):
        run = program(folder)
        points, complaints = run.communicate()
        # Late rows are dropped by this program, and that is told.
        surprises = [line for line in complaints.splitlines() if "came too late" not in line]
        assert (run.returncode, surprises) == (0, [])
        assert set(points.splitlines()) <= set(POINTS), "nothing else may be printed"


def test_every_point_is_tried() -> None:
    assert {point for chain in CHAINS for point, _ in chain} == set(POINTS)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_program_that_dies_at_every_point_in_turn_writes_every_row_once(
    tmp_path: Path, chain: list[tuple[str, int]]
) -> None:
    folders = [tmp_path / "0"]
    folders[0].mkdir()
    for point, number in chain:
        while not died_at(point, number, folders[-1]):
            assert has_ended(folders[-1])  # it was there before it had come by the point so often
            folders.append(tmp_path / str(len(folders)))
            folders[-1].mkdir()
            assert len(folders) < 8, f"it never comes to {point!r}"
    finish(folders[-1])
    expected = dying.expected_sinks(tmp_path / "whole")
    for folder in folders:
        assert dying.read_sinks(folder) == expected


def died_at(point: str, number: int, folder: Path) -> bool:
    """Whether it ended at the point, and not as it ends by itself."""
    if has_ended(folder):
        return False
    run = program(folder, point, str(number))
    points, complaints = run.communicate()
    assert complaints == ""
    if run.returncode == 0:
        return False
    assert run.returncode == DIED
    assert points.splitlines()[-1] == point
    return True


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_program_killed_at_moments_that_chance_decides_writes_every_row_once(
    tmp_path: Path, seed: int
) -> None:
    chance, kills = random.Random(seed), 0
    for _ in range(4):
        with program(tmp_path) as run:
            assert run.stdout is not None
            for _ in range(chance.randint(1, 14)):
                run.stdout.readline()
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                kills += 1
    finish(tmp_path)
    assert kills
    assert dying.read_sinks(tmp_path) == dying.expected_sinks(tmp_path / "whole")
