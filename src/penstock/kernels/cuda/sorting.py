"""Sorting on the device: a bitonic network over int64, the paper's `sort_by_key` (V-A).

A row's (slot, slice) and its position in the batch are packed into one number, so that sorting numbers
sorts rows, and equal keys keep the order of arrival. One launch per step of the network, log2(n)^2 / 2 of
them, each reading and writing n numbers: more work than a radix sort, but no scratch memory, no atomics
and nothing that depends on the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from penstock.kernels.cuda.launch import Launch

NOWHERE = np.iinfo(np.int64).max
"""Sorts after every row: padding, and rows that belong to no open window."""


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n, and at least 1."""
    return 1 << max(0, n - 1).bit_length()


def sort_packed(packed: Any, n: int, launch: Launch, stream: Any = 0) -> None:
    """Sort packed[:n] in place, least first; n is a power of two."""
    assert n == power_of_two(n), "a bitonic network sorts powers of two; lift_rows pads with NOWHERE"
    grid, block = launch.over(n)
    span = 2
    while span <= n:
        gap = span // 2
        while gap > 0:
            exchange[grid, block, stream](packed, n, span, gap)
            gap //= 2
        span *= 2


def _exchange(packed: Any, n: Any, span: Any, gap: Any) -> None:
    """One step: order each pair `gap` apart, upwards and downwards in turn every `span` places."""
    for i in range(cuda.grid(1), n, cuda.gridsize(1)):
        other = i ^ gap
        if other > i:
            upwards = (i & span) == 0
            a = packed[i]
            b = packed[other]
            if (a > b) == upwards:
                packed[i] = b
                packed[other] = a


exchange = cuda.jit(_exchange)
