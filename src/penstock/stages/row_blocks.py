"""Rows that wait or are kept: blocks of Arrow batches with their slots and times, taken out by what they are.

A block is what came with one batch; small ones are put together, so that their number grows with the
logarithm of the rows, and one that is half taken is packed, so that memory follows what is there.
Blocks whose rows are all later than what is asked for are not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.kernels.rules import LEAST
from penstock.stages.batch import Ints, Mask
from penstock.stages.store import ENDED, NEVER, UNLIFTED, Arriving, Objects, Values, nothing

LARGE = 1 << 16
"""Blocks of so many rows are not put together with others."""

Where = Callable[[Arriving], Mask]


def everywhere(rows: Arriving) -> Mask:
    """All of the rows."""
    return np.ones(len(rows.slots), np.bool_)


def of_slots(slots: Ints) -> Where:
    """The rows of some slots."""
    return before(slots, np.full(len(slots), ENDED, np.int64))


def before(slots: Ints, ends: Ints) -> Where:
    """The rows of some slots that come before a time of the slot, the latest where a slot is named twice."""
    table = np.full(int(slots.max(initial=-1)) + 2, NEVER, np.int64)  # the last is for all other slots
    np.maximum.at(table, slots, ends)
    return lambda rows: np.asarray(rows.times < table[np.minimum(rows.slots, len(table) - 1)])


@dataclass(slots=True)
class Block:
    """Some rows, those that are still there, and the least of all times."""

    rows: Arriving
    there: Mask
    n_there: int
    least: int

    @classmethod
    def of(cls, rows: Arriving) -> Block:
        """A block with all of its rows there."""
        return cls(rows, everywhere(rows), len(rows.slots), int(rows.times.min()))

    def packed(self) -> Arriving:
        """The rows that are there."""
        return _picked(self.rows, self.there)


class RowBlocks:
    """Rows of all slots, in no order."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._n_rows = nothing()  # by slot

    def __len__(self) -> int:
        return sum(block.n_there for block in self._blocks)

    @property
    def nbytes(self) -> int:
        """The memory held."""
        return self._n_rows.nbytes + sum(nbytes_of(block.rows) + block.there.nbytes for block in self._blocks)

    def holds(self, slots: Ints) -> Mask:
        """Which slots have rows."""
        known = slots < len(self._n_rows)
        held = np.zeros(len(slots), np.bool_)
        held[known] = self._n_rows[slots[known]] > 0
        return held

    def add(self, rows: Arriving) -> None:
        """Keep rows."""
        if not len(rows.slots):
            return
        self._count(rows.slots, 1)
        self._blocks.append(Block.of(rows))
        while len(self._blocks) > 1 and self._blocks[-2].n_there <= self._blocks[-1].n_there < LARGE:
            last, before = self._blocks.pop(), self._blocks.pop()
            self._blocks.append(Block.of(joined_rows([before.packed(), last.packed()])))

    def find(self, where: Where = everywhere, *, below: int | None = None) -> Arriving | None:
        """The rows with time < below for which `where` is true; None if there are none."""
        found = [_picked(block.rows, chosen) for block, chosen in self._chosen(where, below)]
        return joined_rows(found) if found else None

    def pull(self, where: Where = everywhere, *, below: int | None = None) -> Arriving | None:
        """As `find`, and the rows are no longer there."""
        found = []
        for block, chosen in self._chosen(where, below):
            found.append(_picked(block.rows, chosen))
            block.there &= ~chosen
            block.n_there -= len(found[-1].slots)
            self._count(found[-1].slots, -1)
        self._blocks = [
            Block.of(block.packed()) if 2 * block.n_there < len(block.there) else block
            for block in self._blocks
            if block.n_there
        ]
        if not self._blocks:
            self._n_rows = nothing()
        return joined_rows(found) if found else None

    def _count(self, slots: Ints, change: int) -> None:
        n_slots = int(slots.max()) + 1
        if n_slots > len(self._n_rows):
            more = max(n_slots, 2 * len(self._n_rows)) - len(self._n_rows)
            self._n_rows = np.append(self._n_rows, np.zeros(more, np.int64))
        np.add.at(self._n_rows, slots, change)

    def _chosen(self, where: Where, below: int | None) -> Iterator[tuple[Block, Mask]]:
        for block in self._blocks:
            if below is not None and block.least >= below:
                continue
            chosen = block.there & where(block.rows)
            if below is not None:
                chosen &= block.rows.times < below
            if chosen.any():
                yield block, chosen


def joined_rows(parts: list[Arriving]) -> Arriving:
    """Several lots of rows as one; a missing part of the order comes before any there is."""
    if len(parts) == 1:
        return parts[0]
    depth = max(len(part.order) for part in parts)
    batches = [part.rows for part in parts]
    tickets = [part.tickets for part in parts if part.tickets is not None]
    return Arriving(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.times for part in parts]),
        tuple(np.concatenate([_order(part, place) for part in parts]) for place in range(depth)),
        tuple(_values(list(each)) for each in zip(*(part.values for part in parts), strict=True)),
        None if batches[0] is None else pa.concat_batches(batches),
        np.concatenate(tickets) if tickets else None,
        lifted=_lifted(parts),
    )


def nbytes_of(rows: Arriving) -> int:
    """The memory of some rows."""
    arrays: list[Any] = [rows.slots, rows.times, *rows.order]
    for each in rows.values:
        arrays += [each.data] if each.valid is None else [each.data, each.valid]
    arrays += [each for each in (rows.rows, rows.tickets, *rows.lifted) if each is not None]
    return sum(int(each.nbytes) for each in arrays)


def _picked(rows: Arriving, chosen: Mask) -> Arriving:
    return rows if chosen.all() else rows.at(np.flatnonzero(chosen))


def _order(rows: Arriving, place: int) -> Ints:
    return rows.order[place] if place < len(rows.order) else np.full(len(rows.slots), LEAST, np.int64)


def _lifted(parts: list[Arriving]) -> tuple[Objects, ...]:
    """What lift gave, where it is known."""
    n_folds = max(len(part.lifted) for part in parts)
    unknown = [np.full(0 if part.lifted else len(part.slots), UNLIFTED) for part in parts]
    pairs = list(zip(parts, unknown, strict=True))
    return tuple(
        np.concatenate([part.lifted[fold] if part.lifted else none for part, none in pairs])
        for fold in range(n_folds)
    )


def _values(parts: list[Values]) -> Values:
    data = np.concatenate([part.data for part in parts])
    if all(part.valid is None for part in parts):
        return Values(data)
    masks = [np.ones(len(part.data), np.bool_) if part.valid is None else part.valid for part in parts]
    return Values(data, np.concatenate(masks))
