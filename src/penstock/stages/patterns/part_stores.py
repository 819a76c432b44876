"""The stores of paned and map-reduce windows: two that give parts away, and two that put parts together.

What is given away is forgotten, so a slice or window that gets more rows later gives another part. All time
windows of a step judge rows as `SliceStore` does; only what leaves differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.kernels.cells import BASE, END, FIRST, GREAT, MASK
from penstock.kernels.ring_rows import spread
from penstock.kernels.rules import Cells
from penstock.kernels.runs import join_loop
from penstock.stages.batch import Ints, Mask
from penstock.stages.filling import counts_of
from penstock.stages.pace import Pace
from penstock.stages.patterns.parts import Cut
from penstock.stages.register import Kind, Register
from penstock.stages.shown import FRESH, Shown
from penstock.stages.slices import SliceStore
from penstock.stages.store import Arriving, Fates, Left, Saved
from penstock.timing.windows import TimeWindow


class PaneParts(SliceStore):
    """Slices that leave as parts once the watermark, less the lateness, is past their end (PLQ)."""

    @property
    def why(self) -> tuple[str, ...]:
        """Windows are put together elsewhere."""
        return tuple(f"{window}: slices leave as parts" for window in self.slicing.windows)

    def leave(self, watermark: int, *, ended: bool = False) -> Left:
        """Give away the slices that have ended: no window that leaves now holds a later one."""
        self._left_to = max(self._left_to, watermark)
        return self._given_away(self.slicing.id_of(self._left_to - self.lateness))

    def early(self) -> Left:
        """Give away all slices."""
        return self._given_away(GREAT)

    def _given_away(self, before: int) -> Left:
        """Slices with numbers below `before`; kinds are 0, ends mean nothing."""
        slots, rings = self._rings.active()
        ids, ring = spread(rings[:, FIRST], np.minimum(rings[:, END], before))
        places = rings[ring, BASE] + (ids & rings[ring, MASK])
        filled = self._arena.cells[0][places, 0] > 0
        ids, owners, places = ids[filled], slots[ring[filled]], places[filled]
        starts = self.slicing.starts(ids)
        cells = tuple(each[places] for each in self._arena.cells)
        emptied = self._rings.forget(slots, rings, before, self._cells.run)
        left = Left(np.zeros(len(ids), np.int64), owners, starts, starts, starts, cells=cells)
        return self._asked_for(replace(left, touched=emptied))


class WindowParts(SliceStore):
    """Windows that leave as parts, when they would leave whole (MAP)."""

    def early(self) -> Left:
        """Give away all open windows, and the slices they are made of."""
        left = super().early()
        self.shown = Shown()  # none of them counts as shown: more may come of each
        slots, rings = self._rings.active()
        return replace(left, touched=self._rings.forget(slots, rings, GREAT, self._cells.run))


class PanesTogether(SliceStore):
    """Slices that come in parts, and the windows made of them (WLQ)."""

    def take_parts(self, cut: Cut) -> None:
        """Put parts into their slices, also those that earlier windows have used."""
        self._rings.reserve(int(cut.slots.max()) + 1)
        places = self._rings.place(cut.slots, self.slicing.ids(cut.starts))
        into, which = np.unique(places, return_inverse=True)
        registers = zip(self._kept, self._arena.cells, cut.cells, strict=True)
        for place, (register, state, part) in enumerate(registers):
            kept = counts_of(register, part, cut.cells[0])
            self._arena.blank[place] &= not kept.any()
            state[into] = _merged(self._cells.run, register, state[into], kept, which)


class WindowsTogether:
    """Windows that come in parts (REDUCE): one cell per register and open window."""

    def __init__(self, windows: Sequence[TimeWindow], lateness: int, registers: Sequence[Register]) -> None:
        assert registers[0].kind is Kind.ROWS, "a window that has no rows is none, so rows are counted first"
        self._windows, self._lateness, self._registers = tuple(windows), lateness, tuple(registers)
        self._sizes = np.array([window.size for window in windows], np.int64)
        self._open = np.empty((0, 3), np.int64)  # slot, kind, start; each once, sorted
        self._cells: list[Cells] = [register.rule.blank(0) for register in registers]
        self._fresh = np.zeros(0, np.bool_)  # by open window: parts came since it was last shown
        self._run = Pace()

    @property
    def n_kinds(self) -> int:
        """How many kinds of window."""
        return len(self._windows)

    @property
    def why(self) -> tuple[str, ...]:
        """How windows are put together."""
        return tuple(f"{window}: put together from the parts of replicas" for window in self._windows)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._open.nbytes + self._fresh.nbytes + sum(cells.nbytes for cells in self._cells)

    def take(self, arriving: Arriving, watermark: int) -> tuple[Fates, Ints]:
        """Rows never come here."""
        raise AssertionError("rows are taken in by the stages that make parts")

    def take_parts(self, cut: Cut) -> None:
        """Put parts into their windows."""
        places = self._placed(cut)
        self._fresh[places] = True

    def _placed(self, cut: Cut) -> Ints:
        """Put parts into their windows; gives where these stand."""
        new = np.stack([cut.slots, cut.kinds, cut.starts], axis=1)
        both, which = np.unique(np.concatenate([self._open, new]), axis=0, return_inverse=True)
        which = which.reshape(-1)
        old, new_places = which[: len(self._open)], which[len(self._open) :]
        for i, (register, part) in enumerate(zip(self._registers, cut.cells, strict=True)):
            into = register.rule.blank(len(both))
            into[old] = self._cells[i]
            self._cells[i] = _merged(self._run, register, into, part, new_places)
        fresh = np.zeros(len(both), np.bool_)
        fresh[old] = self._fresh
        self._open, self._fresh = both, fresh
        return np.asarray(new_places, np.int64)

    def leave(self, watermark: int, *, ended: bool = False) -> Left:
        """Let go every window with end + lateness <= watermark."""
        gone = self._ends() + self._lateness <= watermark
        left = self._left(np.flatnonzero(gone))
        self._open, self._fresh = self._open[~gone], self._fresh[~gone]
        self._cells = [cells[~gone] for cells in self._cells]
        return replace(left, touched=np.unique(left.slots))

    def early(self) -> Left:
        """The open windows that changed since they were last shown."""
        changed = np.flatnonzero(self._fresh)
        self._fresh[:] = False
        return self._left(changed)

    def _ends(self) -> Ints:
        return np.asarray(self._open[:, 2] + self._sizes[self._open[:, 1]], np.int64)

    def _left(self, places: Ints) -> Left:
        slots, kinds, starts = (np.ascontiguousarray(column) for column in self._open[places].T)
        ends = self._ends()[places]
        return Left(kinds, slots, starts, ends, ends - 1, cells=tuple(each[places] for each in self._cells))

    def holds(self, slots: Ints) -> Mask:
        """Which of these slots have an open window."""
        return np.isin(slots, self._open[:, 0])

    def export(self, slots: Ints) -> Saved:
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

    def load(self, saved: Saved, slots: Ints) -> None:
        """Take up exported windows: what was at place i now belongs to slots[i]."""
        batch = saved["windows"]
        columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names}
        cells = tuple(
            np.stack([columns[f"{i}.{part}"] for part in range(register.rule.width)], axis=1)
            for i, register in enumerate(self._registers)
        )
        places = self._placed(Cut(columns["kind"], slots[columns["place"]], columns["start"], cells))
        self._fresh[places] = columns.get(FRESH, True)


def _merged(run: Pace, register: Register, into: Cells, parts: Cells, which: Ints) -> Cells:
    """The cells `into`, each with the parts that belong to it: part i to cell which[i]."""
    both = np.concatenate([into, parts])
    sources = len(into) + np.arange(len(parts))
    run(join_loop(register.rule), np.ascontiguousarray(which, np.int64), sources, both)
    return both[: len(into)]
