"""The bitonic network sorts, whatever the launch."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.kernels import NOWHERE, power_of_two, sort_packed

NUMBERS = st.lists(st.integers(0, 2**62) | st.integers(0, 3), min_size=1, max_size=40)
LAUNCHES = st.builds(Launch, blocks=st.integers(1, 3), threads=st.integers(1, 3))


@settings(deadline=None, max_examples=40)
@given(NUMBERS, LAUNCHES)
def test_numbers_come_out_least_first_and_the_padding_last(numbers: list[int], launch: Launch) -> None:
    n = power_of_two(len(numbers))
    packed = cuda.to_device(np.array(numbers + [NOWHERE] * (n - len(numbers)), dtype=np.int64))
    sort_packed(packed, n, launch)
    assert packed.copy_to_host().tolist() == sorted(numbers) + [NOWHERE] * (n - len(numbers))


def test_the_smallest_power_of_two_that_is_enough() -> None:
    assert [power_of_two(n) for n in (0, 1, 2, 3, 4, 5, 8, 9)] == [1, 1, 2, 4, 4, 8, 8, 16]
