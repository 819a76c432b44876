"""The store of session windows: [first time, last time + gap), merged when they touch.

    gap 5     a row at 3    [3    8)
              a row at 8         [8    13)      touches: one session [3, 13)

A batch is sorted by (slot, time) and split into runs of rows that touch, and runs are placed among the open
sessions of their slots, which they extend or bridge. Rows with W >= time + gap + lateness are behind: they
are placed after the others, and a run of them is late as a whole unless it touches an open session. That is
the rule row by row: rows of one run reach each other, and two runs never do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from penstock.kernels.windows.accumulate import Cells, add_parts, build_rule_loop
from penstock.kernels.windows.sessions import NO_SESSION, assign_sessions
from penstock.stages.policy import JitPolicy
from penstock.stages.rows import store as row_store
from penstock.stages.rows.batch import Ints, Mask
from penstock.stages.rows.input import ENDED, NEVER, InputRows, no_ints
from penstock.stages.rows.order import sort_indices
from penstock.stages.window import sketches as sketch_ops
from penstock.stages.window.accumulators import (
    StoredAccumulators,
    WindowAccumulator,
    cells_to_columns,
    load_cells,
)
from penstock.stages.window.folds import CombineFailure, WindowRef, catch_combine
from penstock.stages.window.inputs import AccumulatorUpdate, RunLoop
from penstock.stages.window.sketches import Sketch
from penstock.stages.window.store import ClosedWindows, Decided, Decision, OpenWindows, StateBatches
from penstock.timing.windows import SessionWindow

MIN_CAPACITY = 16


class SessionStore:
    """Sessions of one gap, for all keys: accumulators and sketches of each, and rows if `rows` is given."""

    n_kinds = 1
    next_end = None

    def __init__(
        self,
        window: SessionWindow,
        lateness: int,
        accumulators: Sequence[WindowAccumulator] = (),
        *,
        rows: pa.Schema | None = None,
        sketches: Sequence[Sketch] = (),
        compile_after: int | None = None,
    ) -> None:
        self._window, self._gap, self._lateness = window, window.gap, lateness
        self._open = OpenSessions(accumulators, sketches, JitPolicy(compile_after))
        self._schema, self._rows = rows, row_store.RowBlocks()
        self._first_end = ENDED  # no session ends before

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return self._open.nbytes + self._rows.nbytes

    def explain(self) -> tuple[str, ...]:
        """Say how sessions are kept."""
        state = "accumulators" if self._schema is None else "rows"
        state += " and sketches" if self._open.sketches else ""
        return (f"{self._window}: {state} per session, found through a sorted list of each key's; no slices",)

    def has_state(self, slots: Ints) -> Mask:
        """Return which slots have an open session."""
        return self._open.has_state(slots)

    def add(self, rows: InputRows, watermark: int) -> Decided:
        """Add the rows that are on time, then the runs of rows behind that touch an open session."""
        decisions = np.full((1, len(rows.slots)), Decision.ADMITTED, np.uint8)
        behind = rows.times <= watermark - self._gap - self._lateness
        if behind.any():
            self._add(rows, np.flatnonzero(~behind), must_touch=False)
            places = np.flatnonzero(behind)
            admitted = self._add(rows, places, must_touch=True)
            decisions[0, places[~admitted]] = Decision.LATE
        else:
            self._add(rows, np.arange(len(rows.slots)), must_touch=False)
        return decisions, (decisions == Decision.LATE).astype(np.int64)

    def _add(self, rows: InputRows, places: Ints, *, must_touch: bool) -> Mask:
        """Add the rows at these places; return which of them were admitted."""
        if not len(places):
            return np.empty(0, np.bool_)
        slots, times = rows.slots[places], rows.times[places]
        order, heads = _find_runs(slots, times, self._gap)
        last = np.append(heads[1:], len(order)) - 1
        runs = slots[order[heads]], times[order[heads]], times[order[last]] + self._gap
        self._first_end = min(self._first_end, int(runs[2].min()))
        of_runs, merged, into = self._open.assign(*runs, must_touch=must_touch)
        with self._naming_the_session(into):
            self._open.merge(merged, into)
        sessions = np.empty(len(places), np.int64)
        sessions[order] = np.repeat(of_runs, last - heads + 1)
        admitted = np.asarray(sessions != NO_SESSION, np.bool_)
        whole = len(places) == len(rows.slots) and admitted.all()
        sessions, rows = sessions[admitted], rows if whole else rows.at(places[admitted])
        with self._naming_the_session(sessions):
            self._open.update(sessions, rows)
        if self._schema is not None:
            self._rows.add(InputRows(rows.slots, rows.times, rows.order, rows=rows.rows, lifted=rows.lifted))
        return admitted

    @contextmanager
    def _naming_the_session(self, sessions: Ints) -> Iterator[None]:
        """Add the session on which a user's combine failed, by its place among `sessions`."""
        try:
            yield
        except CombineFailure as failure:
            if failure.place is not None:
                number, open_ = int(sessions[failure.place]), self._open
                bounds = int(open_.opens[number]), int(open_.closes[number])
                failure.window_ref = WindowRef(int(open_.slots[number]), self._window, *bounds)
            raise

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Close every session with W >= end + lateness."""
        if watermark - self._lateness < self._first_end:
            return self._read(no_ints(), remove=True)
        numbers = self._open.numbers()
        closes = self._open.closes[numbers] <= watermark - self._lateness
        closed = self._read(numbers[closes], remove=True)
        self._first_end = int(self._open.closes[numbers[~closes]].min(initial=ENDED))
        self._open.remove(numbers[closes])
        self._open.pack()
        return closed

    def fire_early(self) -> ClosedWindows:
        """Return the open sessions that changed since they last fired early."""
        numbers = self._open.numbers()
        changed = numbers[self._open.changed[numbers]]
        self._open.changed[:] = False
        return self._read(changed, remove=False)

    def _read(self, sessions: Ints, *, remove: bool) -> ClosedWindows:
        """Return sessions with what is kept of them; with `remove` their rows are removed."""
        slots, starts = self._open.slots[sessions], self._open.opens[sessions]
        ends = self._open.closes[sessions]
        members = None
        if self._schema is not None:
            # Invariant: sessions close oldest first, so before the end of the last a slot has no other rows.
            look = self._rows.pull if remove else self._rows.find
            rows = look(row_store.rows_before(slots, ends), below=int(ends.max(initial=NEVER)))
            members = row_store.find_members(rows, self._schema, slots, starts, ends)
        return ClosedWindows(
            np.zeros(len(sessions), np.int64),
            slots,
            starts,
            ends,
            ends - 1,
            cells=self._open.accumulators.results([cells[sessions] for cells in self._open.cells]),
            members=members,
            sketches=sketch_ops.transpose_cells(
                self._open.sketches, self._open.sketch_cells[sessions].tolist()
            ),
        )

    def export(self, slots: Ints) -> StateBatches:
        """Return the open sessions of these slots, and their rows."""
        sessions = self._open.of_slots(slots)
        columns = {
            row_store.PLACE: pa.array(row_store.places_of(self._open.slots[sessions], slots)),
            "start": pa.array(self._open.opens[sessions]),
            "end": pa.array(self._open.closes[sessions]),
            "changed": pa.array(self._open.changed[sessions]),
            **cells_to_columns(self._open.cells, sessions),
            **sketch_ops.export_sketches(self._open.sketches, self._open.sketch_cells[sessions].tolist()),
        }
        saved = {"sessions": pa.RecordBatch.from_pydict(columns)}
        if self._schema is not None:
            saved["rows"] = row_store.rows_to_snapshot(self._rows.find(row_store.rows_of_slots(slots)), slots)
        return saved

    def list_open(self, saved: StateBatches) -> OpenWindows:
        """Implement `WindowStore.list_open`: every session that is saved is open."""
        places = row_store.ints_of(saved["sessions"], row_store.PLACE)
        return OpenWindows(np.zeros(len(places), np.int64), places, np.zeros(len(places), np.int64))

    def rows_before(self, saved: StateBatches) -> int:
        """Implement `WindowStore.rows_before`: the end of the last session."""
        return int(row_store.ints_of(saved["sessions"], "end").max(initial=NEVER))

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take over exported sessions: what was at place i now belongs to slots[i]."""
        batch = saved["sessions"]
        owners, starts = slots[row_store.ints_of(batch, row_store.PLACE)], row_store.ints_of(batch, "start")
        ends = row_store.ints_of(batch, "end")
        self._first_end = min(self._first_end, int(ends.min(initial=ENDED)))
        order = sort_indices([owners, starts])
        sessions, _, _ = self._open.assign(owners[order], starts[order], ends[order], must_touch=False)
        ordered = batch.take(pa.array(order))
        load_cells(ordered, self._open.cells, sessions)
        for number, cell in zip(
            sessions, sketch_ops.load_sketches(self._open.sketches, ordered), strict=False
        ):
            self._open.sketch_cells[number] = cell
        self._open.changed[sessions] = ordered.column("changed").to_numpy(zero_copy_only=False)
        if self._schema is not None and (rows := row_store.rows_from_snapshot(saved["rows"], slots)):
            self._rows.add(rows)


