"""A program can be followed: the README's runs through few files and functions of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "trace.py"


@pytest.mark.slow
def test_the_readme_s_program_stays_within_the_limits() -> None:
    for _ in range(3):  # where other tests take the cores, threads also run through what waits
        # In a process of its own: what other tests have loaded and compiled must not count.
        done = subprocess.run([sys.executable, str(TOOL)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files (at most" in done.stdout
