"""Rings as rows of a table: where one begins, in which order they stand, which cells are theirs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.cells import BASE, CLEAN, END, FIRST, GREAT, LATE_FROM, LATE_TO, MASK

Ints = npt.NDArray[np.int64]
NO_RING = np.array([0, -1, 0, 0, 0, GREAT, -GREAT, 0], np.int64)


def start(rows: Ints, lo: Ints, new: npt.NDArray[np.bool_]) -> None:
    """Let rings that hold nothing begin at `lo`."""
    rows[new, FIRST] = rows[new, END] = rows[new, CLEAN] = lo[new]
    rows[new, LATE_FROM], rows[new, LATE_TO] = GREAT, -GREAT


def by_slot(slots: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Rings by (slot, first slice), in which order they mostly come."""
    first = rows[:, FIRST]
    ordered = (slots[1:] > slots[:-1]) | ((slots[1:] == slots[:-1]) & (first[1:] > first[:-1]))
    if ordered.all():
        return slots, rows
    order = np.lexsort((first, slots))
    return slots[order], rows[order]


def heads_of(ordered: Ints) -> Ints:
    """Where each stretch of equal numbers begins."""
    return np.append(0, np.flatnonzero(np.diff(ordered)) + 1)


def cells_of(rows: Ints, first: Ints, past: Ints) -> Ints:
    """The cells of slices [first, past) of each ring, one ring after the other."""
    ids, ring = spread(first, past)
    return np.asarray(rows[ring, BASE] + (ids & rows[ring, MASK]), np.int64)


def spread(first: Ints, past: Ints) -> tuple[Ints, Ints]:
    """All integers of the ranges [first, past) in turn, and which range each is of."""
    lengths = np.maximum(past - first, 0)
    ring = np.repeat(np.arange(len(lengths)), lengths)
    before = np.cumsum(lengths) - lengths
    return np.arange(len(ring)) - before[ring] + first[ring], ring


def power_of_two(least: Ints) -> Ints:
    """The smallest power of two that is at least each number (below 2^53)."""
    return np.asarray(np.left_shift(1, np.ceil(np.log2(least)).astype(np.int64)), np.int64)
