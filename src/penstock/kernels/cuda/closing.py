"""The windows that one watermark closes: queued on the device, then read when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import cuda

from penstock.frozen import dataclass
from penstock.kernels.rules import Rule

Array = npt.NDArray[Any]


class WindowCells(NamedTuple):
    """The windows with rows: columns of equal length, in the order of their leaving per slot and kind.

    kinds  int64[m]  which of the slicing's windows
    slots  int64[m]
    starts int64[m]
    cells  one array [m, width] per register
    """

    kinds: Array
    slots: Array
    starts: Array
    cells: tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Some windows of some slots; their cells arrive in pinned memory once `done` has happened."""

    which: Array
    kinds: Array
    starts: Array
    cells: list[Array]
    done: Any
    on_device: list[Any]
    """Held until the copies are done."""

    @staticmethod
    def queued(
        which: Array, kinds: Array, starts: Array, on_device: list[Any], stream: Any, back: Any
    ) -> Run:
        """Queue the copies on the stream `back`, after what `stream` has to do: so that it may go on."""
        computed, done = cuda.event(), cuda.event()
        computed.record(stream)
        computed.wait(back)
        cells = [cuda.pinned_array(each.shape, dtype=each.dtype) for each in on_device]
        for host, each in zip(cells, on_device, strict=True):
            each.copy_to_host(host, stream=back)
        done.record(back)
        return Run(which, kinds, starts, cells, done, on_device)

    def found(self) -> WindowCells:
        """The windows that have rows. Waits for the copies."""
        self.done.synchronize()
        n_windows = len(self.starts)
        filled = np.flatnonzero(self.cells[0][:, 0] > 0)
        slots, windows = np.divmod(filled, n_windows)
        cells = tuple(each[filled] for each in self.cells)
        return WindowCells(self.kinds[windows], self.which[slots], self.starts[windows], cells)


class Closing:
    """Results on their way back from the device."""

    def __init__(self, rules: Sequence[Rule], runs: list[Run]) -> None:
        self._rules, self._runs = rules, runs

    def results(self) -> WindowCells:
        """All the windows; while the first are read, the device may still be at the last."""
        empty = np.empty(0, np.int64)
        parts = [run.found() for run in self._runs]
        kinds, slots, starts = (
            np.concatenate([empty, *(getattr(part, name) for part in parts)])
            for name in ("kinds", "slots", "starts")
        )
        cells = tuple(
            np.concatenate([rule.blank(0), *(part.cells[i] for part in parts)])
            for i, rule in enumerate(self._rules)
        )
        return WindowCells(kinds, slots, starts, cells)
