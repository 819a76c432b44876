"""What every store of windows has in common: its protocol, the rows it takes in and the windows it closes.

A window stage turns keys into slots and expressions into numbers, then hands rows to its stores. A store
keeps the windows of one or several kinds for all keys, as arrays: it decides by the watermark which rows
are late, adds the others, and closes windows. Stores know no keys, no result schema and no engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import Frozen
from penstock.kernels.windows.accumulate import Cells
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import InputRows, Objects, WindowRows, no_ints
from penstock.timing.slices import closed_windows_of
from penstock.timing.windows import TimeWindow

Decisions = npt.NDArray[np.uint8]
Decided = tuple[Decisions, Ints]
"""(decisions, misses), both of shape [n_kinds, n_rows]: a `Decision` per kind and row, and how many windows
of that kind had closed before the row came."""


class Decision(IntEnum):
    """What one kind of window decides about a row."""

    ADMITTED = 0
    """It lies in a window that is still open."""
    LATE = 1
    """All its windows have closed."""
    GAP = 2
    """It lies in no window."""


class Outcome(IntEnum):
    """What became of a row in count windows."""

    NO_WINDOW = 0
    UNFINISHED = 1
    PASSED = 2


class ClosedWindows(Frozen):
    """Windows that close, or that fire early; m of them, in any order.

    kinds     int64[m]  which of the store's windows, a number below `WindowStore.n_kinds`
    slots     int64[m]
    starts    int64[m]  bounds in microseconds; of a count window the times of its first and last row
    ends      int64[m]
    times     int64[m]  the times of the results
    index     int64[m]  the number of a count window; None for other kinds
    cells     one array [m, width] per accumulator
    members   the windows' rows, from stores that keep rows
    touched   slots whose state changed although none of their windows may have closed
    settled   (tags, outcomes): every tag that a count store was given comes back exactly once, PASSED when
              the first window with the row closes, NO_WINDOW when its number lies in a gap of all kinds,
              UNFINISHED at the end of the stream. Tags of -1 do not come back
    sketches  one array object[m] per sketch, from stores that keep sketches
    """

    kinds: Ints
    slots: Ints
    starts: Ints
    ends: Ints
    times: Ints
    index: Ints | None = None
    cells: tuple[Cells, ...] = ()
    members: WindowRows | None = None
    touched: Ints = field(default_factory=no_ints)
    settled: tuple[Ints, Decisions] | None = None
    sketches: tuple[Objects, ...] = ()

    def at(self, places: Ints) -> ClosedWindows:
        """Return some of the windows, in the order of `places`."""
        return replace(
            self.bounds_at(places),
            cells=tuple(cells[places] for cells in self.cells),
            members=None if self.members is None else self.members.at(places),
            touched=self.touched,
            settled=self.settled,
            sketches=tuple(summaries[places] for summaries in self.sketches),
        )

    def bounds_at(self, places: Ints) -> ClosedWindows:
        """Return where and when some of the windows are, without what they hold."""
        return ClosedWindows(
            self.kinds[places],
            self.slots[places],
            self.starts[places],
            self.ends[places],
            self.times[places],
            None if self.index is None else self.index[places],
        )

    @staticmethod
    def concat(parts: Sequence[ClosedWindows]) -> ClosedWindows:
        """Return several lots of windows as one, with their cells; those without an index get -1."""
        if len(parts) == 1:
            return parts[0]
        index = None
        if any(part.index is not None for part in parts):
            index = np.concatenate([window_index(part) for part in parts])
        cells = zip(*(part.cells for part in parts), strict=False)
        return ClosedWindows(
            np.concatenate([part.kinds for part in parts]),
            np.concatenate([part.slots for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.ends for part in parts]),
            np.concatenate([part.times for part in parts]),
            index,
            tuple(np.concatenate(of_one) for of_one in cells),
        )


def window_index(closed: ClosedWindows) -> Ints:
    """Return the number of each count window among those of its key; -1 for other windows."""
    return np.full(len(closed.slots), -1, np.int64) if closed.index is None else closed.index


class OpenWindows(Frozen):
    """Windows that have rows and are open; m of them, in any order.

    kinds   int64[m]  as in `ClosedWindows`
    places  int64[m]  whose they are
    starts  int64[m]  of time windows; else 0
    """

    kinds: Ints
    places: Ints
    starts: Ints


StateBatches = Mapping[str, pa.RecordBatch]
"""A store's state: batches by name, each with a column "place" (int64) that says whose slot a row is of."""


class WindowStore(Protocol):
    """The windows of some kinds, for all keys.

    Each watermark given to `add` is the one that `close` was last given.
    """

    n_kinds: int
    """The number of kinds of window: `ClosedWindows.kinds` is below it."""

    @property
    def nbytes(self) -> int:
        """Return the memory held."""

    @property
    def next_end(self) -> int | None:
        """Return the least watermark at which a window can close; None if that depends on rows."""

    def explain(self) -> tuple[str, ...]:
        """Say for each kind which algorithm was chosen, and why."""

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Decide which rows are late, and add the others; None means that all were admitted, none missed."""

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close every window that the watermark has passed; `ended` is the end of the stream, at ENDED."""

    def fire_early(self) -> ClosedWindows:
        """Return the open windows that changed since they last fired early."""

    def has_state(self, slots: Ints) -> Mask:
        """Return which of these slots have state here; the others can be given to other keys."""

    def export(self, slots: Ints) -> StateBatches:
        """Return the state of these slots, to be saved: "place" counts in `slots`."""

    def list_open(self, saved: StateBatches) -> OpenWindows:
        """Return the windows that are open in exported state."""

    def rows_before(self, saved: StateBatches) -> int:
        """Return a time before which all rows of exported windows lie; NEVER if there are none."""

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over saved state: what was at place i now belongs to slots[i], which has no state yet."""


def decide_rows(
    windows: Sequence[TimeWindow], lateness: int, times: Ints, watermark: int, least: int | None = None
) -> Decided | None:
    """Decide what each kind of time window says to each row; None when all are admitted, none missed.

    `least` is the least time, if it is known. Only rows before the watermark can have missed a window.
    """
    behind = np.empty(0, np.int64)
    if (times.min(initial=watermark) if least is None else least) < watermark - lateness:
        behind = np.flatnonzero(times < watermark - lateness)
    elif not any(window.every > window.size for window in windows):
        return None
    decisions = np.full((len(windows), len(times)), Decision.ADMITTED, np.uint8)
    misses = np.zeros((len(windows), len(times)), np.int64)
    for kind, window in enumerate(windows):
        if len(behind):
            old = times[behind]
            misses[kind, behind] = missed = closed_windows_of(window, old, watermark, lateness)
            n_windows = old // window.every - (old - window.size) // window.every
            decisions[kind, behind[missed == n_windows]] = Decision.LATE
        if window.every > window.size:
            decisions[kind, np.mod(times, window.every) >= window.size] = Decision.GAP
    return decisions, misses


def unique_slots(parts: Sequence[Ints]) -> Ints:
    """Return the slots that are in some part, each once, in order."""
    if len(parts) == 1 and len(parts[0]) < 2:
        return parts[0]
    # Why: slots are dense, so a table of flags beats sorting.
    flags = np.zeros(max((int(part.max(initial=-1)) for part in parts), default=-1) + 1, np.bool_)
    for part in parts:
        flags[part] = True
    return np.flatnonzero(flags)
