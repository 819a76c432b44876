"""Runs files of tests inside numba's CUDA simulator, in a process of its own.

The simulator is chosen when numba is imported, so it cannot be switched on in a process that may have
numba already. There is no other way to run CUDA kernels on a machine without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IN_TURN = "tests.kernels.cuda.in_turn"


def run_in_simulator(*files: Path) -> None:
    """Run the tests of some files; fail with what they say."""
    pytest.importorskip("numba_cuda", reason='needs the extra gpu: pip install "penstock[gpu]"')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", IN_TURN, *map(str, files)],
        cwd=ROOT,
        env=os.environ | {"NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
