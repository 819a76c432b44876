"""Short ties against the same in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.ties import order_short_ties
from penstock.stages import policy
from penstock.stages.rows.order import FEW, SHORT, sort_indices
from tests.naive.ties import sort_ties

ROWS = st.lists(st.tuples(st.booleans(), st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=30)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_rows_of_each_tie_are_sorted_by_the_other_keys(compiled: bool) -> None:
    loop = order_short_ties.version(compiled)

    @settings(deadline=None)
    @given(ROWS, st.randoms(use_true_random=False))
    def law(rows: Any, chance: Any) -> None:
        ties, *keys = zip(*rows, strict=True)
        places = list(range(len(rows)))
        chance.shuffle(places)
        at, tied = np.array(places), np.array(ties[1:], np.bool_)
        assert loop(at, tied, np.array(keys), len(rows)) == 1
        assert (at.tolist(), tied.tolist()) == sort_ties(places, ties[1:], keys)

    law()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_tie_that_is_too_long_is_left_to_others(compiled: bool) -> None:
    places, keys = np.arange(4), np.array([[3, 2, 1, 0]])
    tied = np.array([False, True, True])
    assert order_short_ties.version(compiled)(places, tied, keys, 2) == 0
    assert (places.tolist(), tied.tolist()) == ([0, 1, 2, 3], [False, True, True])


@pytest.mark.parametrize("size_of_tie", [3, SHORT, SHORT + 1])
def test_rows_are_sorted_alike_with_and_without_the_loop(size_of_tie: int) -> None:
    chance = np.random.default_rng(1)
    n_rows = 8 * FEW
    wide = chance.integers(-(2**62), 2**62, n_rows)  # so that keys do not fit into one number
    keys = [np.arange(n_rows) // size_of_tie, chance.integers(0, 3, n_rows), wide]
    shuffled = chance.permutation(n_rows)
    keys = [key[shuffled] for key in keys]
    run = policy.JitPolicy(compile_after=0)
    assert sort_indices(keys, None, run).tolist() == sort_indices(keys).tolist()
