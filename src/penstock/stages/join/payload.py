"""All columns of the stored rows of a join, in few batches, so that some rows are taken quickly.

Rows are only added behind the last. A batch is put together with the one before it unless that is much
larger: the last ones are small, and most rows are in the first.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa

from penstock.stages import policy
from penstock.stages.rows.batch import Ints

GROWTH = 8
"""How many times larger than the batch after it a batch is at least, or they are put together."""


class Payload:
    """Rows by their slot, which is the number of rows before it."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._begins = [0]  # of each batch, and where the last ends

    @property
    def nbytes(self) -> int:
        """Return the memory held."""
        return sum(int(batch.nbytes) for batch in self._batches)

    def add(self, rows: pa.RecordBatch) -> None:
        """Store rows behind the last."""
        batches, begins = self._batches, self._begins
        batches.append(rows)
        begins.append(begins[-1] + rows.num_rows)
        first = len(batches) - 1
        while first > 0:
            n_before, n_rows = begins[first] - begins[first - 1], begins[-1] - begins[first]
            if n_before > GROWTH * n_rows or n_before + n_rows > policy.SIZES.payload_rows:
                break
            first -= 1
        if first < len(batches) - 1:
            batches[first:] = [pa.concat_batches(batches[first:])]
            begins[first + 1 :] = begins[-1:]

    def take(self, slots: Ints, column: str | None = None) -> pa.RecordBatch:
        """Return some rows, of which there must be any; all columns, or one."""
        batches, begins = self._batches, self._begins
        if column is not None:
            batches = [batch.select([column]) for batch in batches]
        first = bisect_right(begins, int(slots.min())) - 1
        if slots.max() < begins[first + 1]:
            return batches[first].take(pa.array(slots - begins[first]))
        places = np.argsort(slots, kind="stable")
        in_order = slots[places]
        ends = np.searchsorted(in_order, begins)
        parts = [
            rows.take(pa.array(in_order[ends[at] : ends[at + 1]] - begins[at]))
            for at, rows in enumerate(batches)
            if ends[at + 1] > ends[at]
        ]
        back = np.empty(len(places), np.int64)
        back[places] = np.arange(len(places))
        return pa.concat_batches(parts).take(pa.array(back))

    def keep(self, slots: Ints) -> None:
        """Keep these rows only, which are in order; they get the slots from 0 on."""
        kept = []
        ends = np.searchsorted(slots, self._begins)
        for at, rows in enumerate(self._batches):
            of_batch = slots[ends[at] : ends[at + 1]]
            if len(of_batch) == rows.num_rows:
                kept.append(rows)
            elif len(of_batch):  # a copy: what is gone frees its memory
                kept.append(rows.take(pa.array(of_batch - self._begins[at])))
        self._batches = kept
        self._begins = np.cumsum([0, *(rows.num_rows for rows in kept)]).tolist()
