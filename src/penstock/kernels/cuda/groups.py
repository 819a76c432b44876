"""Rows into batches of at most so many keys (VI-C).

A batch with few keys has short sort codes and touches little of the ring. Rows wait in the group of
their slot until the group fills a batch; `take_all` empties the groups early, because a watermark waits
for no one. Host arrays only; nothing here knows CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of equal length: slots int64[n], times int64[n], values number[n, columns], valid bool[n]."""

    slots: Array
    times: Array
    values: Array
    valid: Array

    def __len__(self) -> int:
        return len(self.slots)

    def where(self, chosen: Any) -> Rows:
        """The rows at some positions, or where a mask is true, or in a slice."""
        return Rows(self.slots[chosen], self.times[chosen], self.values[chosen], self.valid[chosen])


def joined(parts: list[Rows]) -> Rows:
    """Several runs of rows as one."""
    if len(parts) == 1:
        return parts[0]
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in Rows.__slots__))


class KeyGroups:
    """Rows waiting by group of slots: slot // max_keys is the group; None puts all slots in one group."""

    def __init__(self, batch_rows: int, max_keys: int | None) -> None:
        self._batch_rows, self._max_keys = batch_rows, max_keys
        self._waiting: dict[int, list[Rows]] = {}

    def add(self, rows: Rows) -> Iterator[Rows]:
        """Take rows in; give the batches that are full now."""
        for group, members in self._dealt(rows):
            waiting = self._waiting.setdefault(group, [])
            waiting.append(members)
            if sum(map(len, waiting)) >= self._batch_rows:
                yield from self._full(group)

    def take_all(self) -> Iterator[Rows]:
        """Give everything that waits, in batches that may not be full."""
        waiting, self._waiting = self._waiting, {}
        for group in sorted(waiting):
            rows = joined(waiting[group])
            for start in range(0, len(rows), self._batch_rows):
                yield rows.where(slice(start, start + self._batch_rows))

    def _full(self, group: int) -> Iterator[Rows]:
        rows = joined(self._waiting.pop(group))
        n_full = len(rows) // self._batch_rows * self._batch_rows
        if n_full < len(rows):
            self._waiting[group] = [rows.where(slice(n_full, None))]
        for start in range(0, n_full, self._batch_rows):
            yield rows.where(slice(start, start + self._batch_rows))

    def _dealt(self, rows: Rows) -> Iterator[tuple[int, Rows]]:
        if len(rows) == 0:
            return
        if self._max_keys is None:
            yield 0, rows
            return
        groups = rows.slots // self._max_keys
        order = np.argsort(groups, kind="stable")
        found, starts = np.unique(groups[order], return_index=True)
        for group, members in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            yield group, rows.where(members)
