"""Rows into batches with a limited number of keys (VI-C).

A batch with few keys has short sort codes and touches little of the ring. Rows wait in the group of
their slot until the group fills a batch; `take_all` empties the groups early, because a watermark waits
for no one. Host arrays only; nothing here knows CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.frozen import dataclass

Array = npt.NDArray[Any]
MAX_WAITING_BATCHES = 4
"""Rows of at most this many batches wait in all; then none waits any longer, however few its group has."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length.

    slots   int64[n]  not negative
    times   int64[n]  within 2^61 of 0
    values  int64[n] or float64[n] each
    valid   per column of values: bool[n], False marks a null; None where there are no nulls
    order   int64[n]  the place among rows of equal time; None where no accumulator asks for it
    """

    slots: Array
    times: Array
    values: tuple[Array, ...] = ()
    valid: tuple[Array | None, ...] = ()
    order: Array | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def where(self, chosen: Any) -> Rows:
        """Return the rows at some positions, or where a mask is true, or in a slice."""
        return Rows(
            self.slots[chosen],
            self.times[chosen],
            tuple(column[chosen] for column in self.values),
            tuple(None if mask is None else mask[chosen] for mask in self.valid),
            None if self.order is None else self.order[chosen],
        )

    @property
    def nbytes(self) -> int:
        """Return the memory that the columns take."""
        masks = [array for array in (*self.valid, self.order) if array is not None]
        return sum(array.nbytes for array in (self.slots, self.times, *self.values, *masks))


def concat_rows(parts: Sequence[Rows]) -> Rows:
    """Several runs of rows as one."""
    if len(parts) == 1:
        return parts[0]
    orders = [part.order for part in parts if part.order is not None]
    return Rows(
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.times for part in parts]),
        tuple(np.concatenate(columns) for columns in zip(*(part.values for part in parts), strict=True)),
        tuple(_masks(parts, column) for column in range(len(parts[0].valid))),
        np.concatenate(orders) if orders else None,
    )


def _masks(parts: Sequence[Rows], column: int) -> Array | None:
    if all(part.valid[column] is None for part in parts):
        return None
    masks = [(part.valid[column], len(part)) for part in parts]
    return np.concatenate([np.ones(n, np.bool_) if mask is None else mask for mask, n in masks])


class KeyGroups:
    """Rows waiting by group of slots: slot // max_keys is the group; None puts all slots in one group."""

    def __init__(self, batch_rows: int, max_keys: int | None) -> None:
        self._batch_rows, self._max_keys = batch_rows, max_keys
        self._waiting: dict[int, list[Rows]] = {}
        self._n_rows: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Return the memory of the rows that wait."""
        return sum(rows.nbytes for waiting in self._waiting.values() for rows in waiting)

    def add(self, rows: Rows) -> Iterator[Rows]:
        """Take rows in; give the batches that are full now."""
        for group, members in self._split(rows):
            self._wait(group, members)
            if self._n_rows[group] >= self._batch_rows:
                yield from self._full(group)
        if sum(self._n_rows.values()) >= MAX_WAITING_BATCHES * self._batch_rows:
            yield from self.take_all()

    def take_all(self) -> Iterator[Rows]:
        """Give everything that waits, in batches that may not be full."""
        waiting, self._waiting, self._n_rows = self._waiting, {}, {}
        for group in sorted(waiting):
            rows = concat_rows(waiting[group])
            for start in range(0, len(rows), self._batch_rows):
                yield rows.where(slice(start, start + self._batch_rows))

    def _wait(self, group: int, rows: Rows) -> None:
        self._waiting.setdefault(group, []).append(rows)
        self._n_rows[group] = self._n_rows.get(group, 0) + len(rows)

    def _full(self, group: int) -> Iterator[Rows]:
        rows, n = concat_rows(self._waiting.pop(group)), self._n_rows.pop(group)
        n_full = n // self._batch_rows * self._batch_rows
        if n_full < n:
            self._wait(group, rows.where(slice(n_full, None)))
        for start in range(0, n_full, self._batch_rows):
            yield rows.where(slice(start, start + self._batch_rows))

    def _split(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        if len(rows) == 0:
            return
        if self._max_keys is None or rows.slots.max() < self._max_keys:
            yield 0, rows
            return
        groups = rows.slots // self._max_keys
        order = np.argsort(groups, kind="stable")
        present, starts = np.unique(groups[order], return_index=True)
        for group, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
            yield group, rows.where(members)
