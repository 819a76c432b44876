"""Batches have few keys and lose no row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cuda.pane_stage import MAX_WAITING_BATCHES, KeyGroups, Rows, concat_rows

SLOTS = st.lists(st.lists(st.integers(0, 9), max_size=12), max_size=5)


def rows(slots: list[int], first: int) -> Rows:
    """Rows whose times number them."""
    n = len(slots)
    times = np.arange(first, first + n)
    return Rows(np.array(slots, np.int64), times, (times * 0.5,), (times % 2 == 0 if n > 3 else None,), times)


@given(SLOTS, st.integers(1, 6), st.none() | st.integers(1, 4))
def test_every_row_is_in_one_batch_in_order_and_no_batch_has_too_many_keys(
    pushes: list[list[int]], batch_rows: int, max_keys: int | None
) -> None:
    groups, batches, n = KeyGroups(batch_rows, max_keys), list[Rows](), 0
    for slots in pushes:
        batches += groups.add(rows(slots, n))
        n += len(slots)
    batches += groups.take_all()
    assert list(groups.take_all()) == []
    assert groups.nbytes == 0
    assert all(0 < len(batch) <= batch_rows for batch in batches)
    assert max_keys is None or all(len(set(batch.slots.tolist())) <= max_keys for batch in batches)
    sent = [slot for slots in pushes for slot in slots]
    for slot in range(10):
        times = [time for batch in batches for time in batch.times[batch.slots == slot].tolist()]
        assert times == [time for time, its in enumerate(sent) if its == slot]
    assert all((np.asarray(batch.values[0]) == batch.times / 2).all() for batch in batches)


def test_rows_wait_until_their_group_fills_a_batch() -> None:
    groups = KeyGroups(batch_rows=3, max_keys=2)
    assert list(groups.add(rows([0, 2, 1, 3], 0))) == []
    assert groups.nbytes > 0
    (full,) = groups.add(rows([0, 9], 4))
    assert full.slots.tolist() == [0, 1, 0]
    assert [batch.slots.tolist() for batch in groups.take_all()] == [[2, 3], [9]]


def test_rows_of_many_keys_do_not_wait_without_end() -> None:
    groups = KeyGroups(batch_rows=2, max_keys=1)
    n = MAX_WAITING_BATCHES * 2
    assert list(groups.add(rows(list(range(n - 1)), 0))) == []
    assert len(list(groups.add(rows([n], 0)))) == n


def test_rows_with_and_without_nulls_go_together() -> None:
    one, other = rows([0, 0], 0), rows([0, 0, 0, 0], 2)
    (mask,) = concat_rows([one, other]).valid
    assert mask is not None
    assert mask.tolist() == [True, True, True, False, True, False]
    assert concat_rows([one, one]).valid == (None,)
