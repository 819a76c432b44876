"""Count and sum in one pass against a dictionary of slices, at both speeds, however late the rows come."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.slice_loop import END, FIRST, MASK, MAX_ID, MIN_ID, MIN_TIME
from penstock.kernels.windows.sums import MAX_PAIRS, sum_keyed, sum_single

speeds = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
Ints = npt.NDArray[np.int64]

PERIOD = 10
OPEN_FROM = 500


def times_of(seed: int, n_rows: int, delay: int, pace: int) -> Ints:
    """Rows every `pace` rows a unit later, put off by up to `delay`; some before `OPEN_FROM`."""
    rng = np.random.default_rng(seed)
    times = OPEN_FROM - 3 + np.arange(n_rows) // pace + rng.integers(0, delay + 1, n_rows)
    return np.asarray(times, np.int64)


def expected_sums(
    times: Ints, values: npt.NDArray[np.float64], slots: Ints
) -> dict[tuple[int, int], list[float]]:
    result: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0, 0.0])
    for slot, time, value in zip(slots.tolist(), times.tolist(), values.tolist(), strict=True):
        if time >= OPEN_FROM:
            result[slot, time // PERIOD][0] += 1
            result[slot, time // PERIOD][1] += value
    return dict(result)


def rings_of(n_slots: int, size: int) -> Ints:
    """A ring per slot that holds slices from the first open one on, already grown."""
    first = OPEN_FROM // PERIOD
    held = [
        [slot * size, size - 1, first, first + size, first, MAX_ID, -MAX_ID, 0] for slot in range(n_slots)
    ]
    return np.array(held, np.int64)


def found_in(rings: Ints, counts: Ints, sums: npt.NDArray[np.float64]) -> dict[tuple[int, int], list[float]]:
    cells = {}
    for slot, ring in enumerate(rings):
        for id_ in range(ring[FIRST], ring[END]):
            cell = ring[0] + (id_ & ring[MASK])
            if counts[cell]:
                cells[slot, id_] = [int(counts[cell]), float(sums[cell])]
    return cells


@speeds
@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 130, 1500, 2500]),
    st.sampled_from([0, 3, 35, 400]),
    st.integers(1, 200),
    st.sampled_from([256, MAX_PAIRS // 2, 2 * MAX_PAIRS]),
    st.integers(1, 4),
)
@settings(deadline=None, max_examples=40)
def test_every_row_on_time_is_in_the_sum_of_its_slice(
    compiled: bool, seed: int, n_rows: int, delay: int, pace: int, size: int, n_slots: int
) -> None:
    times = times_of(seed, n_rows, delay, pace)
    values = np.arange(n_rows, dtype=np.float64)  # whole numbers: sums are exact in any order
    slots = np.random.default_rng(seed + 1).integers(0, n_slots, n_rows)
    rings, late = rings_of(n_slots, size), np.zeros(n_rows + 1, np.int64)
    reach = OPEN_FROM // PERIOD * PERIOD
    clock = np.array([OPEN_FROM, OPEN_FROM, reach, reach // PERIOD, PERIOD, MAX_ID, 0], np.int64)
    counts, sums = np.zeros(n_slots * size, np.int64), np.zeros(n_slots * size)
    room = (clock, rings, np.zeros(1, np.int64), late, counts, sums)
    if n_slots == 1:
        stopped = sum_single.version(compiled)(times, values, 0, *room)
    else:
        run, pairs = np.array([MIN_ID], np.int64), np.zeros(2 * n_slots)
        stopped = sum_keyed.version(compiled)(slots, times, values, 0, *room, run, pairs)
        assert not pairs.any()
    assert stopped == n_rows
    assert found_in(rings, counts, sums) == expected_sums(times, values, slots)
    assert late[1 : late[0] + 1].tolist() == np.flatnonzero(times < OPEN_FROM).tolist()
    assert clock[MIN_TIME] == times.min()
