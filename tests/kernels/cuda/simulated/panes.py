"""The pane kernels against a bucket per (slot, slice)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from penstock.kernels.cuda.launch import Launch
from penstock.kernels.cuda.operation import least, total
from penstock.kernels.cuda.panes import clear_slices, fill, pane_kernels, place_rows
from penstock.kernels.cuda.registers import device_registers
from penstock.kernels.cuda.sorting import power_of_two, sort_packed
from tests.naive.reduced import reduced

Array = npt.NDArray[Any]
MINIMA = pane_kernels(device_registers(least("int64")).lift, device_registers(least("int64")).combine)
LAUNCHES = st.builds(Launch, blocks=st.integers(1, 2), threads=st.integers(1, 3))
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-12, 12), st.integers(-99, 99)), min_size=1, max_size=24
)


def placed(
    rows: list[tuple[int, int, int]], every: int, rest: int, hopping: int, open_from: int, launch: Launch
) -> tuple[Any, Any, int, int]:
    """(packed and sorted, place, padded length, skipped), codes wide enough for slices -30 .. 30."""
    n_padded = power_of_two(len(rows))
    slots, times = (cuda.to_device(np.array([row[i] for row in rows])) for i in (0, 1))
    place = cuda.to_device(np.array([0, -30, 61, n_padded.bit_length()]))
    packed, skipped = cuda.device_array(n_padded, dtype=np.int64), cuda.to_device(np.zeros(1, np.int64))
    place_rows[launch.over(n_padded)](
        slots, times, len(rows), n_padded, cuda.to_device(np.array([every, rest, hopping])), open_from,
        place, packed, skipped,
    )  # fmt: skip
    sort_packed(packed, n_padded, launch)
    return packed, place, n_padded, int(skipped.copy_to_host()[0])


@settings(deadline=None, derandomize=True, max_examples=40)
@given(ROWS, st.integers(1, 6), st.integers(-4, 3), LAUNCHES)
def test_rows_are_reduced_by_slot_and_slice_into_the_ring(
    rows: list[tuple[int, int, int]], every: int, open_from: int, launch: Launch
) -> None:
    packed, place, n, skipped = placed(rows, every, 0, 0, open_from, launch)
    values = cuda.to_device(np.array([[row[2]] for row in rows]))
    valid, neutral = cuda.to_device(np.ones(len(rows), np.bool_)), cuda.to_device(least("int64").neutral())
    states, spare = (cuda.device_array((n, 3), dtype=np.int64) for _ in range(2))
    MINIMA.lift_sorted[launch.over(n)](packed, n, n.bit_length(), values, valid, neutral, states)
    reach = 1
    while reach < n:
        MINIMA.reduce_step[launch.over(n)](packed, n, n.bit_length(), reach, states, spare)
        states, spare, reach = spare, states, 2 * reach
    ring, touched = cuda.device_array((3, 32, 3), dtype=np.int64), cuda.to_device(np.zeros(32, np.int8))
    fill[launch.over(96)](ring.reshape(96, 3), neutral)
    latest = cuda.to_device(np.full(3, -99))
    for _ in range(2):  # the second time, every slice is pending already
        MINIMA.add_to_ring[launch.over(n)](packed, n, place, states, ring, touched, latest)

    near = [(slot, time // every, value) for slot, time, value in rows if time // every >= open_from]
    found = reduced([((slot, piece), value) for slot, piece, value in near], min)
    counted = reduced([((slot, piece), 1) for slot, piece, _ in near], lambda a, b: a + b)
    held = ring.copy_to_host()
    assert {key: int(held[key[0], key[1] % 32, 0]) for key in found} == found
    assert {key: held[key[0], key[1] % 32, 1:].tolist() for key in found} == {
        key: [2 * n_rows, 2 * n_rows] for key, n_rows in counted.items()
    }
    assert int((held[:, :, 2] > 0).sum()) == len(found)
    assert skipped == len(rows) - len(near)
    assert set(np.flatnonzero(touched.copy_to_host()).tolist()) == {piece % 32 for _, piece in found}
    assert latest.copy_to_host().tolist() == [
        max((piece for held_slot, piece in found if held_slot == slot), default=-99) for slot in range(3)
    ]


def test_rows_of_one_key_keep_their_order_of_arrival() -> None:
    packed, *_ = placed([(1, 5, 0), (0, 5, 0), (1, 5, 0), (0, 5, 0)], 10, 0, 0, -9, Launch(1, 2))
    assert [int(code) & 0b111 for code in packed.copy_to_host()] == [1, 3, 0, 2]


def test_a_slide_with_a_rest_is_two_slices() -> None:
    #  every 3, rest 2:  [-3 -2 | -1)  [0 1 | 2)     slices -2, -1, 0, 1
    rows = [(0, time, 0) for time in (-3, -2, -1, 0, 1, 2, 3, 4)]
    packed, _, n, _ = placed(rows, 3, 2, 0, -30, Launch(2, 2))
    slices = [(int(code) >> n.bit_length()) - 30 for code in packed.copy_to_host()]
    assert slices == [-2, -2, -1, 0, 0, 1, 2, 2]


def test_rows_in_a_hopping_gap_are_counted_and_left_out() -> None:
    packed, _, n, skipped = placed([(0, t, 0) for t in range(6)], 3, 2, 1, -30, Launch(1, 1))
    slices = [(int(code) >> n.bit_length()) - 30 for code in packed.copy_to_host()[:4]]
    assert (slices, skipped) == ([0, 0, 2, 2], 2)


def test_cleared_slices_are_neutral_in_all_slots_also_round_the_end() -> None:
    ring, touched = cuda.to_device(np.ones((2, 4, 3))), cuda.to_device(np.ones(4, np.int8))
    clear_slices[1, 2](ring, touched, cuda.to_device(total("float64").neutral()), 7, 2)
    assert ring.copy_to_host()[:, :, 0].tolist() == [[0, 1, 1, 0], [0, 1, 1, 0]]
    assert touched.copy_to_host().tolist() == [0, 1, 1, 0]


def test_states_that_were_put_aside_are_combined_with_those_in_the_ring() -> None:
    ring = cuda.to_device(np.array([[[5, 1, 1], [2**63 - 1, 0, 0]]]))
    touched, latest = cuda.to_device(np.zeros(2, np.int8)), cuda.to_device(np.array([4]))
    aside = np.array([[3, 2, 2], [8, 1, 1]])
    slots, slices = cuda.to_device(np.array([0, 0])), cuda.to_device(np.array([4, 7]))
    MINIMA.merge_states[1, 2](slots, slices, cuda.to_device(aside), ring, touched, latest)
    assert ring.copy_to_host().tolist() == [[[3, 3, 3], [8, 1, 1]]]
    assert (touched.copy_to_host().tolist(), latest.copy_to_host().tolist()) == ([1, 1], [7])
