"""Parts: what one replica knows of a slice or a window, as an Arrow batch that an engine can carry.

    key_0, key_1, …   the key columns, in their types
    window            int64  the place of the window in the step; of a slice the first window that it serves
    start             int64  microseconds: where the window, or the slice, begins
    watermark         int64  microseconds: the watermark by which the rows in it were judged
    rows.0, int sum of 0.0, int sum of 0.1, …
                      the numbers of each register's cell, by its kind (`register.py`) and the place of what
                      it is of among the step's values: int64 or float64, never null

Parts of one (key, window, start) are put together by the registers' rules, in any order. A slice is part of
windows that have left and of others that have not; so a part is not put to others before all windows are gone
that had left when its rows came (`watermark`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.windows.accumulate import Cells
from penstock.kernels.windows.ring import expand_ranges
from penstock.kernels.windows.sessions import build_merge_loop
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK, MAX_ID
from penstock.operators.stream import Stream
from penstock.stages.keys.slots import KeySlots
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.inputs import to_counts
from penstock.stages.window.store import ClosedWindows, Decisions, InputRows, StateBatches
from penstock.stages.window.time_store import FRESH, EarlyFirings, TimeStore
from penstock.timing.windows import TimeWindow

PARTIALS = "parts"
"""The port on which parts leave a stage."""
_WINDOW, _START, _WATERMARK = "window", "start", "watermark"


@dataclass(frozen=True, slots=True)
class Partials:
    """Parts as arrays, all of one length.

    kinds   int64[n]  the column "window"
    slots   int64[n]  of their keys
    starts  int64[n]
    cells   one array [n, width] per register
    """

    kinds: Ints
    slots: Ints
    starts: Ints
    cells: tuple[Cells, ...]

    def where(self, kinds: Ints) -> Partials:
        """The parts of some kinds."""
        mine = np.flatnonzero(np.isin(self.kinds, kinds))
        cells = tuple(each[mine] for each in self.cells)
        return Partials(self.kinds[mine], self.slots[mine], self.starts[mine], cells)


class PartialFormat:
    """The columns of the parts of one step, there and back."""

    def __init__(self, up: Stream, registers: Sequence[WindowAccumulator]) -> None:
        self._registers = tuple(registers)
        self.key = tuple(f"key_{place}" for place in range(len(up.key)))
        types = [up.schema.field(name).type for name in up.key]
        fields = [*zip(self.key, types, strict=True)]
        fields += [(name, pa.int64()) for name in (_WINDOW, _START, _WATERMARK)]
        for register in registers:
            type_ = pa.float64() if register.rule.floats else pa.int64()
            fields += [(name, type_) for name in _names(register)]
        self.schema = pa.schema(fields)

    def batch(self, left: ClosedWindows, keys: KeySlots, watermark: int) -> Batch:
        """What leaves a replica, as parts; a part's time is where it begins."""
        judged = np.full(len(left.slots), watermark, np.int64)
        columns = [*keys.columns_of(left.slots), *map(pa.array, (left.kinds, left.starts, judged))]
        for cells in left.cells:
            columns += [pa.array(cells[:, part], from_pandas=False) for part in range(cells.shape[1])]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), left.starts)

    def cut(self, batch: Batch, keys: KeySlots) -> Partials:
        """Parts as they came, their keys in slots."""
        rows = batch.rows
        slots = keys.assign([rows.column(name) for name in self.key], rows.num_rows)
        cells = tuple(
            np.stack([_numbers(rows, name) for name in _names(register)], axis=1)
            for register in self._registers
        )
        return Partials(_numbers(rows, _WINDOW), slots, _numbers(rows, _START), cells)


def _names(register: WindowAccumulator) -> list[str]:
    """The columns of a register: one for each number of a cell."""
    name = str(register.kind) if register.column is None else f"{register.kind} of {register.column}"
    return [f"{name}.{part}" for part in range(register.rule.width)]


def watermarks_of(parts: Batch) -> Ints:
    """By which watermark the rows of each part were judged."""
    return _numbers(parts.rows, _WATERMARK)


