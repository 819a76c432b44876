"""Stored rows of a join: what loops read lies as they need it, also after rows have moved together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.stages import policy
from penstock.stages.join.join_rows import JoinRows
from penstock.stages.join.row_store import RowStore
from penstock.stages.rows.batch import Batch


def rows_of(clocks: range) -> JoinRows:
    n_rows = len(clocks)
    clock = np.array(clocks, np.int64)
    numbers = np.arange(n_rows)
    columns = pa.RecordBatch.from_pydict({"v": clock})
    return JoinRows(
        np.array([clock, clock]),
        clock,
        (),
        Batch(columns, clock),
        numbers % 256,
        numbers,
        np.zeros(n_rows, np.bool_),
    )


def test_arrays_by_slot_are_whole_rows_in_memory_after_the_live_rows_have_moved_together() -> None:
    store, run = RowStore(), policy.JitPolicy()
    for begin in range(0, 40_000, 4_000):
        store.add(rows_of(range(begin, begin + 4_000)), run)
        store.expire(begin)
        store.settle()
        assert store.codes.flags.c_contiguous
    assert len(store) == 4_000
    assert store.live_rows().times.tolist() == list(range(36_000, 40_000))
