"""A batch: rows as Arrow columns, and beside them when each happened and its place among equal times.

Times are microseconds since 1970 (`timing/column.py`), never null: sources give rows without a time to
`.errors`. They travel beside the columns, so a map may drop the time column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one stream.

    rows   the columns
    times  int64[n]  microseconds
    order  int64[n] each, the place among rows of equal time, most significant first; () when it is not
           known, and then ties go by the columns in schema order
    """

    rows: pa.RecordBatch
    times: Ints
    order: tuple[Ints, ...] = ()

    @property
    def num_rows(self) -> int:
        """How many rows."""
        return int(self.rows.num_rows)

    def take(self, places: npt.NDArray[Any]) -> Batch:
        """The rows at these places, in their order."""
        rows = self.rows.take(pa.array(places))
        return Batch(rows, self.times[places], tuple(each[places] for each in self.order))

    def where(self, kept: Mask) -> Batch:
        """The rows for which the mask is true."""
        return self if kept.all() else self.take(np.flatnonzero(kept))


def joined(batches: Sequence[Batch], schema: pa.Schema) -> Batch:
    """Batches of one stream as one; all have the same number of order columns."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches([batch.rows for batch in batches], schema=schema).combine_chunks()
    rows = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
    times = np.concatenate([np.empty(0, np.int64), *(batch.times for batch in batches)])
    orders = zip(*(batch.order for batch in batches), strict=True)
    return Batch(rows, times, tuple(np.concatenate(each) for each in orders))
