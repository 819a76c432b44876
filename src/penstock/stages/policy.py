"""Which of its two speeds a loop runs at: plain Python while there is little to do, compiled after that.

Loading Numba takes longer than a small program does, so it is loaded when a store has had enough work to pay
for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.kernels.compile.loops import Loop

SMALL = 10_000
"""Loops run plain up to this much work in total."""


class Pace:
    """Counts the work of one store: `pace(loop, *arguments)` runs a loop at the speed that fits."""

    def __init__(self, small: int = SMALL) -> None:
        self._work, self._small = 0, small

    def __call__(self, loop: Loop, *arguments: Any, work: int | None = None) -> Any:
        """Run a loop; its work is the length of its longest list of numbers unless that is said."""
        if work is None:
            work = max(len(each) for each in arguments if isinstance(each, np.ndarray) and each.ndim == 1)
        self._work += work
        return loop.version(self._work > self._small)(*arguments)

    def compiles(self, work: int) -> bool:
        """Whether a loop with this much work to do would run compiled."""
        return self._work + work > self._small
