"""Which open windows have been shown early, with how many rows: a window changed if it has more by now.

Rows only come while a window is open, so their number tells whether anything did.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from penstock.stages.batch import Ints, Mask
from penstock.stages.store import Left


class Shown:
    """What `early` gave out last."""

    def __init__(self) -> None:
        self._windows = np.empty((0, 5), np.int64)  # kind, slot, start, end, rows

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._windows.nbytes

    def forget_until(self, end: int) -> None:
        """Windows up to this end have left."""
        self._windows = self._windows[self._windows[:, 3] > end]

    def changed(self, windows: Left) -> Left:
        """Of all open windows, those with other rows than when last shown. Their first cells count rows."""
        rows = windows.cells[0][:, 0]
        now = np.stack([windows.kinds, windows.slots, windows.starts, windows.ends, rows], axis=1)
        new = _not_in(now, self._windows)
        self._windows = now
        return _only(windows, np.flatnonzero(new))


def _not_in(now: Ints, before: Ints) -> Mask:
    """Which rows of `now` are not among those of `before`; neither has a row twice."""
    both = np.concatenate([before, now])
    order = np.lexsort(both.T[::-1])
    same = np.zeros(len(both), np.bool_)
    equal = (both[order[1:]] == both[order[:-1]]).all(axis=1)
    same[order[1:][equal]] = True
    same[order[:-1][equal]] = True
    return ~same[len(before) :]


def _only(windows: Left, which: Ints) -> Left:
    columns = {name: getattr(windows, name)[which] for name in ("kinds", "slots", "starts", "ends", "times")}
    return replace(windows, **columns, cells=tuple(cells[which] for cells in windows.cells))
