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

Decisions = npt.NDArray[np.uint8]
Objects = npt.NDArray[np.object_]
Decided = tuple[Decisions, Ints]


NOT_LIFTED = object()
"""In the place of what lift gave for a row, where that is not known."""


class Decision(IntEnum):
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
class InputRows:
    """Rows on their way into the stores of a stage, all arrays of one length.

    slots    int64[n]  dense numbers of the keys
    alone    whether it is known that all slots are 0
    times    int64[n]
    order    as in Batch
    values   one per column that registers name
    rows     the columns for stores that keep rows: the input's, then what aggregates are of (same order of
             columns every time; so that sorting by all is sorting by the input). None if none keeps rows
    tags     int64[n]  for count windows only: -1 for a row that another kind has taken, else a number to
             settle it by
    lifted   for folds in Python that keep rows: what lift gave for each row, one array of objects per fold.
             A snapshot has the rows only; what it brings back is UNLIFTED
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
        """Some of the rows, in the order of `places`."""
        return InputRows(
            self.slots[places],
            self.times[places],
            tuple(each[places] for each in self.order),
            tuple(each.at(places) for each in self.values),
            None if self.rows is None else self.rows.take(pa.array(places)),
            None if self.tags is None else self.tags[places],
            self.single_key,
            tuple(each[places] for each in self.lifted),
        )


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of several windows: window i has rows[places[offsets[i]:offsets[i + 1]]], in order.

    `lifted` is as in Arriving, for `rows`.
    """

    rows: pa.RecordBatch
    offsets: Ints
    places: Ints
    lifted: tuple[Objects, ...] = ()


def no_ints() -> Ints:
    """No numbers."""
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class ClosedWindows:
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
    members: WindowRows | None = None
    touched: Ints = field(default_factory=no_ints)
    settled: tuple[Ints, Decisions] | None = None
    sketches: tuple[npt.NDArray[np.object_], ...] = ()


StateBatches = Mapping[str, pa.RecordBatch]
"""A store's state: batches by name, each with a column "place" (int64) that says whose slot a row is of."""


class WindowStore(Protocol):
    """The windows of some kinds, for all keys."""

    @property
    def n_kinds(self) -> int:
        """How many kinds of window: `Left.kinds` is below it."""

    def explain(self) -> tuple[str, ...]:
        """For each kind: the algorithm and why it was chosen."""

    @property
    def nbytes(self) -> int:
        """The memory held."""

    def add(self, arriving: InputRows, watermark: int) -> Decided | None:
        """Judge rows and take in what is not late.

        Gives (fates, misses), each of shape [n_kinds, n]: what each kind says to each row, and how many of
        its windows the row has missed. None, the common answer, is short for: all taken, none missed.
        """

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Let go every window that the watermark has passed; `ended` is the end of the stream, at ENDED."""

    def fire_early(self) -> ClosedWindows:
        """The open windows that changed since they were last shown."""

    def has_state(self, slots: Ints) -> Mask:
        """Which of these slots have state here; the others can be given to other keys."""

    def export(self, slots: Ints) -> StateBatches:
        """The state of these slots, to be saved: "place" counts in `slots`."""

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up saved state: what was at place i now belongs to slots[i], which has no state yet."""


# A shelf: the stores of the same windows, asked as one.
#
# Registers of time windows are kept in slices and their rows, where aggregates need them, in a store beside.
# Both judge alike and let the same windows leave, so that their answers can be laid side by side.


