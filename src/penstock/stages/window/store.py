"""What every store of windows has in common: its protocol, the rows it takes in and the windows it closes.

A window stage turns keys into slots and expressions into numbers, then hands rows to its stores. A store
keeps the windows of one or several kinds for all keys, as arrays: it decides by the watermark which rows
are late, adds the others, and closes windows. Stores know no keys, no result schema and no engine.

Watermarks are plain integers between NEVER and ENDED: times are within 2^61 microseconds of 1970, so sums
of a time, a size and a lateness stay in int64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.windows.accumulate import Cells
from penstock.stages.rows.batch import Ints, Mask

NEVER = -(2**62)
"""The watermark before the first row."""
ENDED = 2**62
"""The watermark after the last row."""
NOT_LIFTED = object()
"""Stands for the result of a fold's `lift` where it is not known."""

Decisions = npt.NDArray[np.uint8]
Objects = npt.NDArray[np.object_]
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
    """What became of a row in count windows, best last; of several kinds the best outcome counts."""

    NO_WINDOW = 0
    UNFINISHED = 1
    PASSED = 2


@dataclass(frozen=True, slots=True)
class Values:
    """A column to aggregate: int64[n] or float64[n], and which values are not null (None: all)."""

    data: npt.NDArray[Any]
    valid: Mask | None = None

    def at(self, places: npt.NDArray[Any]) -> Values:
        """Return the values of some rows."""
        return Values(self.data[places], None if self.valid is None else self.valid[places])


@dataclass(frozen=True, slots=True)
class InputRows:
    """Rows on their way into stores; all arrays have one length.

    slots       int64[n]  dense numbers of the keys
    times       int64[n]
    order       as in Batch; accumulators that read an order (first, last) need exactly one array
    values      one per column that accumulators name
    rows        the columns for stores that keep rows: the input's, then computed expressions, always in this
                order, so that sorting by all columns is sorting by the input. None if no store keeps rows
    tags        int64[n]  a number that a store attaches to each row: of count windows the id of a pending
                row, -1 if another kind admitted it; of kept rows whether they were fired early
    single_key  whether it is known that all slots are 0
    lifted      for folds in Python: what `lift` returned for each row, one array of objects per fold. A
                snapshot holds only the rows; after a restore this is NOT_LIFTED
    """

    slots: Ints
    times: Ints
    order: tuple[Ints, ...] = ()
    values: tuple[Values, ...] = ()
    rows: pa.RecordBatch | None = None
    tags: Ints | None = None
    single_key: bool = False
    lifted: tuple[Objects, ...] = ()

    def at(self, places: npt.NDArray[Any]) -> InputRows:
        """Return some of the rows, in the order of `places`."""
        return InputRows(
            self.slots[places],
            self.times[places],
            tuple(column[places] for column in self.order),
            tuple(column.at(places) for column in self.values),
            None if self.rows is None else self.rows.take(pa.array(places)),
            None if self.tags is None else self.tags[places],
            self.single_key,
            tuple(parts[places] for parts in self.lifted),
        )


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of several windows: window i has rows[places[offsets[i]:offsets[i + 1]]], in order.

    `lifted` is as in InputRows, for `rows`.
    """

    rows: pa.RecordBatch
    offsets: Ints
    places: Ints
    lifted: tuple[Objects, ...] = ()

    def at(self, windows: Ints) -> WindowRows:
        """Return the rows of some of the windows."""
        counts = np.diff(self.offsets)[windows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
        places = self.places[np.repeat(self.offsets[windows], counts) + within]
        return WindowRows(self.rows, offsets, places, self.lifted)


def no_ints() -> Ints:
    """Return an empty array of integers."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ClosedWindows:
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
              the first window with the row closes, NO_WINDOW when its number lies in a gap, UNFINISHED at the
              end of the stream. Tags of -1 need not come back
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

    def sort(self) -> ClosedWindows:
        """Return the windows by (kind, slot, start): the same order whichever store they come from."""
        return self.at(np.lexsort((self.starts, self.slots, self.kinds)))


def window_index(closed: ClosedWindows) -> Ints:
    """Return the number of each count window among those of its key; -1 for other windows."""
    return np.full(len(closed.slots), -1, np.int64) if closed.index is None else closed.index


StateBatches = Mapping[str, pa.RecordBatch]
"""A store's state: batches by name, each with a column "place" (int64) that says whose slot a row is of."""


class WindowStore(Protocol):
    """The windows of some kinds, for all keys.

    Each watermark given to `add` is the one that `close` was last given.
    """

    @property
    def n_kinds(self) -> int:
        """Return the number of kinds of window: `ClosedWindows.kinds` is below it."""

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

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over saved state: what was at place i now belongs to slots[i], which has no state yet."""


def unique_slots(parts: Sequence[Ints]) -> Ints:
    """Return the slots that are in some part, each once, in order."""
    if len(parts) == 1 and len(parts[0]) < 2:
        return parts[0]
    # Why: slots are dense, so a table of flags beats sorting.
    flags = np.zeros(max((int(part.max(initial=-1)) for part in parts), default=-1) + 1, np.bool_)
    for part in parts:
        flags[part] = True
    return np.flatnonzero(flags)
