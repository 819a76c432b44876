"""How many threads a kernel is launched with.

Every kernel walks its work in strides of the whole grid (gridDim x blockDim, which Figs. 7 and 9 of the
paper misprint), so any number of blocks and threads is right, and only the speed depends on it. The
simulator runs each CUDA thread as a thread of the system, so it gets few.
"""

from __future__ import annotations

from penstock.frozen import dataclass
from penstock.kernels.cuda.device import simulated


@dataclass(frozen=True, slots=True)
class Launch:
    """`fewest` to `blocks` blocks of `threads` threads; threads without work end at once."""

    blocks: int
    threads: int
    fewest: int = 1

    def over(self, n: int) -> tuple[int, int]:
        """The grid for `n` pieces of work."""
        return max(self.fewest, min(self.blocks, -(-n // self.threads))), self.threads


def usual_launch() -> Launch:
    """Enough blocks to fill any GPU of today; in the simulator, few threads.

    numba warns of grids below 128 blocks. A small batch is no fault of the user's, so there are none.
    """
    return Launch(blocks=2, threads=2) if simulated() else Launch(blocks=2048, threads=256, fewest=128)
