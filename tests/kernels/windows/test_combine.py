"""Sweep and tree against folding each window slice by slice, for every rule, at both speeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows import accumulate as rules
from penstock.kernels.windows.accumulate import Rule, build_rule_loop
from penstock.kernels.windows.combine import (
    query_windows,
    sweep_numbers,
    sweep_windows,
    update_trees,
)
from penstock.kernels.windows.slice_loop import BASE, CLEAN, END, FIRST, LATE_FROM, LATE_TO, MASK, MAX_ID

fixed = settings(deadline=None, derandomize=True, max_examples=15)
every_rule = pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.name)
speeds = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])


class Case:
    """Rings with random cells, and windows over them; slices of a ring wrap around its block."""

    def __init__(self, rule: Rule, seed: int, n_rings: int, size: int, every: int) -> None:
        self.rule, self.size, self.every = rule, size, every
        self.rng = np.random.default_rng(seed)
        self.rings = np.zeros((n_rings, 8), np.int64)
        capacities = 2 ** self.rng.integers(2, 6, n_rings)
        self.rings[:, BASE] = np.cumsum(capacities) - capacities
        self.rings[:, MASK] = capacities - 1
        self.rings[:, FIRST] = self.rng.integers(-100, 100, n_rings)
        self.rings[:, END] = self.rings[:, FIRST] + self.rng.integers(1, capacities + 1)
        self.rings[:, CLEAN], self.rings[:, LATE_FROM] = self.rings[:, FIRST], MAX_ID
        self.rings[:, LATE_TO] = -MAX_ID
        self.cells = rule.neutral_cells(int(capacities.sum()))
        self.nodes = self.random(len(self.cells))  # a tree must not trust what stood there before
        for ring in range(n_rings):
            for id_ in range(self.rings[ring, FIRST], self.rings[ring, END]):
                self.change(ring, id_)

    def random(self, n: int) -> Any:
        cells = self.rng.integers(0, 5, (n, self.rule.width)).astype(self.rule.dtype)
        if self.rule is rules.MOMENTS:
            cells[:, 0] += 1
        return cells

    def change(self, ring: int, id_: int) -> None:
        self.cells[self.rings[ring, BASE] + (id_ & self.rings[ring, MASK])] = self.random(1)[0]

    def windows(self) -> tuple[Any, Any, Any]:
        """(ends, lo, hi) of windows of `size` slices every `every`, cut to what each ring holds."""
        ends, spans = [], []
        for ring in self.rings:
            start = (ring[FIRST] - self.size) // self.every * self.every + self.every
            while start < ring[END]:
                lo, hi = max(start, ring[FIRST]), min(start + self.size, ring[END])
                spans += [(lo, hi)] if lo < hi else []
                start += self.every
            ends.append(len(spans))
        pairs = np.array(spans, np.int64).reshape(-1, 2)
        return np.array(ends, np.int64), np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    def fold_windows(self) -> list[list[float]]:
        """Every window, slice by slice from the left."""
        ends, lo, hi = self.windows()
        result = []
        for window in range(len(lo)):
            ring = self.rings[np.searchsorted(ends, window, side="right")]
            out = self.rule.neutral_cells(1)
            for id_ in range(lo[window], hi[window]):
                self.rule.merge.plain(out, 0, self.cells, int(ring[BASE] + (id_ & ring[MASK])))
            result.append(out[0].tolist())
        return result

    def tree(self, compiled: bool) -> Any:
        """Update and query; then note what is clean, as the window stage does."""
        ends, lo, hi = self.windows()
        levels = self.size.bit_length() - 1
        past = self.rings[:, END].copy()
        build_rule_loop(update_trees, self.rule).version(compiled)(
            self.cells, self.nodes, self.rings, past, levels
        )
        self.rings[:, CLEAN], self.rings[:, LATE_FROM], self.rings[:, LATE_TO] = past, MAX_ID, -MAX_ID
        out = self.rule.neutral_cells(len(lo))
        arguments = (self.rings, ends, lo, hi, levels, out)
        build_rule_loop(query_windows, self.rule).version(compiled)(
            self.cells, self.nodes, self.rule.neutral_cells(1), *arguments
        )
        return out


cases = st.tuples(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 20), st.integers(1, 6))


def agree(actual: Any, wanted: list[list[float]]) -> None:
    assert actual.tolist() == [pytest.approx(item, rel=1e-9) for item in wanted]


@every_rule
@speeds
@fixed
@given(cases)
def test_sweeping_gives_what_folding_gives(
    rule: Rule, compiled: bool, shape: tuple[int, int, int, int]
) -> None:
    case = Case(rule, *shape)
    ends, lo, hi = case.windows()
    out = rule.neutral_cells(len(lo))
    scratch = rule.neutral_cells(case.size + 1)
    build_rule_loop(sweep_windows, rule).version(compiled)(
        case.cells, rule.neutral_cells(1), case.rings, ends, lo, hi, scratch, out
    )
    agree(out, case.fold_windows())


@pytest.mark.parametrize(
    "rule", [rule for rule in rules.RULES if rule.merge_numbers], ids=lambda rule: rule.name
)
@speeds
@fixed
@given(cases)
def test_sweeping_cells_of_one_number_gives_what_folding_gives(
    rule: Rule, compiled: bool, shape: tuple[int, int, int, int]
) -> None:
    case = Case(rule, *shape)
    ends, lo, hi = case.windows()
    out, scratch = rule.neutral_cells(len(lo)), np.empty(case.size, rule.dtype)
    arguments = (case.rings, ends, lo, hi, rule.neutral[0], scratch, out.reshape(-1))
    build_rule_loop(sweep_numbers, rule).version(compiled)(case.cells.reshape(-1), *arguments)
    agree(out, case.fold_windows())


@every_rule
@speeds
@fixed
@given(cases)
def test_the_tree_gives_what_folding_gives(
    rule: Rule, compiled: bool, shape: tuple[int, int, int, int]
) -> None:
    case = Case(rule, *shape)
    agree(case.tree(compiled), case.fold_windows())


@every_rule
@speeds
@fixed
@given(cases)
def test_the_tree_stays_right_when_leaves_change_that_windows_have_used(
    rule: Rule, compiled: bool, shape: tuple[int, int, int, int]
) -> None:
    case = Case(rule, *shape)
    case.tree(compiled)
    for number, ring in enumerate(case.rings):
        late = case.rng.integers(ring[FIRST], ring[END], 2)
        for id_ in late.tolist():
            case.change(number, id_)
        ring[LATE_FROM], ring[LATE_TO] = late.min(), late.max() + 1
    agree(case.tree(compiled), case.fold_windows())


def test_the_sixth_window_of_the_papers_example_wraps_around_the_leaves() -> None:
    # Fig. 6: windows of 4 panes every 1 over 8 leaves; panes 8 and 9 stand in leaves 0 and 1, and the sixth
    # window is panes 5 to 8, range(5, 0).
    cells, nodes = rules.COUNT.neutral_cells(8), rules.COUNT.neutral_cells(8)
    cells[:, 0] = [256, 512, 4, 8, 16, 32, 64, 128]  # pane i counts 2^i; panes 0 and 1 are gone
    rings = np.array([[0, 7, 2, 10, 2, MAX_ID, -MAX_ID, 0]], np.int64)
    build_rule_loop(update_trees, rules.COUNT).plain(cells, nodes, rings, np.array([10]), 2)
    out = rules.COUNT.neutral_cells(1)
    ends, lo, hi = np.array([1]), np.array([5]), np.array([9])
    build_rule_loop(query_windows, rules.COUNT).plain(
        cells, nodes, rules.COUNT.neutral_cells(1), rings, ends, lo, hi, 2, out
    )
    assert out.tolist() == [[32 + 64 + 128 + 256]]


def test_a_node_and_its_parent_stand_where_the_paper_puts_them() -> None:
    # Section V-B: with m leaves the parent of node i is (i >> 1) | m, and the root is node 2m - 2.
    cells, nodes = rules.COUNT.neutral_cells(8), rules.COUNT.neutral_cells(8)
    cells[:, 0] = [1, 2, 4, 8, 16, 32, 64, 128]
    rings = np.array([[0, 7, 0, 8, 0, MAX_ID, -MAX_ID, 0]], np.int64)
    build_rule_loop(update_trees, rules.COUNT).plain(cells, nodes, rings, np.array([8]), 3)
    flat = [*cells[:, 0].tolist(), *nodes[:7, 0].tolist()]
    for i in range(14):
        parent = (i >> 1) | 8
        assert flat[parent] == flat[i] + flat[i ^ 1]
    assert flat[14] == 255