def _find_runs(slots: Ints, times: Ints, gap: int) -> tuple[Ints, Ints]:
    """Return the order of rows by (slot, time), and where each run of rows begins.

    Rows of one slot at most `gap` apart are one run.
    """
    order = sort_indices([slots, times])
    slots, times = slots[order], times[order]
    apart = (slots[1:] != slots[:-1]) | (times[1:] - times[:-1] > gap)
    return order, np.append(0, np.flatnonzero(apart) + 1)


class OpenSessions:
    """Sessions by number, with the cells of their accumulators and sketches.

    slots    int64[capacity]  NO_SESSION for unused numbers
    opens    int64[capacity]  bounds in microseconds
    closes   int64[capacity]
    changed  bool[capacity]   whether rows came since the session last fired early
    cells    [capacity, w]    of each stored accumulator
    sketch_cells  object[capacity]  None for unused numbers, and where no sketches are kept

    Invariants: no two sessions of one slot touch; those of a slot are linked from newest to oldest. The cells
    of unused numbers are neutral.
    """

    def __init__(
        self, accumulators: Sequence[WindowAccumulator], sketches: Sequence[Sketch], run: RunLoop
    ) -> None:
        self._run, self.accumulators = run, StoredAccumulators(accumulators)
        self.sketches, self.sketch_cells = tuple(sketches), np.empty(0, np.object_)
        self._newest = no_ints()  # by slot
        self.slots, self.opens, self.closes, self._older = no_ints(), no_ints(), no_ints(), no_ints()
        self.changed = np.empty(0, np.bool_)
        self.cells: list[Cells] = [rule.neutral_cells(0) for rule in self.accumulators.rules]
        self._renumber(no_ints(), MIN_CAPACITY)

    def _renumber(self, old: Ints, capacity: int) -> None:
        """Give what had the number old[i] the number i, and have room for this many."""
        n_unused = capacity - len(old)
        unused = np.full(n_unused, NO_SESSION, np.int64)
        columns = (self.slots, self.opens, self.closes, self._older)
        self.slots, self.opens, self.closes, self._older = (np.append(c[old], unused) for c in columns)
        self.changed = np.append(self.changed[old], np.zeros(n_unused, np.bool_))
        self.sketch_cells = np.append(self.sketch_cells[old], np.full(n_unused, None))
        pairs = zip(self.accumulators.rules, self.cells, strict=True)
        self.cells = [np.concatenate([cells[old], rule.neutral_cells(n_unused)]) for rule, cells in pairs]

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        own = self._newest.nbytes + 4 * self.slots.nbytes + self.changed.nbytes
        own += sum(cells.nbytes for cells in self.cells)
        held = self.sketch_cells[self.numbers()] if self.sketches else ()
        return own + sum(sketch_ops.cell_nbytes(cell) for cell in held)

    def numbers(self) -> Ints:
        """Return the numbers of the open sessions, in order."""
        return np.flatnonzero(self.slots != NO_SESSION)

    def of_slots(self, slots: Ints) -> Ints:
        """Return the open sessions of some slots."""
        return np.flatnonzero((self.slots != NO_SESSION) & np.isin(self.slots, slots))

    def has_state(self, slots: Ints) -> Mask:
        """Return which slots have an open session."""
        known = slots < len(self._newest)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._newest[slots[known]] != NO_SESSION
        return held

    def assign(self, slots: Ints, starts: Ints, ends: Ints, *, must_touch: bool) -> tuple[Ints, Ints, Ints]:
        """Assign runs of rows to sessions, opening them, and finding those that are to be merged.

        Returns the session of each run, the sessions that are in no list any more because they became one
        with others, and those others. Runs come by slot and start and do not touch. With `must_touch` a run
        that touches no session gets NO_SESSION.
        """
        self._reserve(slots)
        free = np.flatnonzero(self.slots == NO_SESSION)[: len(slots)]
        sessions = np.empty(len(slots), np.int64)
        merged, into = np.empty_like(self.slots), np.empty_like(self.slots)
        # The loop walks each slot's list from the newest session on, so runs come in reverse.
        runs = [np.ascontiguousarray(column[::-1]) for column in (slots, starts, ends)]
        lists = (self._newest, self._older, self.opens, self.closes)
        written = (sessions, merged, into)
        n_merged = self._run(assign_sessions, *runs, int(must_touch), *lists, free, *written, work=len(slots))
        sessions = sessions[::-1]
        assigned = sessions != NO_SESSION
        self.slots[sessions[assigned]] = slots[assigned]
        return sessions, merged[:n_merged], into[:n_merged]

    def _reserve(self, slots: Ints) -> None:
        """Have a list for each slot, and a number for a new session of each."""
        n_slots = int(slots.max(initial=-1)) + 1
        if n_slots > len(self._newest):
            more = max(n_slots, 2 * len(self._newest)) - len(self._newest)
            self._newest = np.append(self._newest, np.full(more, NO_SESSION, np.int64))
        capacity = len(self.slots)
        needed = int(np.count_nonzero(self.slots != NO_SESSION)) + len(slots)
        if needed > capacity:
            self._renumber(np.arange(capacity), _round_capacity(max(needed, 2 * capacity)))

    def update(self, numbers: Ints, rows: InputRows) -> None:
        """Add each row to the cells of its number."""
        update = AccumulatorUpdate(self._run, np.ascontiguousarray(numbers), rows)
        for accumulator, cells in zip(self.accumulators.stored, self.cells, strict=True):
            update.apply(accumulator, cells)
        if self.sketches and len(numbers):
            cells_of = self.sketch_cells.__getitem__
            updated = sketch_ops.update_cells(self.sketches, [numbers], cells_of, rows.values)
            for (number,), cell in updated.items():
                self.sketch_cells[number] = cell
        self.changed[numbers] = True

    def merge(self, sources: Ints, into: Ints) -> None:
        """Merge the cells of sessions that are in no list any more into those of others."""
        if len(sources):
            at = np.zeros(1, np.int64)
            for rule, cells in zip(self.accumulators.rules, self.cells, strict=True):
                with catch_combine(rule, at):
                    self._run(build_rule_loop(add_parts, rule), into, cells[sources], cells, at)
            for source, target in zip(sources, into, strict=True) if self.sketches else ():
                parts = [self.sketch_cells[target], self.sketch_cells[source]]
                self.sketch_cells[target] = sketch_ops.merge_cells(self.sketches, parts)
            self._clear(sources)

    def _clear(self, sessions: Ints) -> None:
        self.slots[sessions], self.changed[sessions], self.sketch_cells[sessions] = NO_SESSION, False, None
        for rule, cells in zip(self.accumulators.rules, self.cells, strict=True):
            cells[sessions] = rule.neutral

    def remove(self, sessions: Ints) -> None:
        """Remove sessions, which are the oldest of their slots."""
        gone = np.zeros(len(self.slots) + 1, np.bool_)  # the last is for NO_SESSION
        gone[sessions] = True
        self._older[gone[self._older]] = NO_SESSION
        slots = self.slots[sessions]
        self._newest[slots[gone[self._newest[slots]]]] = NO_SESSION
        self._clear(sessions)

    def pack(self) -> None:
        """Renumber the sessions when few of many numbers are used."""
        old, capacity = self.numbers(), len(self.slots)
        if capacity <= MIN_CAPACITY or 4 * len(old) >= capacity:
            return
        new = np.full(capacity + 1, NO_SESSION, np.int64)
        new[old] = np.arange(len(old))
        self._renumber(old, _round_capacity(2 * len(old)))
        self._older[: len(old)] = new[self._older[: len(old)]]
        self._newest = new[self._newest]
        held = np.flatnonzero(self._newest != NO_SESSION)
        self._newest = self._newest[: int(held[-1]) + 1 if len(held) else 0].copy()


def _round_capacity(needed: int) -> int:
    """Return the next power of two."""
    return max(MIN_CAPACITY, 1 << (needed - 1).bit_length()) if needed else MIN_CAPACITY
