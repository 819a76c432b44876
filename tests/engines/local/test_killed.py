"""A program in process that is killed and started again: every sink has every row once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from pathlib import Path

import pytest

from penstock.crash_points import CARRIED, COMMITTED, LET_GO, POINTS, READ, RENAMED, SHOWN, STAGED, WRITTEN
from tests.engines.local.dying_program import DIED
from tests.engines.spark import dying

pytestmark = pytest.mark.slow
CHAINS = [
    [(READ, 2), (CARRIED, 1), (WRITTEN, 1), (SHOWN, 1)],
    [(COMMITTED, 2), (STAGED, 2), (RENAMED, 1), (LET_GO, 1)],
]
"""How often each point is passed before the process ends there: each restart gets a little further."""


def program(folder: Path, *args: str) -> subprocess.Popen[str]:
    """The program, begun."""
    return dying.program("tests.engines.local.dying_program", folder, *args)


def finish(folder: Path) -> None:
    """Let it run to its end, unless it has come there."""
    if not any((folder / "checkpoint" / "commits").glob("*-end.json")):
        run = program(folder)
        points, complaints = run.communicate()
        assert (run.returncode, complaints) == (0, "")
        assert set(points.splitlines()) <= set(POINTS), "nothing else may be printed"


def test_every_point_is_tried() -> None:
    assert {point for chain in CHAINS for point, _ in chain} == set(POINTS)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_program_that_dies_at_every_point_in_turn_writes_every_row_once(
    tmp_path: Path, chain: list[tuple[str, int]]
) -> None:
    for point, number in chain:
        run = program(tmp_path, point, str(number))
        points, complaints = run.communicate()
        assert (run.returncode, complaints) == (DIED, "")
        assert point in points.splitlines()[-3:]  # other threads go on until the process is gone
    finish(tmp_path)
    assert dying.written(tmp_path) == dying.expected(tmp_path / "whole")


@pytest.mark.parametrize("seed", range(2))
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
    assert dying.written(tmp_path) == dying.expected(tmp_path / "whole")