class WindowGroup:
    """One store or two of the same windows.

    kinds    int64[n_kinds]  which windows of the step they are
    counted  whether they are count windows, which alone settle tickets
    """

    def __init__(self, kinds: Sequence[int], stores: Sequence[WindowStore], *, counted: bool = False) -> None:
        self.kinds = np.array(kinds, np.int64)
        self.stores, self.counted = tuple(stores), counted

    def explain(self) -> tuple[str, ...]:
        """For each kind: the algorithms and why they were chosen."""
        return tuple(
            "; and ".join(parts) for parts in zip(*(each.explain() for each in self.stores), strict=True)
        )

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(store.nbytes for store in self.stores)

    def add(self, arriving: InputRows, watermark: int) -> Decided | None:
        """Judge rows and take in what is not late; None: all taken, none missed."""
        answers = [store.add(arriving, watermark) for store in self.stores]
        return answers[0]

    def close(self, watermark: int, *, ended: bool) -> ClosedWindows:
        """The windows that leave, with registers and rows."""
        return self._side_by_side([store.close(watermark, ended=ended) for store in self.stores])

    def fire_early(self) -> ClosedWindows:
        """The open windows that changed since they were last shown."""
        parts = [store.fire_early() for store in self.stores]
        if len(parts) > 1:
            # State of format 1 did not say of slices whether they had been shown, but did of rows.
            parts = [select_windows(part, np.flatnonzero(_is_in_all(part, parts))) for part in parts]
        return self._side_by_side(parts)

    def has_state(self, slots: Ints) -> Mask:
        """Which of these slots have state here."""
        return np.asarray(np.logical_or.reduce([store.has_state(slots) for store in self.stores]))

    def export(self, slots: Ints) -> StateBatches:
        """The state of these slots, by store and name."""
        return {
            f"{place}.{name}": batch
            for place, store in enumerate(self.stores)
            for name, batch in store.export(slots).items()
        }

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up saved state: what was at place i now belongs to slots[i]."""
        for place, store in enumerate(self.stores):
            start = f"{place}."
            store.load({n.removeprefix(start): b for n, b in saved.items() if n.startswith(start)}, slots)

    def _side_by_side(self, parts: list[ClosedWindows]) -> ClosedWindows:
        first, *others = (sort_windows(part) for part in parts) if len(parts) > 1 else parts
        touched = unique_slots([first.slots, *(part.touched for part in parts if len(part.touched))])
        for other in others:
            same = np.array_equal(first.slots, other.slots) and np.array_equal(first.starts, other.starts)
            assert same, "two stores of the same windows let different ones leave"
            first = replace(
                first,
                cells=first.cells + other.cells,
                members=first.members or other.members,
                sketches=first.sketches + other.sketches,
            )
        return replace(first, kinds=self.kinds[first.kinds], touched=touched)


def unique_slots(parts: Sequence[Ints]) -> Ints:
    """The slots that are in some part, each once, in order: slots are dense, so marking beats sorting."""
    if len(parts) == 1 and len(parts[0]) < 2:
        return parts[0]
    marks = np.zeros(max((int(part.max(initial=-1)) for part in parts), default=-1) + 1, np.bool_)
    for part in parts:
        marks[part] = True
    return np.flatnonzero(marks)


def sort_windows(left: ClosedWindows) -> ClosedWindows:
    """The same windows by (kind, slot, start): the same whichever store they come from."""
    order = np.lexsort((left.starts, left.slots, left.kinds))
    return select_windows(left, order)


def select_windows(left: ClosedWindows, places: Ints) -> ClosedWindows:
    """Some of the windows, in the order of `places`."""
    return replace(
        left,
        kinds=left.kinds[places],
        slots=left.slots[places],
        starts=left.starts[places],
        ends=left.ends[places],
        times=left.times[places],
        index=None if left.index is None else left.index[places],
        cells=tuple(each[places] for each in left.cells),
        members=None if left.members is None else _select_rows(left.members, places),
        sketches=tuple(each[places] for each in left.sketches),
    )


def _select_rows(members: WindowRows, places: Ints) -> WindowRows:
    counts = np.diff(members.offsets)[places]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
    chosen = members.places[np.repeat(members.offsets[places], counts) + within]
    return WindowRows(members.rows, offsets, chosen, members.lifted)


def _is_in_all(part: ClosedWindows, parts: Sequence[ClosedWindows]) -> Mask:
    """Which windows of one answer are in all."""
    mine = _window_ids(part)
    return np.asarray(np.logical_and.reduce([np.isin(mine, _window_ids(other)) for other in parts]))


def _window_ids(left: ClosedWindows) -> npt.NDArray[np.void]:
    """A window as one value: kind, slot and start."""
    columns = np.stack([left.kinds, left.slots, left.starts], axis=1)
    return np.ascontiguousarray(columns).view("i8,i8,i8")[:, 0]
