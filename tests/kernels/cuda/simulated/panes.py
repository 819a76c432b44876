"""The pane kernels against a bucket per (slot, slice)."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.kernels import (
    clear_slices,
    fill,
    lift_kernel,
    place_rows,
    power_of_two,
    rule_kernels,
    sort_packed,
    touch,
)
from penstock.kernels.windows.accumulate import INT64_MIN, MAX_COUNT
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.reduction import reduce_by_key

LAUNCHES = st.builds(Launch, blocks=st.integers(1, 2), threads=st.integers(1, 3))
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-12, 12), st.none() | st.integers(-9, 9)),
    min_size=1,
    max_size=24,
)
NO_FLAGS = np.ones((1, 1), np.bool_)


def on_device(*values: Any) -> Any:
    return cuda.to_device(np.array(values))


def sort_rows(rows: list[tuple[int, int, Any]], slicing: Slicing, launch: Launch) -> tuple[Any, Any, int]:
    """(packed and sorted, place, padded length), codes wide enough for slices -30 .. 30."""
    n_padded = power_of_two(len(rows))
    slots, times = (on_device(*(row[i] for row in rows)) for i in (0, 1))
    place = on_device(0, -30, 61, n_padded.bit_length())
    packed = cuda.device_array(n_padded, dtype=np.int64)
    cuts = (slicing.period, on_device(*slicing.offsets))
    place_rows[launch.over(n_padded)](slots, times, len(rows), n_padded, *cuts, place, packed)
    sort_packed(packed, n_padded, launch)
    return packed, place, n_padded


@settings(deadline=None, max_examples=40)
@given(ROWS, st.integers(1, 6), LAUNCHES)
def test_rows_are_reduced_by_slot_and_slice_into_the_ring(
    rows: list[tuple[int, int, int | None]], every: int, launch: Launch
) -> None:
    packed, place, n = sort_rows(rows, Slicing.of([TimeWindow(every, every)]), launch)
    times = on_device(*(time for _, time, _ in rows))
    values = cuda.to_device(np.array([[value or 0 for *_, value in rows]]))
    valid = cuda.to_device(np.array([[value is not None for *_, value in rows]]))
    neutral = on_device(*MAX_COUNT.neutral)
    cells, spare = (cuda.device_array((n, 2), dtype=np.int64) for _ in range(2))
    bits = n.bit_length()
    lift_kernel("counted")[launch.over(n)](
        packed, n, bits, times, times, values, 0, valid, 0, -1, neutral, cells
    )
    reach, kernels = 1, rule_kernels(MAX_COUNT)
    while reach < n:
        kernels.reduce_step[launch.over(n)](packed, n, bits, reach, cells, spare)
        cells, spare, reach = spare, cells, 2 * reach
    ring, touched = cuda.device_array((3 * 32, 2), dtype=np.int64), cuda.to_device(np.zeros((32, 1), np.int8))
    fill[launch.over(96)](ring, neutral)
    for _ in range(2):  # the second time, every slice is pending already
        kernels.add_to_ring[launch.over(n)](packed, n, place, cells, ring, 32)
        touch[launch.over(n)](packed, n, place, touched)

    result = reduce_by_key(
        [((slot, time // every), value) for slot, time, value in rows if value is not None], min
    )
    equal = reduce_by_key(
        [
            ((slot, time // every), 2)
            for slot, time, value in rows
            if value is not None and value == result[slot, time // every]
        ],
        lambda a, b: a + b,
    )
    held = ring.copy_to_host().reshape(3, 32, 2)
    assert {key: ~int(held[key[0], key[1] % 32, 0]) for key in result} == result
    assert {key: int(held[key[0], key[1] % 32, 1]) for key in result} == equal
    assert int((held[:, :, 0] > INT64_MIN).sum()) == len(result)
    assert set(np.flatnonzero(touched.copy_to_host()[:, 0])) == {time // every % 32 for _, time, _ in rows}


def test_rows_of_one_key_keep_their_order_of_arrival() -> None:
    slicing = Slicing.of([TimeWindow(10, 10)])
    packed, *_ = sort_rows([(1, 5, 0), (0, 5, 0), (1, 5, 0), (0, 5, 0)], slicing, Launch(1, 2))
    assert [int(code) & 0b111 for code in packed.copy_to_host()] == [1, 3, 0, 2]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=2), st.integers(1, 9), LAUNCHES)
def test_slices_have_the_numbers_that_they_have_on_the_host(
    sizes: list[int], every: int, launch: Launch
) -> None:
    slicing = Slicing.of([TimeWindow(size, every) for size in sizes])
    times = range(-8, 8)
    packed, _, n = sort_rows([(0, time, 0) for time in times], slicing, launch)
    result = [(int(code) >> n.bit_length()) - 30 for code in packed.copy_to_host()]
    assert result == [slicing.id_of(time) for time in times]


def test_nulls_are_counted_by_their_own_lift_and_left_out_by_others() -> None:
    packed, _, n = sort_rows(
        [(0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0)], Slicing.of([TimeWindow(9, 9)]), Launch(1, 1)
    )
    valid = cuda.to_device(np.array([[True, False, False, True]]))
    values, neutral = cuda.to_device(np.array([[5, 6, 7, 8]])), on_device(0)
    for lift, expected in (("null", [0, 1, 1, 0]), ("time", [1, 0, 0, 4])):
        cells = cuda.device_array((n, 1), dtype=np.int64)
        given_times = on_device(1, 2, 3, 4)
        lift_kernel(lift)[1, 1](
            packed, n, n.bit_length(), given_times, given_times, values, 0, valid, 0, 0, neutral, cells
        )
        assert cells.copy_to_host()[:, 0].tolist() == expected


def test_cleared_slices_are_neutral_in_all_slots_also_round_the_end() -> None:
    ring, touched = cuda.to_device(np.ones((2 * 4, 1))), cuda.to_device(np.ones((4, 1), np.int8))
    clear_slices[1, 2](ring, 4, on_device(0.0), 7, 2)
    clear_slices[1, 2](touched, 4, cuda.to_device(np.zeros(1, np.int8)), 7, 2)
    assert ring.copy_to_host().reshape(2, 4).tolist() == [[0, 1, 1, 0], [0, 1, 1, 0]]
    assert touched.copy_to_host()[:, 0].tolist() == [0, 1, 1, 0]


def test_cells_that_were_put_aside_are_merged_with_those_in_the_ring() -> None:
    ring = cuda.to_device(np.array([[5, 1], [INT64_MIN, 0]]))
    aside = cuda.to_device(np.array([[5, 2], [8, 1]]))
    rule_kernels(MAX_COUNT).merge_states[1, 2](on_device(0, 0), on_device(4, 7), aside, ring, 2)
    assert ring.copy_to_host().tolist() == [[5, 3], [8, 1]]
