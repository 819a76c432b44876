"""The store of count windows: window i of a key holds its rows i * every to i * every + size - 1, in order.

    size 3, every 2     rows    0  1  2  3  4  5
                        window 0 [-----)
                        window 1       [-----)

Rows wait until no earlier one can come, which is when W > time + lateness; then they are sorted by (time,
order, columns) and numbered per slot, and windows that are full close. A slot is never forgotten, because its
key's next row has the next number. All kinds of a step number rows alike, so rows wait, are sorted and are
kept once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.order import is_sorted, sort_indices
from penstock.stages.rows.store import (
    PLACE,
    RowBlocks,
    ints_of,
    list_windows,
    members_of_ranges,
    no_members,
    places_of,
    rows_from_snapshot,
    rows_of_slots,
    rows_to_snapshot,
)
from penstock.stages.window.accumulators import WindowAccumulator
from penstock.stages.window.count_panes import CountPanes, OpenRows, SettledRows, concat_settled
from penstock.stages.window.folds import lift_values
from penstock.stages.window.store import (
    ENDED,
    ClosedWindows,
    Decided,
    Decision,
    InputRows,
    Outcome,
    StateBatches,
    WindowRows,
    no_ints,
)
from penstock.timing.windows import CountWindow

NUMBERED, FIRED, CLOSED = range(3)
"""Columns of what is known of a slot: rows numbered, rows numbered when windows last fired early, and from
CLOSED on, one for each kind, the windows that have closed."""


class CountStore:
    """Count windows of some kinds, for all keys: accumulators of each, and rows if `rows` has a schema.

    Rows that tie on time and order are sorted by `InputRows.rows`, which must be there wherever rows can tie,
    kept or not.
    """

    next_end = None

    def __init__(
        self,
        windows: Sequence[CountWindow],
        lateness: int,
        accumulators: Sequence[WindowAccumulator] = (),
        *,
        partial: bool = False,
        rows: pa.Schema | None = None,
        compile_after: int | None = None,
    ) -> None:
        self._windows, self._lateness, self._partial = tuple(windows), lateness, partial
        self._schema, jit = rows, JitPolicy(compile_after)
        self._panes = [CountPanes(window, accumulators, jit) for window in windows]
        self._open_rows = [OpenRows(window) for window in windows]
        self._waiting, self._rows = RowBlocks(), RowBlocks()
        self._slots = np.zeros((0, CLOSED + len(self._windows)), np.int64)

    @property
    def n_kinds(self) -> int:
        """The number of kinds of window."""
        return len(self._windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        own = self._waiting.nbytes + self._rows.nbytes + self._slots.nbytes
        own += sum(panes.nbytes for panes in self._panes)
        return own + sum(open_rows.nbytes for open_rows in self._open_rows)

    def explain(self) -> tuple[str, ...]:
        """Say for each kind how windows are combined, and why."""
        kept = "" if self._schema is None else "; rows are kept until their last window closes"
        return tuple(
            f"{window}: rows wait to be put in order; panes of rows, {panes.explain()}{kept}"
            for window, panes in zip(self._windows, self._panes, strict=True)
        )

    def has_state(self, slots: Ints) -> Mask:
        """Return which slots have numbered rows, or rows that wait."""
        known = slots < len(self._slots)
        held = self._waiting.holds(slots)
        held[known] |= self._slots[slots[known], NUMBERED] > 0
        return held

    def add(self, rows: InputRows, watermark: int) -> Decided | None:
        """Let rows wait for their numbers, unless rows of their time are numbered already."""
        rows = replace(rows, values=lift_values(rows.values))
        self._reserve(rows.slots)
        if rows.times.min(initial=ENDED) >= watermark - self._lateness:
            self._waiting.add(rows)
            return None
        late = rows.times < watermark - self._lateness
        self._waiting.add(rows.at(np.flatnonzero(~late)))
        decisions = np.where(late, Decision.LATE, Decision.ADMITTED).astype(np.uint8)
        return np.tile(decisions, (self.n_kinds, 1)), np.tile(late.astype(np.int64), (self.n_kinds, 1))

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Number the rows that the watermark has passed, and close every window that is full."""
        ready = self._waiting.pull(below=watermark - self._lateness)
        slots, settled = (no_ints(), []) if ready is None else self._number(ready)
        touched = slots
        for open_rows in self._open_rows:
            settled.append(open_rows.settle(self._slots[:, NUMBERED]))
            if ended:
                settled.append(open_rows.end(Outcome.PASSED if self._partial else Outcome.UNFINISHED))
        if ended:
            slots = np.flatnonzero(self._slots[:, NUMBERED] > 0)
        count = self._n_begun if ended and self._partial else self._n_full
        past = [count(slots, window) for window in self._windows]
        needed = [
            np.full(len(slots), ENDED) if ended else n_closed * window.every
            for n_closed, window in zip(past, self._windows, strict=True)
        ]
        closed = self._read(slots, past, needed)
        self._slots[slots, CLOSED:] = np.stack(past, axis=1)
        return replace(closed, touched=touched, settled=concat_settled(settled))

    def fire_early(self) -> ClosedWindows:
        """Return the windows that are not full and have got rows since they last fired early."""
        slots = np.flatnonzero(self._slots[:, NUMBERED] > self._slots[:, FIRED])
        self._slots[slots, FIRED] = self._slots[slots, NUMBERED]
        return self._read(slots, [self._n_begun(slots, window) for window in self._windows], None)

    def _number(self, rows: InputRows) -> tuple[Ints, list[SettledRows]]:
        """Number rows and add those that are in windows; return their slots, and the rows settled by that."""
        keys = [rows.slots, rows.times, *rows.order]
        rows = rows if is_sorted(keys) else rows.at(sort_indices(keys, rows.rows))
        heads = np.append(0, np.flatnonzero(rows.slots[1:] != rows.slots[:-1]) + 1)
        slots, counts = rows.slots[heads], np.diff(heads, append=len(rows.slots))
        numbers = np.arange(len(rows.slots)) + np.repeat(self._slots[slots, NUMBERED] - heads, counts)
        self._slots[slots, NUMBERED] += counts
        self._add(numbers, rows)
        if rows.tags is None:
            return slots, []
        settled = []
        for open_rows, window in zip(self._open_rows, self._windows, strict=True):
            n_full = self._n_full(slots, window)
            filled = np.where(n_full > 0, (n_full - 1) * window.every + window.size, 0)
            settled += open_rows.add(rows.slots, numbers, rows.tags, np.repeat(filled, counts))
        return slots, settled

    def _add(self, numbers: Ints, rows: InputRows) -> None:
        """Add the rows whose numbers are in some window."""
        gaps = [numbers % w.every >= w.size for w in self._windows if w.every > w.size]
        outside = np.logical_and.reduce(gaps) if len(gaps) == self.n_kinds else None
        for window, panes in zip(self._windows, self._panes, strict=True):
            if window.every > window.size:
                inside = np.flatnonzero(numbers % window.every < window.size)
                panes.add(numbers[inside], rows.at(inside))
            else:
                panes.add(numbers, rows)
        if self._schema is not None:
            kept = InputRows(rows.slots, rows.times, (numbers,), rows=rows.rows, lifted=rows.lifted)
            self._rows.add(kept if outside is None else kept.at(np.flatnonzero(~outside)))

    def _read(self, slots: Ints, past: list[Ints], needed_from: list[Ints] | None) -> ClosedWindows:
        """Return the windows of each slot and kind that have not closed, before `past`.

        With `needed_from`, the row number that each slot's open windows begin at, panes and rows before it
        are dropped; without, nothing changes.
        """
        first = [self._slots[slots, CLOSED + kind] for kind in range(self.n_kinds)]
        needed = [None] * self.n_kinds if needed_from is None else needed_from
        kinds = zip(self._panes, first, past, needed, strict=True)
        windows = [panes.windows(slots, *bounds) for panes, *bounds in kinds]
        owners = np.concatenate([part.slots for part in windows])
        ends = np.concatenate([part.ends for part in windows])
        members = None
        if self._schema is not None:
            members = self._members(owners, slots, first, past, self._schema)
            if needed_from is not None:
                self._drop_rows(slots, np.minimum.reduce(needed_from))
        return ClosedWindows(
            np.repeat(np.arange(self.n_kinds), [len(part.slots) for part in windows]),
            owners,
            np.concatenate([part.starts for part in windows]),
            ends,
            ends,
            np.concatenate([part.index for part in windows]),
            tuple(np.concatenate(cells) for cells in zip(*(part.cells for part in windows), strict=True)),
            members,
        )

    def _members(
        self, owners: Ints, slots: Ints, first: list[Ints], past: list[Ints], schema: pa.Schema
    ) -> WindowRows:
        """Return the rows of windows, which come kind by kind, slot by slot and by number."""
        rows = self._rows.find(rows_of_slots(owners)) if len(owners) else None
        if rows is None:
            return no_members(schema)
        order = sort_indices([rows.slots, rows.order[0]])
        numbers, owner = rows.order[0][order], places_of(rows.slots[order], slots)
        ranges = []
        for window, begun, gone in zip(self._windows, first, past, strict=True):
            low = np.maximum((numbers - window.size) // window.every + 1, begun[owner])
            ranges.append(list_windows(owner, low, np.minimum(numbers // window.every, gone[owner] - 1)))
        _, lo, hi = (np.concatenate(column) for column in zip(*ranges, strict=True))
        return members_of_ranges(rows, order, lo, hi)

    def _drop_rows(self, slots: Ints, needed_from: Ints) -> None:
        """Drop the rows that no open window needs."""
        needed = np.zeros(len(self._slots), np.int64)
        needed[slots] = needed_from
        self._rows.pull(lambda rows: np.asarray(rows.order[0] < needed[rows.slots]))

    def _n_full(self, slots: Ints, window: CountWindow) -> Ints:
        """Return the number of windows that the rows of each slot have filled."""
        n_rows = self._slots[slots, NUMBERED]
        return np.asarray(np.maximum((n_rows - window.size) // window.every + 1, 0), np.int64)

    def _n_begun(self, slots: Ints, window: CountWindow) -> Ints:
        """Return the number of windows of each slot that have a row."""
        return np.asarray(-(-self._slots[slots, NUMBERED] // window.every), np.int64)

    def _reserve(self, slots: Ints) -> None:
        n_slots = int(slots.max(initial=-1)) + 1
        have, width = self._slots.shape
        if n_slots > have:
            more = max(n_slots, 2 * have) - have
            self._slots = np.concatenate([self._slots, np.zeros((more, width), np.int64)])

    def export(self, slots: Ints) -> StateBatches:
        """Return what is known of these slots, the rows that wait, and panes, open rows and kept rows."""
        self._reserve(slots)
        columns = {
            name: pa.array(column) for name, column in zip(self._names, self._slots[slots].T, strict=True)
        }
        columns[PLACE] = pa.array(np.arange(len(slots)))
        saved = {
            "slots": pa.RecordBatch.from_pydict(columns),
            "waiting": rows_to_snapshot(self._waiting.find(rows_of_slots(slots)), slots),
        }
        for kind, (panes, open_rows) in enumerate(zip(self._panes, self._open_rows, strict=True)):
            saved |= {f"panes {kind}": panes.export(slots), f"open rows {kind}": open_rows.export(slots)}
        if self._schema is not None:
            saved["rows"] = rows_to_snapshot(self._rows.find(rows_of_slots(slots)), slots)
        return saved

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported state: what was at place i now belongs to slots[i]."""
        self._reserve(slots)
        known = saved["slots"]
        columns = [ints_of(known, name) for name in self._names]
        self._slots[slots[ints_of(known, PLACE)]] = np.stack(columns, axis=1)
        for kind, (panes, open_rows) in enumerate(zip(self._panes, self._open_rows, strict=True)):
            panes.load(saved[f"panes {kind}"], slots)
            open_rows.load(saved[f"open rows {kind}"], slots)
        for name, blocks in (("waiting", self._waiting), ("rows", self._rows)):
            rows = rows_from_snapshot(saved[name], slots) if name in saved else None
            if rows is not None:
                blocks.add(rows)

    @property
    def _names(self) -> list[str]:
        """The names of the columns of `_slots`, in saved state."""
        return ["numbered", "fired", *(f"closed {kind}" for kind in range(self.n_kinds))]
