"""Cells that wait on the host: each slot and slice once, in order, whatever came twice is merged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.cuda.slices import SliceStates, merge_states
from penstock.kernels.windows.accumulate import COUNT, MAX

RULES = (COUNT, MAX)
CELLS = st.dictionaries(st.tuples(st.integers(0, 3), st.integers(-3, 3)), st.integers(-9, 9), max_size=8)


def states(cells: dict[tuple[int, int], int]) -> SliceStates:
    slots, slices = (np.array([place[i] for place in cells], np.int64) for i in (0, 1))
    values = np.array(list(cells.values()), np.int64).reshape(-1, 1)
    return SliceStates(slots, slices, (values, values.copy()))


@pytest.mark.slow
@given(CELLS, CELLS, st.integers(-4, 4))
def test_two_lots_become_one_in_the_order_of_slices(
    one: dict[tuple[int, int], int], other: dict[tuple[int, int], int], at: int
) -> None:
    both = merge_states(merge_states(SliceStates.none(RULES), states(one), RULES), states(other), RULES)
    places = list(zip(both.slots.tolist(), both.slices.tolist(), strict=True))
    assert places == sorted({*one, *other}, key=lambda place: (place[1], place[0]))
    for i, place in enumerate(places):
        values = [cells[place] for cells in (one, other) if place in cells]
        assert [cells[i, 0] for cells in both.cells] == [sum(values), max(values)]
    before, after = both.split(at)
    assert (len(before) + len(after), len(both)) == (len(places), len(places))
    assert all(slice_id < at for slice_id in before.slices.tolist())
    assert all(slice_id >= at for slice_id in after.slices.tolist())


def test_memory_is_that_of_the_arrays() -> None:
    assert states({(0, 0): 1}).nbytes == 4 * 8
