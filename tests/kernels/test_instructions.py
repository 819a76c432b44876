"""Machine instructions against their plain twins."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop
from penstock.kernels.windows.sums import add_pair

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@loop("Ir Fr F")
def scatter(places: Numbers, values: Floats, pairs: Floats) -> None:
    """Every value into the pair at its place."""
    for j in range(places.shape[0]):
        add_pair(pairs, np.uint64(places[j]), values[j])


def test_pairs_hold_how_many_came_and_their_sum_at_both_speeds() -> None:
    places = np.array([2, 0, 2, 2, 1], np.int64)
    values = np.array([1.5, -0.0, 2.5, np.inf, np.nan])
    for speed in (scatter.plain, scatter.compiled):
        pairs = np.zeros(9)[1:]  # at no address that is a multiple of 16
        speed(places, values, pairs)
        np.testing.assert_array_equal(pairs, [1, 0.0, 1, np.nan, 3, np.inf, 0, 0])


def test_a_loop_has_another_name_when_an_instruction_of_it_changes() -> None:
    other = loop("Ir Fr F")(scatter._source)
    assert other._digest() == scatter._digest()
    emit = add_pair._emit
    try:
        add_pair._emit = lambda builder, data, arguments: None
        changed = other._digest()
    finally:
        add_pair._emit = emit
    assert changed != scatter._digest()
