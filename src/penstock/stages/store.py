"""What a store is: the windows of one or several kinds for all keys, as arrays.

A window stage turns keys into slots and expressions into numbers, then asks its stores: each judges rows by
the watermark, takes in what is not late, and lets windows leave. Time windows, sessions and count windows
are stores of registers; where aggregates need the rows themselves, a second store of the same windows
keeps rows. Stores know no keys, no schema of results and no engine.

A register that reads an order (first, last) is only asked for when `order` is one column.

Watermarks are plain integers between NEVER and ENDED: times are within 2^61 microseconds of 1970, so that
sums of a time, a size and a lateness stay in int64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.rules import Cells
from penstock.stages.batch import Ints, Mask

NEVER = -(2**62)
"""The watermark before the first row."""
ENDED = 2**62
"""The watermark after the last row."""

Fates = npt.NDArray[np.uint8]
Objects = npt.NDArray[np.object_]
Judged = tuple[Fates, Ints]


UNLIFTED = object()
"""In the place of what lift gave for a row, where that is not known."""


class Fate(IntEnum):
    """What a store says to a row: it is in a window still open; all its windows have left; it has none."""

    TAKEN = 0
    LATE = 1
    GAP = 2


class Outcome(IntEnum):
    """What became of a row in count windows, greatest first: some window left with it, or none ever will."""

    NO_WINDOW = 0
    UNFINISHED = 1
    PASSED = 2


@dataclass(frozen=True, slots=True)
class Values:
    """What is aggregated: int64[n] or float64[n], and which are not null (None: all)."""

    data: npt.NDArray[Any]
    valid: Mask | None = None

    def at(self, places: npt.NDArray[Any]) -> Values:
        """The values of some rows."""
        return Values(self.data[places], None if self.valid is None else self.valid[places])


@dataclass(frozen=True, slots=True)
class Arriving:
    """Rows on their way into the stores of a stage, all arrays of one length.

    slots    int64[n]  dense numbers of the keys
    alone    whether it is known that all slots are 0
    times    int64[n]
    order    as in Batch
    values   one per column that registers name
    rows     the columns for stores that keep rows: the input's, then what aggregates are of (same order of
             columns every time; so that sorting by all is sorting by the input). None if none keeps rows
    tickets  int64[n]  for count windows only: -1 for a row that another kind has taken, else a number to
             settle it by
    lifted   for folds in Python that keep rows: what lift gave for each row, one array of objects per fold.
             A snapshot has the rows only; what it brings back is UNLIFTED
    """

    slots: Ints
    times: Ints
    order: tuple[Ints, ...] = ()
    values: tuple[Values, ...] = ()
    rows: pa.RecordBatch | None = None
    tickets: Ints | None = None
    alone: bool = False
    lifted: tuple[Objects, ...] = ()

    def at(self, places: npt.NDArray[Any]) -> Arriving:
        """Some of the rows, in the order of `places`."""
        return Arriving(
            self.slots[places],
            self.times[places],
            tuple(each[places] for each in self.order),
            tuple(each.at(places) for each in self.values),
            None if self.rows is None else self.rows.take(pa.array(places)),
            None if self.tickets is None else self.tickets[places],
            self.alone,
            tuple(each[places] for each in self.lifted),
        )


@dataclass(frozen=True, slots=True)
class Members:
    """The rows of several windows: window i has rows[places[offsets[i]:offsets[i + 1]]], in order.

    `lifted` is as in Arriving, for `rows`.
    """

    rows: pa.RecordBatch
    offsets: Ints
    places: Ints
    lifted: tuple[Objects, ...] = ()


def nothing() -> Ints:
    """No numbers."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Left:
    """Windows that leave, or that are shown early; m of them, in any order.

    kinds    int64[m]  which of the store's windows, a number below `Store.n_kinds`
    slots    int64[m]
    starts   int64[m]  bounds in microseconds; of a count window the times of its first and last row
    ends     int64[m]
    times    int64[m]  the times of the results
    index    int64[m]  the number of a count window; None for other kinds
    cells    one array [m, width] per register of the store
    members  the windows' rows, from stores that keep rows
    sketches one array object[m] per sketch, from stores that keep sketches (`sketch.py`)
    touched  slots whose state changed though perhaps no window of theirs left
    settled  (tickets, outcomes): every ticket that a count store has taken comes back exactly once, PASSED
             when the first window with it leaves, NO_WINDOW when its number lies in a gap, UNFINISHED at
             the end. Tickets of -1 need not come back
    """

    kinds: Ints
    slots: Ints
    starts: Ints
    ends: Ints
    times: Ints
    index: Ints | None = None
    cells: tuple[Cells, ...] = ()
    members: Members | None = None
    touched: Ints = field(default_factory=nothing)
    settled: tuple[Ints, Fates] | None = None
    sketches: tuple[npt.NDArray[np.object_], ...] = ()


Saved = Mapping[str, pa.RecordBatch]
"""A store's state: batches by name, each with a column "place" (int64) that says whose slot a row is of."""


class Store(Protocol):
    """The windows of some kinds, for all keys."""

    @property
    def n_kinds(self) -> int:
        """How many kinds of window: `Left.kinds` is below it."""

    @property
    def why(self) -> tuple[str, ...]:
        """For each kind: the algorithm and why it was chosen, for explain()."""

    @property
    def nbytes(self) -> int:
        """The memory held."""

    def take(self, arriving: Arriving, watermark: int) -> Judged | None:
        """Judge rows and take in what is not late.

        Gives (fates, misses), each of shape [n_kinds, n]: what each kind says to each row, and how many of
        its windows the row has missed. None, the common answer, is short for: all taken, none missed.
        """

    def leave(self, watermark: int, *, ended: bool = False) -> Left:
        """Let go every window that the watermark has passed; `ended` is the end of the stream, at ENDED."""

    def early(self) -> Left:
        """The open windows that changed since they were last shown."""

    def holds(self, slots: Ints) -> Mask:
        """Which of these slots have state here; the others can be given to other keys."""

    def export(self, slots: Ints) -> Saved:
        """The state of these slots, to be saved: "place" counts in `slots`."""

    def load(self, saved: Saved, slots: Ints) -> None:
        """Take up saved state: what was at place i now belongs to slots[i], which has no state yet."""
