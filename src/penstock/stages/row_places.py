"""The place of rows among those of equal time, as columns: what flat_map adds to it, and how streams meet.

A place is a list of numbers, compared from the left; a list that ends comes before all that go on. Where
rows of one batch have lists of different lengths, because streams with different histories have met, the
shorter ones are filled up with `NOTHING`, and only at their ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.stages.batch import Batch, Ints, joined

NOTHING = -(2**63)
"""Where a row's place has ended: before every number that a reader or a flat_map gives."""

Order = tuple[Ints, ...]


def with_index(order: Order, index: Ints) -> Order:
    """The places of rows that were made of others: one number more, behind the last that each has.

    There is always one column more, so that all batches of a stream have the same number.

    >>> left = np.array([1, 1]), np.array([5, NOTHING])
    >>> [column.tolist() for column in with_index(left, np.array([0, 7]))] == [[1, 1], [5, 7], [0, NOTHING]]
    True
    """
    columns, waiting = [], index
    for column in order:
        ended = column == NOTHING
        columns.append(np.where(ended, waiting, column))
        waiting = np.where(ended, NOTHING, waiting)
    return (*columns, waiting)


def filled(batch: Batch, width: int) -> Batch:
    """The same rows with `width` columns of order."""
    missing = width - len(batch.order)
    assert missing >= 0, f"rows have {len(batch.order)} columns of order, and {width} were asked for"
    nothing = np.full(batch.num_rows, NOTHING, np.int64)
    return Batch(batch.rows, batch.times, batch.order + (nothing,) * missing)


def merged(batches: Sequence[Batch], schema: pa.Schema) -> Batch:
    """Batches of streams that flow together, or of one at different times, as one batch."""
    width = max((len(batch.order) for batch in batches), default=0)
    return joined([filled(batch, width) for batch in batches], schema)
