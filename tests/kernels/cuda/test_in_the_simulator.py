"""Runs the files in simulated/ inside numba's CUDA simulator, each in a process of its own.

The simulator is chosen when numba is imported, so it cannot be switched on in a process that may have
numba already. There is no other way to run CUDA kernels on a machine without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "simulated"
ROOT = Path(__file__).parents[3]
FILES = ["sorting.py", "panes.py", "tree.py", "operations.py", "windows.py"]


def test_every_file_in_simulated_is_run() -> None:
    assert sorted(FILES) == sorted(file.name for file in FOLDER.glob("[!_]*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_all_holds_in_the_simulator(file: str) -> None:
    pytest.importorskip("numba_cuda", reason='needs the extra gpu: pip install "penstock[gpu]"')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / file)],
        cwd=ROOT,
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
