"""The store of session windows: [first time, last time + gap), joined when they touch.

    gap 5     a row at 3    [3    8)
              a row at 8         [8    13)      touches: one session [3, 13)

A batch is sorted by (slot, time) and cut into runs of rows that touch, and runs are placed among the open
sessions of their slots, which they lengthen or bridge. Rows with W >= time + gap + lateness are behind: they
are placed after the others, and a run of them is late as a whole unless it touches an open session. That is
the rule row by row: rows of one run reach each other, and two runs never do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.sessions import NO_SESSION
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.order import sort_indices
from penstock.stages.rows.store import (
    PLACE,
    RowBlocks,
    find_windows,
    ints_of,
    members_of,
    no_members,
    places_of,
    rows_before,
    rows_from_snapshot,
    rows_of_slots,
    rows_to_snapshot,
)
from penstock.stages.sketches.store import SessionSketches, Sketch
from penstock.stages.window.accumulators import WindowAccumulator
from penstock.stages.window.folds import CombineFailure, WindowRef
from penstock.stages.window.session_state import OpenSessions, SessionAccumulators
from penstock.stages.window.store import (
    ENDED,
    NEVER,
    ClosedWindows,
    Decision,
    Decisions,
    InputRows,
    StateBatches,
    WindowRows,
    no_ints,
)
from penstock.timing.windows import SessionWindow


class SessionStore:
    """Sessions of one gap, for all keys: registers and sketches of each, and with `rows` (a schema) rows."""

    n_kinds = 1

    def __init__(
        self,
        window: SessionWindow,
        lateness: int,
        registers: Sequence[WindowAccumulator] = (),
        *,
        rows: pa.Schema | None = None,
        sketches: Sequence[Sketch] = (),
        compile_after: int | None = None,
    ) -> None:
        self._window, self._gap, self._lateness = window, window.gap, lateness
        pace = JitPolicy(compile_after)
        self._open = OpenSessions(pace)
        self._cells, self._sketches = SessionAccumulators(registers, pace), SessionSketches(sketches)
        self._changed = np.zeros(0, np.bool_)  # by session: rows came since it was last shown
        self._schema, self._rows = rows, RowBlocks()
        self._first_end = ENDED  # no session ends before

    def explain(self) -> tuple[str, ...]:
        """How sessions are kept."""
        what = "registers" if self._schema is None else "rows"
        what += " and sketches" if self._sketches else ""
        return (f"{self._window}: {what} per session, found through a sorted list of each key's; no slices",)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        own = self._open.nbytes + self._cells.nbytes + self._changed.nbytes
        return own + self._sketches.nbytes + self._rows.nbytes

    def has_state(self, slots: Ints) -> Mask:
        """Which slots have an open session."""
        return self._open.has_state(slots)

    def add(self, arriving: InputRows, watermark: int) -> tuple[Decisions, Ints]:
        """On-time rows first; then the runs of rows behind that an open session takes in."""
        fates = np.zeros((1, len(arriving.slots)), np.uint8)
        behind = arriving.times <= watermark - self._gap - self._lateness
        if behind.any():
            self._add(arriving, np.flatnonzero(~behind), must_touch=False)
            places = np.flatnonzero(behind)
            taken = self._add(arriving, places, must_touch=True)
            fates[0, places[~taken]] = Decision.LATE
        else:
            self._add(arriving, np.arange(len(fates[0])), must_touch=False)
        return fates, (fates == Decision.LATE).astype(np.int64)

    def _add(self, arriving: InputRows, places: Ints, *, must_touch: bool) -> Mask:
        """Take in the rows at these places; gives which of them were taken."""
        if not len(places):
            return np.empty(0, np.bool_)
        slots, times = arriving.slots[places], arriving.times[places]
        order, heads = _runs(slots, times, self._gap)
        last = np.append(heads[1:], len(order)) - 1
        runs = slots[order[heads]], times[order[heads]], times[order[last]] + self._gap
        self._first_end = min(self._first_end, int(runs[2].min()))
        homes, lost, kept = self._open.place(*runs, must_touch=must_touch)
        self._cells.fit(self._open.capacity)
        with self._blaming(kept):
            self._cells.join(lost, kept)
        self._sketches.join(lost, kept)
        session = np.empty(len(places), np.int64)
        session[order] = np.repeat(homes, last - heads + 1)
        taken = np.asarray(session != NO_SESSION, np.bool_)
        whole = len(places) == len(arriving.slots) and taken.all()
        self._keep(arriving if whole else arriving.at(places[taken]), session[taken])
        return taken

    def _keep(self, rows: InputRows, session: Ints) -> None:
        with self._blaming(session):
            self._cells.fill(session, rows)
        self._sketches.fill(session, rows)
        self._fit_changed()
        self._changed[session] = True
        if self._schema is not None:
            self._rows.add(InputRows(rows.slots, rows.times, rows.order, rows=rows.rows, lifted=rows.lifted))

    @contextmanager
    def _blaming(self, sessions: Ints) -> Iterator[None]:
        """Say which session it was that a user's combine failed on, by its place among `sessions`."""
        try:
            yield
        except CombineFailure as failed:
            if failed.place is not None:
                one, bounds = sessions[failed.place], (self._open.opens, self._open.closes)
                start, end = (int(each[one]) for each in bounds)
                failed.whose = WindowRef(int(self._open.slots[one]), self._window, start, end)
            raise

    def _fit_changed(self) -> None:
        more = self._open.capacity - len(self._changed)
        if more > 0:
            self._changed = np.append(self._changed, np.zeros(more, np.bool_))

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Every session with W >= end + lateness."""
        if watermark - self._lateness < self._first_end:
            return self._given(no_ints(), pull=True)
        used = self._open.used()
        closed = self._open.closes[used] <= watermark - self._lateness
        gone = used[closed]
        left = self._given(gone, pull=True)
        self._first_end = int(self._open.closes[used[~closed]].min(initial=ENDED))
        self._open.remove(gone)
        self._cells.clear(gone)
        self._sketches.clear(gone)
        self._changed[gone] = False
        self._pack()
        return left

    def fire_early(self) -> ClosedWindows:
        """The open sessions that changed since they were last shown."""
        used = self._open.used()
        changed = used[self._changed[used]]
        self._changed[:] = False
        return self._given(changed, pull=False)

    def _given(self, sessions: Ints, *, pull: bool) -> ClosedWindows:
        slots, starts = self._open.slots[sessions], self._open.opens[sessions]
        ends = self._open.closes[sessions]
        members = (
            None if self._schema is None else self._members(slots, starts, ends, self._schema, pull=pull)
        )
        kinds = np.zeros(len(sessions), np.int64)
        return ClosedWindows(
            kinds,
            slots,
            starts,
            ends,
            ends - 1,
            cells=self._cells.read(sessions),
            members=members,
            sketches=self._sketches.read(sessions),
        )

    def _members(self, slots: Ints, starts: Ints, ends: Ints, schema: pa.Schema, *, pull: bool) -> WindowRows:
        """The rows of sessions; with `pull` they leave with them."""
        # Sessions leave oldest first: before the end of the last that leaves, a slot has no other rows.
        look = self._rows.pull if pull else self._rows.find
        rows = look(rows_before(slots, ends), below=int(ends.max(initial=NEVER)))
        if rows is None:
            return no_members(schema)
        found = find_windows(rows, slots, starts, ends)
        inside = np.flatnonzero(found >= 0)
        return members_of(rows.at(inside), found[inside], len(slots))

    def _pack(self) -> None:
        """Give memory back when most sessions have left."""
        old = self._open.packed()
        if old is not None:
            self._cells.pack(old, self._open.capacity)
            self._sketches.pack(old)
            self._changed = np.append(self._changed[old], np.zeros(self._open.capacity - len(old), np.bool_))

    def export(self, slots: Ints) -> StateBatches:
        """The open sessions of these slots, and their rows."""
        sessions = self._open.of_slots(slots)
        columns = {
            PLACE: pa.array(places_of(self._open.slots[sessions], slots)),
            "start": pa.array(self._open.opens[sessions]),
            "end": pa.array(self._open.closes[sessions]),
            "changed": pa.array(self._changed[sessions]),
            **self._cells.saved(sessions),
            **self._sketches.saved(sessions),
        }
        saved = {"sessions": pa.RecordBatch.from_pydict(columns)}
        if self._schema is not None:
            saved["rows"] = rows_to_snapshot(self._rows.find(rows_of_slots(slots)), slots)
        return saved

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported sessions: what was at place i now belongs to slots[i]."""
        batch = saved["sessions"]
        owners, starts = slots[ints_of(batch, PLACE)], ints_of(batch, "start")
        ends = ints_of(batch, "end")
        self._first_end = min(self._first_end, int(ends.min(initial=ENDED)))
        order = sort_indices([owners, starts])
        homes, _, _ = self._open.place(owners[order], starts[order], ends[order], must_touch=False)
        self._cells.fit(self._open.capacity)
        self._cells.load(batch.take(pa.array(order)), homes)
        self._sketches.load(batch.take(pa.array(order)), homes)
        self._fit_changed()
        self._changed[homes] = batch.column("changed").to_numpy(zero_copy_only=False)[order]
        if self._schema is not None and (rows := rows_from_snapshot(saved["rows"], slots)):
            self._rows.add(rows)


def _runs(slots: Ints, times: Ints, gap: int) -> tuple[Ints, Ints]:
    """Rows by (slot, time), and where each run begins: rows of one slot at most `gap` apart are one run."""
    order = sort_indices([slots, times])
    slots, times = slots[order], times[order]
    apart = (slots[1:] != slots[:-1]) | (times[1:] - times[:-1] > gap)
    return order, np.append(0, np.flatnonzero(apart) + 1)
