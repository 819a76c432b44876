"""Is there a CUDA device, and which of cpu and cuda is meant by "auto".

Safe to import without numba-cuda: it is looked for when asked, not before. "auto" looks for a driver first,
so that a machine without one never loads Numba for it. The CUDA simulator counts as a device only for those
who name it: "auto" never picks it, because it is there to test, not to be fast.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from functools import cache
from typing import Literal, cast

from penstock.errors import EngineError, nearest_first
from penstock.frozen import Frozen

Device = Literal["cpu", "cuda"]
CHOICES = ("auto", "cpu", "cuda")
INSTALL = 'pip install "penstock[gpu]"'


def explain_missing() -> str | None:
    """Return what was looked for and not found, in one sentence; None when nothing is missing."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "the package numba-cuda is not installed"
    try:
        from numba import cuda
    except (ImportError, RuntimeError, OSError) as fault:  # numba-cuda loads the CUDA runtime on import
        return f"numba-cuda is installed, but the CUDA runtime could not be loaded: {_first_line(fault)}"
    if cuda.is_available():
        return None
    return f"numba-cuda found no usable device: {_first_line(cuda.cuda_error() or 'none is listed')}"


def is_simulated() -> bool:
    """Return whether kernels run in numba's CUDA simulator. Only to be asked when nothing is missing."""
    from numba import cuda

    return bool(cuda.config.ENABLE_CUDASIM)


def explain_auto_cpu() -> str | None:
    """Return why "auto" means the cpu here, in one sentence; None when there is a device."""
    return (
        _no_driver() or explain_missing() or ("the CUDA simulator is for tests" if is_simulated() else None)
    )


@cache
def _no_driver() -> str | None:
    """Return why there is no driver, if so. It is not started: that would spoil it for forked processes."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return f"there is no NVIDIA driver ({name})"
    return None


def choose_device(device: str = "auto") -> Device:
    """Return the device to use: "auto" is cuda if there is one, else cpu; raise for "cuda" without one."""
    if device not in CHOICES:
        raise EngineError(
            f"there is no device {device!r}",
            detail="devices: " + ", ".join(nearest_first(device, CHOICES)),
            hint=f'say device="{nearest_first(device, CHOICES)[0]}"',
        )
    if device == "auto":
        return "cuda" if explain_auto_cpu() is None else "cpu"
    lacking = explain_missing() if device == "cuda" else None
    if lacking is not None:
        raise EngineError(
            'device="cuda" was asked for, and there is no CUDA device here',
            detail=f"looked for numba-cuda, the CUDA runtime, an NVIDIA driver and a device: {lacking}",
            hint=f'{INSTALL}, on a machine with an NVIDIA driver; or say device="auto"',
        )
    return cast("Device", device)


def _first_line(fault: object) -> str:
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return lines[0] if lines else type(fault).__name__


class Launch(Frozen):
    """A number of threads: `fewest` to `blocks` blocks of `threads`; threads without work end at once.

    Every kernel walks its work in strides of the whole grid (gridDim x blockDim, which Figs. 7 and 9 of the
    paper misprint), so any number of blocks and threads is right, and only the speed depends on it.
    """

    blocks: int
    threads: int
    fewest: int = 1

    def over(self, n: int) -> tuple[int, int]:
        """Return the grid for `n` pieces of work."""
        return max(self.fewest, min(self.blocks, -(-n // self.threads))), self.threads


def default_launch() -> Launch:
    """Return enough blocks to fill any GPU of today; in the simulator few, where each is a system thread.

    numba warns of grids below 128 blocks. A small batch is no fault of the user's, so there are none.
    """
    return Launch(blocks=2, threads=2) if is_simulated() else Launch(blocks=2048, threads=256, fewest=128)
