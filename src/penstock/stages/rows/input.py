"""Rows on their way into the state of a stage, as arrays: what window stores and keyed state accept.

Watermarks are plain integers between NEVER and ENDED: times are within 2^61 microseconds of 1970, so sums
of a time, a size and a lateness stay in int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.frozen import dataclass
from penstock.stages.rows.batch import Ints, Mask

NEVER = -(2**62)
"""The watermark before the first row."""
ENDED = 2**62
"""The watermark after the last row."""
NOT_LIFTED = object()
"""Stands for the result of a fold's `lift` where it is not known."""
Objects = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class Values:
    """A column to aggregate: int64[n] or float64[n], and which values are not null (None: all)."""

    data: npt.NDArray[Any]
    valid: Mask | None = None

    def at(self, places: npt.NDArray[Any]) -> Values:
        """Return the values of some rows."""
        return Values(self.data[places], None if self.valid is None else self.valid[places])


@dataclass(frozen=True, slots=True)
class InputRows:
    """Rows on their way into stores; all arrays have one length.

    slots       int64[n]  dense numbers of the keys
    times       int64[n]
    order       as in Batch; accumulators that read an order (first, last) need exactly one array
    values      one per column that accumulators name
    rows        the columns for stores that keep rows: the input's, then computed expressions, always in this
                order, so that sorting by all columns is sorting by the input. None if no store keeps rows
    tags        int64[n]  a number that a store attaches to each row: of count windows the id of a pending
                row, -1 if another kind admitted it; of kept rows whether they were fired early
    single_key  whether it is known that all slots are 0
    lifted      for folds in Python: what `lift` returned for each row, one array of objects per fold. A
                snapshot holds only the rows; after a restore this is NOT_LIFTED
    """

    slots: Ints
    times: Ints
    order: tuple[Ints, ...] = ()
    values: tuple[Values, ...] = ()
    rows: pa.RecordBatch | None = None
    tags: Ints | None = None
    single_key: bool = False
    lifted: tuple[Objects, ...] = ()

    def at(self, places: npt.NDArray[Any]) -> InputRows:
        """Return some of the rows, in the order of `places`."""
        return InputRows(
            self.slots[places],
            self.times[places],
            tuple(column[places] for column in self.order),
            tuple(column.at(places) for column in self.values),
            None if self.rows is None else self.rows.take(pa.array(places)),
            None if self.tags is None else self.tags[places],
            self.single_key,
            tuple(parts[places] for parts in self.lifted),
        )


@dataclass(frozen=True, slots=True)
class WindowRows:
    """The rows of several windows: window i has rows[places[offsets[i]:offsets[i + 1]]], in order.

    `lifted` is as in InputRows, for `rows`.
    """

    rows: pa.RecordBatch
    offsets: Ints
    places: Ints
    lifted: tuple[Objects, ...] = ()

    def at(self, windows: Ints) -> WindowRows:
        """Return the rows of some of the windows."""
        counts = np.diff(self.offsets)[windows]
        offsets = np.concatenate([[0], np.cumsum(counts)])
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], counts)
        places = self.places[np.repeat(self.offsets[windows], counts) + within]
        return WindowRows(self.rows, offsets, places, self.lifted)


def no_ints() -> Ints:
    """Return an empty array of integers."""
    return np.empty(0, np.int64)
