"""A plugin of pytest for the simulator: this thread is one thread of a block after the other, by chance.

Left to itself the simulator starts a thread of the system for each, asks without a pause whether they have
ended, and all wait for Python's lock: most of a test's time. Our kernels never wait for one another
(syncthreads), so any order is right, and must give the same.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
from numba.cuda.simulator.kernel import BlockManager
from numba.cuda.simulator.kernelapi import Dim3

CHANCE = random.Random(3)


def run(block: Any, place: Any, *args: Any) -> None:
    """Run the threads of a block."""
    posing: Any = threading.current_thread()  # where the simulator looks up which thread of CUDA it is in
    posing.blockIdx = Dim3(*place)
    points = list(np.ndindex(*block._block_dim))
    CHANCE.shuffle(points)
    for point in points:
        posing.threadIdx = Dim3(*point)
        block._f(*args)


BlockManager.run = run