def _numbers(rows: pa.RecordBatch, name: str) -> Ints:
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False))


# The stores of paned and map-reduce windows: two that give parts away, and two that put parts together.
#
# What is given away is forgotten, so a slice or window that gets more rows later gives another part. All time
# windows of a step judge rows as `SliceStore` does; only what leaves differs.


class PartialPaneStore(TimeStore):
    """Slices that leave as parts once the watermark, less the lateness, is past their end (PLQ)."""

    def explain(self) -> tuple[str, ...]:
        """Windows are put together elsewhere."""
        return tuple(f"{window}: slices leave as parts" for window in self.slicing.windows)

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Give away the slices that have ended: no window that leaves now holds a later one."""
        self._left_to = max(self._left_to, watermark)
        return self._given_away(self.slicing.id_of(self._left_to - self.lateness))

    def fire_early(self) -> ClosedWindows:
        """Give away all slices."""
        return self._given_away(MAX_ID)

    def _given_away(self, before: int) -> ClosedWindows:
        """Slices with numbers below `before`; kinds are 0, ends mean nothing."""
        slots, rings = self._rings.active()
        ids, ring = expand_ranges(rings[:, FIRST], np.minimum(rings[:, END], before))
        places = rings[ring, BASE] + (ids & rings[ring, MASK])
        filled = self._arena.cells[0][places, 0] > 0
        ids, owners, places = ids[filled], slots[ring[filled]], places[filled]
        starts = self.slicing.starts(ids)
        cells = tuple(each[places] for each in self._arena.cells)
        emptied = self._rings.forget(slots, rings, before, self._cells.run)
        left = ClosedWindows(np.zeros(len(ids), np.int64), owners, starts, starts, starts, cells=cells)
        return self._asked_for(replace(left, touched=emptied))


class PartialWindowStore(TimeStore):
    """Windows that leave as parts, when they would leave whole (MAP)."""

    def fire_early(self) -> ClosedWindows:
        """Give away all open windows, and the slices they are made of."""
        left = super().fire_early()
        self.shown = EarlyFirings()  # none of them counts as shown: more may come of each
        slots, rings = self._rings.active()
        return replace(left, touched=self._rings.forget(slots, rings, MAX_ID, self._cells.run))


class FinalPaneStore(TimeStore):
    """Slices that come in parts, and the windows made of them (WLQ)."""

    def take_parts(self, cut: Partials) -> None:
        """Put parts into their slices, also those that earlier windows have used."""
        self._rings.reserve(int(cut.slots.max()) + 1)
        places = self._rings.place(cut.slots, self.slicing.ids(cut.starts))
        into, which = np.unique(places, return_inverse=True)
        registers = zip(self._kept, self._arena.cells, cut.cells, strict=True)
        for place, (register, state, part) in enumerate(registers):
            kept = to_counts(register, part, cut.cells[0])
            self._arena.is_neutral[place] &= not kept.any()
            state[into] = _merge_partials(self._cells.run, register, state[into], kept, which)


class FinalWindowStore:
    """Windows that come in parts (REDUCE): one cell per register and open window."""

    def __init__(
        self, windows: Sequence[TimeWindow], lateness: int, registers: Sequence[WindowAccumulator]
    ) -> None:
        assert registers[0].kind is AccumulatorKind.ROWS, (
            "a window that has no rows is none, so rows are counted first"
        )
        self._windows, self._lateness, self._registers = tuple(windows), lateness, tuple(registers)
        self._sizes = np.array([window.size for window in windows], np.int64)
        self._open = np.empty((0, 3), np.int64)  # slot, kind, start; each once, sorted
        self._cells: list[Cells] = [register.rule.neutral_cells(0) for register in registers]
        self._fresh = np.zeros(0, np.bool_)  # by open window: parts came since it was last shown
        self._run = JitPolicy()

    @property
    def n_kinds(self) -> int:
        """How many kinds of window."""
        return len(self._windows)

    def explain(self) -> tuple[str, ...]:
        """How windows are put together."""
        return tuple(f"{window}: put together from the parts of replicas" for window in self._windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._open.nbytes + self._fresh.nbytes + sum(cells.nbytes for cells in self._cells)

    def add(self, arriving: InputRows, watermark: int) -> tuple[Decisions, Ints]:
        """Rows never come here."""
        raise AssertionError("rows are taken in by the stages that make parts")

    def take_parts(self, cut: Partials) -> None:
        """Put parts into their windows."""
        places = self._placed(cut)
        self._fresh[places] = True

    def _placed(self, cut: Partials) -> Ints:
        """Put parts into their windows; gives where these stand."""
        new = np.stack([cut.slots, cut.kinds, cut.starts], axis=1)
        both, which = np.unique(np.concatenate([self._open, new]), axis=0, return_inverse=True)
        which = which.reshape(-1)
        old, new_places = which[: len(self._open)], which[len(self._open) :]
        for i, (register, part) in enumerate(zip(self._registers, cut.cells, strict=True)):
            into = register.rule.neutral_cells(len(both))
            into[old] = self._cells[i]
            self._cells[i] = _merge_partials(self._run, register, into, part, new_places)
        fresh = np.zeros(len(both), np.bool_)
        fresh[old] = self._fresh
        self._open, self._fresh = both, fresh
        return np.asarray(new_places, np.int64)

    def close(self, watermark: int, *, ended: bool = False) -> ClosedWindows:
        """Let go every window with end + lateness <= watermark."""
        gone = self._ends() + self._lateness <= watermark
        left = self._left(np.flatnonzero(gone))
        self._open, self._fresh = self._open[~gone], self._fresh[~gone]
        self._cells = [cells[~gone] for cells in self._cells]
        return replace(left, touched=np.unique(left.slots))

    def fire_early(self) -> ClosedWindows:
        """The open windows that changed since they were last shown."""
        changed = np.flatnonzero(self._fresh)
        self._fresh[:] = False
        return self._left(changed)

    def _ends(self) -> Ints:
        return np.asarray(self._open[:, 2] + self._sizes[self._open[:, 1]], np.int64)

    def _left(self, places: Ints) -> ClosedWindows:
        slots, kinds, starts = (np.ascontiguousarray(column) for column in self._open[places].T)
        ends = self._ends()[places]
        return ClosedWindows(
            kinds, slots, starts, ends, ends - 1, cells=tuple(each[places] for each in self._cells)
        )

    def has_state(self, slots: Ints) -> Mask:
        """Which of these slots have an open window."""
        return np.isin(slots, self._open[:, 0])

    def export(self, slots: Ints) -> StateBatches:
        """The open windows of these slots."""
        mine = np.isin(self._open[:, 0], slots)
        places = np.argsort(slots, kind="stable")
        place = places[np.searchsorted(slots[places], self._open[mine, 0])]
        columns = {"place": place, "kind": self._open[mine, 1], "start": self._open[mine, 2]}
        columns[FRESH] = self._fresh[mine]
        for i, cells in enumerate(self._cells):
            columns |= {f"{i}.{part}": cells[mine, part] for part in range(cells.shape[1])}
        arrays = {name: pa.array(each, from_pandas=False) for name, each in columns.items()}
        return {"windows": pa.RecordBatch.from_pydict(arrays)}

    def load(self, saved: StateBatches, slots: Ints) -> None:
        """Take up exported windows: what was at place i now belongs to slots[i]."""
        batch = saved["windows"]
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        cells = tuple(
            np.stack([columns[f"{i}.{part}"] for part in range(register.rule.width)], axis=1)
            for i, register in enumerate(self._registers)
        )
        places = self._placed(Partials(columns["kind"], slots[columns["place"]], columns["start"], cells))
        self._fresh[places] = columns.get(FRESH, True)


def _merge_partials(
    run: JitPolicy, register: WindowAccumulator, into: Cells, parts: Cells, which: Ints
) -> Cells:
    """The cells `into`, each with the parts that belong to it: part i to cell which[i]."""
    both = np.concatenate([into, parts])
    sources = len(into) + np.arange(len(parts))
    run(build_merge_loop(register.rule), np.ascontiguousarray(which, np.int64), sources, both)
    return both[: len(into)]
