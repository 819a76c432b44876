"""A shelf: the stores of the same windows, asked as one.

Registers of time windows are kept in slices and their rows, where aggregates need them, in a store beside.
Both judge alike and let the same windows leave, so that their answers can be laid side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.stages.batch import Ints, Mask
from penstock.stages.store import Arriving, Judged, Left, Members, Saved, Store


class Shelf:
    """One store or two of the same windows.

    kinds    int64[n_kinds]  which windows of the step they are
    counted  whether they are count windows, which alone settle tickets
    """

    def __init__(self, kinds: Sequence[int], stores: Sequence[Store], *, counted: bool = False) -> None:
        self.kinds = np.array(kinds, np.int64)
        self.stores, self.counted = tuple(stores), counted

    @property
    def why(self) -> tuple[str, ...]:
        """For each kind: the algorithms and why they were chosen."""
        return tuple("; and ".join(parts) for parts in zip(*(each.why for each in self.stores), strict=True))

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return sum(store.nbytes for store in self.stores)

    def take(self, arriving: Arriving, watermark: int) -> Judged | None:
        """Judge rows and take in what is not late; None: all taken, none missed."""
        answers = [store.take(arriving, watermark) for store in self.stores]
        return answers[0]

    def leave(self, watermark: int, *, ended: bool) -> Left:
        """The windows that leave, with registers and rows."""
        return self._side_by_side([store.leave(watermark, ended=ended) for store in self.stores])

    def early(self) -> Left:
        """The open windows that changed since they were last shown."""
        parts = [store.early() for store in self.stores]
        if len(parts) > 1:
            # State of format 1 did not say of slices whether they had been shown, but did of rows.
            parts = [picked(part, np.flatnonzero(_in_all(part, parts))) for part in parts]
        return self._side_by_side(parts)

    def holds(self, slots: Ints) -> Mask:
        """Which of these slots have state here."""
        return np.asarray(np.logical_or.reduce([store.holds(slots) for store in self.stores]))

    def export(self, slots: Ints) -> Saved:
        """The state of these slots, by store and name."""
        return {
            f"{place}.{name}": batch
            for place, store in enumerate(self.stores)
            for name, batch in store.export(slots).items()
        }

    def load(self, saved: Saved, slots: Ints) -> None:
        """Take up saved state: what was at place i now belongs to slots[i]."""
        for place, store in enumerate(self.stores):
            start = f"{place}."
            store.load({n.removeprefix(start): b for n, b in saved.items() if n.startswith(start)}, slots)

    def _side_by_side(self, parts: list[Left]) -> Left:
        first, *others = (in_order(part) for part in parts) if len(parts) > 1 else parts
        touched = each_once([first.slots, *(part.touched for part in parts if len(part.touched))])
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


def each_once(parts: Sequence[Ints]) -> Ints:
    """The slots that are in some part, each once, in order: slots are dense, so marking beats sorting."""
    if len(parts) == 1 and len(parts[0]) < 2:
        return parts[0]
    marks = np.zeros(max((int(part.max(initial=-1)) for part in parts), default=-1) + 1, np.bool_)
    for part in parts:
        marks[part] = True
    return np.flatnonzero(marks)


def in_order(left: Left) -> Left:
    """The same windows by (kind, slot, start): the same whichever store they come from."""
    order = np.lexsort((left.starts, left.slots, left.kinds))
    return picked(left, order)


def picked(left: Left, places: Ints) -> Left:
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
        members=None if left.members is None else _picked_members(left.members, places),
        sketches=tuple(each[places] for each in left.sketches),
    )


def _picked_members(members: Members, places: Ints) -> Members:
    counts = np.diff(members.offsets)[places]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
    chosen = members.places[np.repeat(members.offsets[places], counts) + within]
    return Members(members.rows, offsets, chosen, members.lifted)


def _in_all(part: Left, parts: Sequence[Left]) -> Mask:
    """Which windows of one answer are in all."""
    mine = _named(part)
    return np.asarray(np.logical_and.reduce([np.isin(mine, _named(other)) for other in parts]))


def _named(left: Left) -> npt.NDArray[np.void]:
    """A window as one value: kind, slot and start."""
    columns = np.stack([left.kinds, left.slots, left.starts], axis=1)
    return np.ascontiguousarray(columns).view("i8,i8,i8")[:, 0]
