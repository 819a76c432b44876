"""How many threads a kernel is launched with.

Every kernel walks its work in strides of the whole grid (gridDim x blockDim, which Figs. 7 and 9 of the
paper misprint), so any number of blocks and threads is right, and only the speed depends on it. The
simulator runs each CUDA thread as a thread of the system, so it gets few.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.kernels.cuda.device import simulated


@dataclass(frozen=True, slots=True)
class Launch:
    """At most `blocks` blocks of `threads` threads."""

    blocks: int
    threads: int

    def over(self, n: int) -> tuple[int, int]:
        """The grid for `n` pieces of work."""
        return max(1, min(self.blocks, -(-n // self.threads))), self.threads


def usual_launch() -> Launch:
    """What suits the device at hand: enough blocks to fill any GPU of today, or very few threads."""
    return Launch(blocks=2, threads=2) if simulated() else Launch(blocks=2048, threads=256)
