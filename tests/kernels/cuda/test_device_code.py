"""Every kernel, around every operation, compiles to device code; without libnvvm that cannot be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("device_code.py")


@pytest.mark.slow
def test_every_kernel_compiles_for_a_device() -> None:
    pytest.importorskip("numba_cuda", reason='needs the extra gpu: pip install "penstock[gpu]"')
    env = {name: value for name, value in os.environ.items() if name != "NUMBA_ENABLE_CUDASIM"}
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode == 77:
        pytest.skip("there is no libnvvm here: pip install nvidia-nvvm")
    assert (done.returncode, done.stdout) == (0, "75\n"), done.stderr
