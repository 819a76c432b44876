"""Everything in simulated/ holds: window stages and their stores on a CUDA device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.cuda.simulator import run_in_simulator

FOLDER = Path(__file__).parent / "simulated"
FILES = ["store.py", "stage.py"]


def test_every_file_in_simulated_is_run() -> None:
    assert sorted(FILES) == sorted(file.name for file in FOLDER.glob("[!_]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["store.py", pytest.param("stage.py", marks=pytest.mark.nightly)])
def test_all_holds_in_the_simulator(file: str) -> None:
    run_in_simulator(FOLDER / file)
