"""The store of count windows: window i of a key holds its rows i * every to i * every + size - 1, in order.

    size 3, every 2     rows    0  1  2  3  4  5
                        window 0 [-----)
                        window 1       [-----)

Rows wait until no earlier one can come, which is when W > time + lateness; then they are put in order by
(time, order, columns) and numbered per slot, and windows that are full leave. A slot is never forgotten,
because its key's next row has the next number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.stages.batch import Ints, Mask
from penstock.stages.members import no_members, stretches, windows_over
from penstock.stages.pace import SMALL, Pace
from penstock.stages.register import Register
from penstock.stages.row_blocks import RowBlocks, of_slots
from penstock.stages.row_order import in_order
from penstock.stages.row_panes import CountedWindows, RowPanes
from penstock.stages.saved_rows import PLACE, ints_of, loaded_rows, places_of, saved_rows
from penstock.stages.store import ENDED, Arriving, Fate, Fates, Left, Members, Outcome, Saved, nothing
from penstock.stages.tickets import Settled, Tickets, joined_settled
from penstock.timing.windows import CountWindow

PLACED, GONE, SHOWN = range(3)
"""What is known of a slot: rows numbered, windows that have left, rows numbered when last shown early."""


class CountStore:
    """Count windows of one kind, for all keys: registers of each, and with `rows` (a schema) its rows too.

    Rows that tie on time and order are put in order by `Arriving.rows`, which must be given wherever rows can
    tie, kept or not.
    """

    n_kinds = 1

    def __init__(
        self,
        window: CountWindow,
        lateness: int,
        registers: Sequence[Register] = (),
        *,
        partial: bool = False,
        rows: pa.Schema | None = None,
        small: int = SMALL,
    ) -> None:
        self._window, self._lateness, self._partial = window, lateness, partial
        self._schema = rows
        self._panes = RowPanes(window, registers, Pace(small))
        self._waiting, self._rows = RowBlocks(), RowBlocks()
        self._tickets = Tickets(window)
        self._slots = np.zeros((0, 3), np.int64)  # by slot: PLACED, GONE, SHOWN

    @property
    def why(self) -> tuple[str, ...]:
        """How windows are put together, and why."""
        kept = "" if self._schema is None else "; rows are kept until their last window leaves"
        return (f"{self._window}: rows wait to be put in order; panes of rows, {self._panes.why}{kept}",)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        held = self._waiting.nbytes + self._rows.nbytes + self._panes.nbytes
        return held + self._tickets.nbytes + self._slots.nbytes

    def holds(self, slots: Ints) -> Mask:
        """Which slots have numbered rows, or rows that wait."""
        known = slots < len(self._slots)
        held = self._waiting.holds(slots)
        held[known] |= self._slots[slots[known], PLACED] > 0
        return held

    def take(self, arriving: Arriving, watermark: int) -> tuple[Fates, Ints]:
        """A row waits for its place unless rows of its time are numbered already."""
        late = arriving.times < watermark - self._lateness
        self._waiting.add(arriving.at(np.flatnonzero(~late)) if late.any() else arriving)
        self._reserve(arriving.slots)
        fates = np.where(late, Fate.LATE, Fate.TAKEN).astype(np.uint8)[None, :]
        return fates, late.astype(np.int64)[None, :]

    def leave(self, watermark: int, *, ended: bool = False) -> Left:
        """Number the rows that the watermark has passed; every window that is full leaves."""
        ready = self._waiting.pull(below=watermark - self._lateness)
        slots, none = (nothing(), self._tickets.nothing) if ready is None else self._place(ready)
        settled = [none, self._tickets.settle(self._slots[:, PLACED])]
        touched = slots
        if ended:
            settled.append(self._tickets.end(Outcome.PASSED if self._partial else Outcome.UNFINISHED))
            slots = np.flatnonzero(self._slots[:, PLACED] > 0)
        past = self._n_begun(slots) if ended and self._partial else self._n_full(slots)
        needed_from = np.full(len(slots), ENDED) if ended else past * self._window.every
        left = self._given(slots, past, needed_from)
        self._slots[slots, GONE] = past
        return replace(left, touched=touched, settled=joined_settled(settled))

    def early(self) -> Left:
        """The windows that are not full and have got rows since they were last shown."""
        slots = np.flatnonzero(self._slots[:, PLACED] > self._slots[:, SHOWN])
        self._slots[slots, SHOWN] = self._slots[slots, PLACED]
        return self._given(slots, self._n_begun(slots), None)

    def _place(self, ready: Arriving) -> tuple[Ints, Settled]:
        """Number rows and add those that are in windows; gives the slots, and the tickets of other rows."""
        places = in_order([ready.slots, ready.times, *ready.order], ready.rows)
        ready = ready if (places[1:] > places[:-1]).all() else ready.at(places)
        heads = np.append(0, np.flatnonzero(np.diff(ready.slots)) + 1)
        slots, counts = ready.slots[heads], np.diff(heads, append=len(places))
        numbers = np.arange(len(places)) + np.repeat(self._slots[slots, PLACED] - heads, counts)
        self._slots[slots, PLACED] += counts
        self._add(numbers, ready)
        if ready.tickets is None:
            return slots, self._tickets.nothing
        return slots, self._tickets.add(ready.slots, numbers, ready.tickets)

    def _add(self, numbers: Ints, rows: Arriving) -> None:
        """Add the rows whose numbers are in some window."""
        if self._window.every > self._window.size:
            inside = np.flatnonzero(numbers % self._window.every < self._window.size)
            numbers, rows = numbers[inside], rows.at(inside)
        self._panes.add(numbers, rows)
        if self._schema is not None:
            self._rows.add(Arriving(rows.slots, rows.times, (numbers,), rows=rows.rows))

    def _given(self, slots: Ints, past: Ints, needed_from: Ints | None) -> Left:
        """The windows of each slot that have not left, before `past`."""
        first = self._slots[slots, GONE]
        found = self._panes.windows(slots, first, past, needed_from)
        members = None if self._schema is None else self._members(found, slots, first, past, self._schema)
        if members is not None and needed_from is not None:
            self._let_go(slots, needed_from)
        kinds = np.zeros(len(found.slots), np.int64)
        return Left(
            kinds, found.slots, found.starts, found.ends, found.ends, found.index, found.cells, members
        )

    def _members(
        self, found: CountedWindows, slots: Ints, first: Ints, past: Ints, schema: pa.Schema
    ) -> Members:
        """The rows of windows, which come slot by slot and by number."""
        rows = self._rows.find(of_slots(found.slots)) if len(found.slots) else None
        if rows is None:
            return no_members(schema)
        size, every = self._window.size, self._window.every
        order = in_order([rows.slots, rows.order[0]])
        numbers, owner = rows.order[0][order], places_of(rows.slots[order], slots)
        low = np.maximum((numbers - size) // every + 1, first[owner])
        _, lo, hi = windows_over(owner, low, np.minimum(numbers // every, past[owner] - 1))
        return stretches(rows, order, lo, hi)

    def _let_go(self, slots: Ints, needed_from: Ints) -> None:
        """Drop the rows that no open window needs."""
        needed = np.zeros(len(self._slots), np.int64)
        needed[slots] = needed_from
        self._rows.pull(lambda rows: np.asarray(rows.order[0] < needed[rows.slots]))

    def _n_full(self, slots: Ints) -> Ints:
        """How many windows the rows of each slot have filled."""
        placed = self._slots[slots, PLACED]
        return np.asarray(np.maximum((placed - self._window.size) // self._window.every + 1, 0), np.int64)

    def _n_begun(self, slots: Ints) -> Ints:
        """How many windows of each slot have a row."""
        return np.asarray(-(-self._slots[slots, PLACED] // self._window.every), np.int64)

    def _reserve(self, slots: Ints) -> None:
        n_slots = int(slots.max(initial=-1)) + 1
        have = len(self._slots)
        if n_slots > have:
            more = max(n_slots, 2 * have) - have
            self._slots = np.concatenate([self._slots, np.zeros((more, 3), np.int64)])

    def export(self, slots: Ints) -> Saved:
        """What is known of these slots, the rows that wait, panes, tickets and kept rows."""
        self._reserve(slots)
        known = self._slots[slots]
        columns = {
            PLACE: np.arange(len(slots)),
            "placed": known[:, 0],
            "gone": known[:, 1],
            "shown": known[:, 2],
        }
        saved = {
            "slots": pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()}),
            "waiting": saved_rows(self._waiting.find(of_slots(slots)), slots),
            "panes": self._panes.export(slots),
            "tickets": self._tickets.export(slots),
        }
        if self._schema is not None:
            saved["rows"] = saved_rows(self._rows.find(of_slots(slots)), slots)
        return saved

    def load(self, saved: Saved, slots: Ints) -> None:
        """Take up exported state: what was at place i now belongs to slots[i]."""
        self._reserve(slots)
        known = saved["slots"]
        counts = [ints_of(known, name) for name in ("placed", "gone", "shown")]
        self._slots[slots[ints_of(known, PLACE)]] = np.stack(counts, axis=1)
        self._panes.load(saved["panes"], slots)
        self._tickets.load(saved["tickets"], slots)
        for name, blocks in (("waiting", self._waiting), ("rows", self._rows)):
            rows = loaded_rows(saved[name], slots) if name in saved else None
            if rows is not None:
                blocks.add(rows)
