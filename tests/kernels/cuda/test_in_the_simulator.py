"""Everything in simulated/ holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.cuda.simulator import run_in_simulator

FOLDER = Path(__file__).parent / "simulated"
FILES = ["sort.py", "panes.py", "tree.py", "registers.py", "windows.py"]


def test_every_file_in_simulated_is_run() -> None:
    assert sorted(FILES) == sorted(file.name for file in FOLDER.glob("[!_]*.py"))


@pytest.mark.slow
def test_all_holds_in_the_simulator() -> None:
    run_in_simulator(*(FOLDER / file for file in FILES))
