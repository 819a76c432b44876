"""Batches have few keys and lose no row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cuda.groups import KeyGroups, Rows

SLOTS = st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5)


def rows(slots: list[int], first: int) -> Rows:
    """Rows whose times number them."""
    n = len(slots)
    return Rows(
        np.array(slots, np.int64), np.arange(first, first + n), np.zeros((n, 1)), np.ones(n, np.bool_)
    )


@settings(deadline=None, derandomize=True)
@given(SLOTS, st.integers(1, 6), st.none() | st.integers(1, 4))
def test_every_row_is_in_one_batch_in_order_and_no_batch_has_too_many_keys(
    pushes: list[list[int]], batch_rows: int, max_keys: int | None
) -> None:
    groups, batches, n = KeyGroups(batch_rows, max_keys), [], 0
    for slots in pushes:
        full = list(groups.add(rows(slots, n)))
        assert all(len(batch) == batch_rows for batch in full)
        batches += full
        n += len(slots)
    batches += groups.take_all()
    assert list(groups.take_all()) == []
    assert all(0 < len(batch) <= batch_rows for batch in batches)
    assert max_keys is None or all(len(set(batch.slots.tolist())) <= max_keys for batch in batches)
    sent = [slot for slots in pushes for slot in slots]
    for slot in range(10):
        times = [time for batch in batches for time in batch.times[batch.slots == slot].tolist()]
        assert times == [time for time, its in enumerate(sent) if its == slot]


def test_rows_wait_until_their_group_fills_a_batch() -> None:
    groups = KeyGroups(batch_rows=3, max_keys=2)
    assert list(groups.add(rows([0, 2, 1, 3], 0))) == []
    (full,) = groups.add(rows([0, 9], 4))
    assert full.slots.tolist() == [0, 1, 0]
    assert [batch.slots.tolist() for batch in groups.take_all()] == [[2, 3], [9]]
