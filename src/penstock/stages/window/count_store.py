"""The store of count windows: window i of a key holds its rows i * every to i * every + size - 1, in order.

    size 3, every 2     rows    0  1  2  3  4  5
                        window 0 [-----)
                        window 1       [-----)

Rows wait until no earlier one can come, which is when W > time + lateness; then they are put in order by
(time, order, columns) and numbered per slot, and windows that are full leave. A slot is never forgotten,
because its key's next row has the next number. All kinds of a step number rows alike, so rows wait, are put
in order and are kept once for all of them.
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
from penstock.stages.window.count_panes import CountPanes, OpenRows, ResolvedRows, concat_resolved
from penstock.stages.window.folds import materialize_values as lifted
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

PLACED, SHOWN, GONE = range(3)
"""What is known of a slot: rows numbered, rows numbered when last shown early, and from GONE on, one for each
kind, the windows that have left."""


class CountStore:
    """Count windows of some kinds, for all keys: registers of each, and with `rows` (a schema) its rows too.

    Rows that tie on time and order are put in order by `Arriving.rows`, which must be given wherever rows can
    tie, kept or not.
    """

    def __init__(
        self,
        windows: Sequence[CountWindow],
        lateness: int,
        registers: Sequence[WindowAccumulator] = (),
        *,
        partial: bool = False,
        rows: pa.Schema | None = None,
        compile_after: int | None = None,
    ) -> None:
        self._windows, self._lateness, self._partial = tuple(windows), lateness, partial
        self._schema, pace = rows, JitPolicy(compile_after)
        self._panes = [CountPanes(window, registers, pace) for window in windows]
        self._tickets = [OpenRows(window) for window in windows]
        self._waiting, self._rows = RowBlocks(), RowBlocks()
        self._slots = np.zeros((0, GONE + len(self._windows)), np.int64)

    @property
    def n_kinds(self) -> int:
        """How many kinds of window."""
        return len(self._windows)

    def explain(self) -> tuple[str, ...]:
        """For each kind: how windows are put together, and why."""
        kept = "" if self._schema is None else "; rows are kept until their last window leaves"
        return tuple(
            f"{window}: rows wait to be put in order; panes of rows, {panes.why}{kept}"
            for window, panes in zip(self._windows, self._panes, strict=True)
        )

    @property
    def nbytes(self) -> int:
        """The memory held."""
        held = self._waiting.nbytes + self._rows.nbytes + self._slots.nbytes
        held += sum(panes.nbytes for panes in self._panes)
        return held + sum(tickets.nbytes for tickets in self._tickets)

    def has_state(self, slots: Ints) -> Mask:
        """Which slots have numbered rows, or rows that wait."""
        known = slots < len(self._slots)
        held = self._waiting.holds(slots)
        held[known] |= self._slots[slots[known], PLACED] > 0
        return held

    def add(self, arriving: InputRows, watermark: int) -> Decided | None:
        """A row waits for its place unless rows of its time are numbered already."""
        arriving = replace(arriving, values=lifted(arriving.values))
        self._reserve(arriving.slots)
        if arriving.times.min(initial=ENDED) >= watermark - self._lateness:
            self._waiting.add(arriving)
            return None
        late = arriving.times < watermark - self._lateness
        self._waiting.add(arriving.at(np.flatnonzero(~late)))
        fates = np.where(late, Decision.LATE, Decision.TAKEN).astype(np.uint8)
        return np.tile(fates, (self.n_kinds, 1)), np.tile(late.astype(np.int64), (self.n_kinds, 1))

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Number the rows that the watermark has passed; every window that is full leaves."""
        ready = self._waiting.pull(below=watermark - self._lateness)
        slots, settled = (no_ints(), []) if ready is None else self._place(ready)
        touched = slots
        for tickets in self._tickets:
            settled.append(tickets.settle(self._slots[:, PLACED]))
            if ended:
                settled.append(tickets.end(Outcome.PASSED if self._partial else Outcome.UNFINISHED))
        if ended:
            slots = np.flatnonzero(self._slots[:, PLACED] > 0)
        count = self._n_begun if ended and self._partial else self._n_full
        past = [count(slots, window) for window in self._windows]
        needed = [
            np.full(len(slots), ENDED) if ended else each * window.every
            for each, window in zip(past, self._windows, strict=True)
        ]
        left = self._given(slots, past, needed)
        self._slots[slots, GONE:] = np.stack(past, axis=1)
        return replace(left, touched=touched, settled=concat_resolved(settled))

    def fire_early(self) -> ClosedWindows:
        """The windows that are not full and have got rows since they were last shown."""
        slots = np.flatnonzero(self._slots[:, PLACED] > self._slots[:, SHOWN])
        self._slots[slots, SHOWN] = self._slots[slots, PLACED]
        return self._given(slots, [self._n_begun(slots, window) for window in self._windows], None)

    def _place(self, ready: InputRows) -> tuple[Ints, list[ResolvedRows]]:
        """Number rows and add those that are in windows; gives the slots, and the tickets settled by that."""
        keys = [ready.slots, ready.times, *ready.order]
        ready = ready if is_sorted(keys) else ready.at(sort_indices(keys, ready.rows))
        heads = np.append(0, np.flatnonzero(ready.slots[1:] != ready.slots[:-1]) + 1)
        slots, counts = ready.slots[heads], np.diff(heads, append=len(ready.slots))
        numbers = np.arange(len(ready.slots)) + np.repeat(self._slots[slots, PLACED] - heads, counts)
        self._slots[slots, PLACED] += counts
        self._add(numbers, ready)
        if ready.tags is None:
            return slots, []
        settled = []
        for tickets, window in zip(self._tickets, self._windows, strict=True):
            n_full = self._n_full(slots, window)
            filled = np.where(n_full > 0, (n_full - 1) * window.every + window.size, 0)
            settled += tickets.add(ready.slots, numbers, ready.tags, np.repeat(filled, counts))
        return slots, settled

    def _add(self, numbers: Ints, rows: InputRows) -> None:
        """Add the rows whose numbers are in some window."""
        gaps = [numbers % each.every >= each.size for each in self._windows if each.every > each.size]
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

    def _given(self, slots: Ints, past: list[Ints], needed_from: list[Ints] | None) -> ClosedWindows:
        """The windows of each slot and kind that have not left, before `past`."""
        first = [self._slots[slots, GONE + kind] for kind in range(self.n_kinds)]
        needed = [None] * self.n_kinds if needed_from is None else needed_from
        kinds = zip(self._panes, first, past, needed, strict=True)
        found = [panes.windows(slots, *each) for panes, *each in kinds]
        cells = tuple(np.concatenate(each) for each in zip(*(each.cells for each in found), strict=True))
        owners, starts, ends, index = (
            np.concatenate([getattr(each, name) for each in found])
            for name in ("slots", "starts", "ends", "index")
        )
        kind = np.repeat(np.arange(self.n_kinds), [len(each.slots) for each in found])
        members = None
        if self._schema is not None:
            members = self._members(owners, slots, first, past, self._schema)
            if needed_from is not None:
                self._let_go(slots, np.minimum.reduce(needed_from))
        return ClosedWindows(kind, owners, starts, ends, ends, index, cells, members)

    def _members(
        self, owners: Ints, slots: Ints, first: list[Ints], past: list[Ints], schema: pa.Schema
    ) -> WindowRows:
        """The rows of windows, which come kind by kind, slot by slot and by number."""
        rows = self._rows.find(rows_of_slots(owners)) if len(owners) else None
        if rows is None:
            return no_members(schema)
        order = sort_indices([rows.slots, rows.order[0]])
        numbers, owner = rows.order[0][order], places_of(rows.slots[order], slots)
        spans = []
        for window, begun, gone in zip(self._windows, first, past, strict=True):
            low = np.maximum((numbers - window.size) // window.every + 1, begun[owner])
            spans.append(list_windows(owner, low, np.minimum(numbers // window.every, gone[owner] - 1)))
        _, lo, hi = (np.concatenate(each) for each in zip(*spans, strict=True))
        return members_of_ranges(rows, order, lo, hi)

    def _let_go(self, slots: Ints, needed_from: Ints) -> None:
        """Drop the rows that no open window needs."""
        needed = np.zeros(len(self._slots), np.int64)
        needed[slots] = needed_from
        self._rows.pull(lambda rows: np.asarray(rows.order[0] < needed[rows.slots]))

    def _n_full(self, slots: Ints, window: CountWindow) -> Ints:
        """How many windows the rows of each slot have filled."""
        placed = self._slots[slots, PLACED]
        return np.asarray(np.maximum((placed - window.size) // window.every + 1, 0), np.int64)

    def _n_begun(self, slots: Ints, window: CountWindow) -> Ints:
        """How many windows of each slot have a row."""
        return np.asarray(-(-self._slots[slots, PLACED] // window.every), np.int64)

    def _reserve(self, slots: Ints) -> None:
        n_slots = int(slots.max(initial=-1)) + 1
        have, width = self._slots.shape
        if n_slots > have:
            more = max(n_slots, 2 * have) - have
            self._slots = np.concatenate([self._slots, np.zeros((more, width), np.int64)])

    def export(self, slots: Ints) -> StateBatches:
        """What is known of these slots, the rows that wait, and panes, tickets and kept rows."""
        self._reserve(slots)
        columns = dict(zip(self._known, self._slots[slots].T, strict=True))
        columns[PLACE] = np.arange(len(slots))
        saved = {
            "slots": pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()}),
            "waiting": rows_to_snapshot(self._waiting.find(rows_of_slots(slots)), slots),
        }
        for kind, (panes, tickets) in enumerate(zip(self._panes, self._tickets, strict=True)):
            saved |= {f"panes {kind}": panes.export(slots), f"tickets {kind}": tickets.export(slots)}
        if self._schema is not None:
            saved["rows"] = rows_to_snapshot(self._rows.find(rows_of_slots(slots)), slots)
        return saved

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported state: what was at place i now belongs to slots[i]."""
        self._reserve(slots)
        known = saved["slots"]
        counts = [ints_of(known, name) for name in self._known]
        self._slots[slots[ints_of(known, PLACE)]] = np.stack(counts, axis=1)
        for kind, (panes, tickets) in enumerate(zip(self._panes, self._tickets, strict=True)):
            panes.load(saved[f"panes {kind}"], slots)
            tickets.load(saved[f"tickets {kind}"], slots)
        for name, blocks in (("waiting", self._waiting), ("rows", self._rows)):
            rows = rows_from_snapshot(saved[name], slots) if name in saved else None
            if rows is not None:
                blocks.add(rows)

    @property
    def _known(self) -> list[str]:
        """The names of what is known of a slot."""
        return ["placed", "shown", *(f"gone {kind}" for kind in range(self.n_kinds))]
