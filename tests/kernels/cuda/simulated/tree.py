"""The tree kernels of figures 9, 10 and 11 against lists of lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cuda

from penstock.kernels.cuda.device import Launch
from penstock.kernels.cuda.kernels import RuleKernels, load_leaves, rule_kernels
from penstock.kernels.windows.accumulate import COUNT, INT64_MIN, MAX
from tests.naive import pane_tree

SUMS, MAXIMA = rule_kernels(COUNT), rule_kernels(MAX)
LAUNCHES = st.builds(Launch, blocks=st.integers(1, 2), threads=st.integers(1, 2))
LEAVES = st.integers(0, 4).flatmap(
    lambda h: st.lists(st.lists(st.integers(-9, 9), min_size=2**h, max_size=2**h), min_size=1, max_size=3)
)


def build_trees(
    leaves: Sequence[Sequence[int]], launch: Launch, kernels: RuleKernels = SUMS
) -> tuple[Any, Any]:
    """Trees over the leaves of each slot, and the slots, least last."""
    n = len(leaves[0])
    cells = np.zeros((len(leaves), 2 * n - 1, 1), np.int64)
    cells[:, :n, 0] = leaves
    trees = cuda.to_device(cells.reshape(-1, 1))
    which = cuda.to_device(np.arange(len(leaves))[::-1].copy())
    below, above, n_above = 0, n, n // 2
    while n_above:
        kernels.update_level[launch.over(len(leaves) * n_above)](
            trees, 2 * n - 1, which, below, above, n_above, 0, n_above
        )
        below, above, n_above = above, above + n_above, n_above // 2
    return trees, which


def values(trees: Any, n_slots: int) -> list[list[int]]:
    held: npt.NDArray[Any] = trees.copy_to_host()
    return [[int(node) for node in tree] for tree in held.reshape(n_slots, -1)]


def plus(a: int, b: int) -> int:
    return a + b


def flat(levels: list[list[int]]) -> list[int]:
    return [node for level in levels for node in level]


@settings(deadline=None, max_examples=25)
@given(LEAVES, LAUNCHES)
def test_init_fills_the_levels_one_after_the_other(leaves: list[list[int]], launch: Launch) -> None:
    trees, _ = build_trees(leaves, launch)
    assert values(trees, len(leaves)) == [flat(pane_tree.levels(slot, plus)) for slot in leaves]


@settings(deadline=None, max_examples=25)
@given(LEAVES, LAUNCHES, st.data())
def test_updating_changed_leaves_gives_the_tree_built_anew(
    leaves: list[list[int]], launch: Launch, data: st.DataObject
) -> None:
    trees, which = build_trees(leaves, launch)
    n = len(leaves[0])
    start, count = data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, n))
    held = trees.copy_to_host().reshape(len(leaves), -1)
    for i in range(start, start + count):
        held[:, i % n] += 100 + i
    trees = cuda.to_device(held.reshape(-1, 1))
    below, above, level = 0, n, 1
    while n >> level:
        n_above = n >> level
        n_update = min(n_above, ((start + count - 1) >> level) - (start >> level) + 1)
        SUMS.update_level[launch.over(n_update)](
            trees, 2 * n - 1, which, below, above, n_above, start >> level, n_update
        )
        below, above, level = above, above + n_above, level + 1
    changed = [[int(leaf) for leaf in slot[:n]] for slot in held]
    assert values(trees, len(leaves)) == [flat(pane_tree.levels(slot, plus)) for slot in changed]


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 13), st.integers(1, 3), LAUNCHES, st.sampled_from(["sum", "max"]), st.data())
def test_windows_over_any_number_of_leaves_fold_their_slices(
    m: int, n_slots: int, launch: Launch, name: str, data: st.DataObject
) -> None:
    kernels, combine, zero = (SUMS, plus, 0) if name == "sum" else (MAXIMA, max, INT64_MIN)
    width = 1 << (m - 1).bit_length()
    slots = [data.draw(st.lists(st.integers(-9, 9), min_size=m, max_size=m)) for _ in range(n_slots)]
    trees, which = build_trees([[*slot, *[zero] * (width - m)] for slot in slots], launch, kernels)
    n, step = data.draw(st.integers(1, m)), data.draw(st.integers(1, 4))
    offset, n_windows = data.draw(st.integers(0, 2 * m)), data.draw(st.integers(1, 5))
    results = cuda.to_device(np.full((n_slots * n_windows, 1), zero))
    lo = offset + step * np.arange(n_windows)
    kernels.compute[launch.over(n_slots * n_windows)](
        trees, 2 * width - 1, which, width, m, cuda.to_device(lo), cuda.to_device(lo + n), results
    )
    expected = [pane_tree.windows(slot, offset, n, step, n_windows, combine) for slot in slots[::-1]]
    assert results.copy_to_host()[:, 0].tolist() == [w for slot in expected for w in slot]


@pytest.mark.parametrize("m", range(1, 10))
def test_every_window_length_from_every_leaf_takes_each_of_its_slices_once(m: int) -> None:
    width = 1 << (m - 1).bit_length()
    leaves = [4**i for i in range(m)]  # a slice taken twice, or one too many, shows
    trees, which = build_trees([[*leaves, *[0] * (width - m)]], Launch(1, 1))
    for n in range(1, m + 1):
        results, lo = cuda.to_device(np.zeros((m, 1), np.int64)), np.arange(m)
        SUMS.compute[1, 1](
            trees, 2 * width - 1, which, width, m, cuda.to_device(lo), cuda.to_device(lo + n), results
        )
        expected = pane_tree.windows(leaves, 0, n, 1, m, plus)
        assert results.copy_to_host()[:, 0].tolist() == expected


def test_the_sixth_window_of_the_papers_figure_goes_round_the_end() -> None:
    #  leaf     0  1  2  3  4  5  6  7
    #  slice    8  1  2  3  4  5  6  7     window 5 is slices 5, 6, 7, 8: range(5, 0)
    trees, which = build_trees([[256, 2, 4, 8, 16, 32, 64, 128]], Launch(1, 1))
    results, lo = cuda.to_device(np.zeros((1, 1), np.int64)), np.array([5])
    SUMS.compute[1, 1](trees, 15, which, 8, 8, cuda.to_device(lo), cuda.to_device(lo + 4), results)
    assert results.copy_to_host().tolist() == [[32 + 64 + 128 + 256]]


def test_leaves_come_from_the_ring_and_slices_outside_it_are_neutral() -> None:
    ring = np.arange(1.0, 9.0).reshape(8, 1)  # slices 6, 7, 4, 5 at places 2, 3, 0, 1 of each slot
    trees, which = cuda.to_device(np.full((2 * 8, 1), -1.0)), cuda.to_device(np.array([1]))
    held = (cuda.to_device(ring), 4, 5, 6, cuda.to_device(np.zeros(1)))
    load_leaves[1, 2](*held, trees, 8, which, 5, 4, 4)
    #  slice 4 and 7 are outside 5 .. 6; slice i goes to leaf i mod 5
    assert trees.copy_to_host().reshape(2, 8).tolist() == [[-1] * 8, [6, 7, 0, -1, 0, -1, -1, -1]]
