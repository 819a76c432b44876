"""Boxes against points, plain and compiled, against every point compared with every box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.join.boxes import (
    ALL_ONE,
    BLOCK,
    MOST_CELLS,
    ORDERED,
    OWN,
    WHOLE,
    chain_rows,
    find_cell,
    scan_boxes,
    search_chains,
)
from penstock.stages.join.conditions import order_floats
from tests.naive.joins import points_in_boxes

EDGE = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1])
CODES = st.one_of(EDGE, st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
AXES = st.tuples(
    st.integers(0, 1),
    st.sampled_from([ALL_ONE, OWN, WHOLE, WHOLE]),
    st.sampled_from([1.0, 3.0, 2e18]),
)
"""A code, what it stands for, and the width of a cell."""
LAW = settings(deadline=None, derandomize=True, max_examples=200)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    low, high = sorted((draw(CODES), draw(CODES)))
    return low, high


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[list[int], list[int]]]]:
    """Points of two codes and boxes, with what lies at the ends of int64 among them."""
    points = draw(st.lists(st.tuples(CODES, CODES).map(list), max_size=20))
    boxes = draw(st.lists(st.tuples(ranges(), ranges()), max_size=6))
    return points, [([a[0], b[0]], [a[1], b[1]]) for a, b in boxes]


def arrays(points: list[Any], boxes: list[Any]) -> tuple[Any, Any, Any]:
    codes = np.array(points, np.int64).reshape(-1, 2).T.copy()
    lows = np.array([low for low, _ in boxes], np.int64).reshape(-1, 2).T.copy()
    highs = np.array([high for _, high in boxes], np.int64).reshape(-1, 2).T.copy()
    return codes, lows, highs


@pytest.mark.parametrize("compiled", [False, True])
def test_a_scan_finds_the_points_in_every_box(compiled: bool) -> None:
    loop = scan_boxes.version(compiled)

    @LAW
    @given(cases())
    def law(case: Any) -> None:
        points, boxes = case
        codes, lows, highs = arrays(points, boxes)
        begins, ends = np.zeros(len(boxes), np.int64), np.full(len(boxes), len(points))
        box, row = np.empty(200, np.int64), np.empty(200, np.int64)
        n = loop(codes[0], codes[1], lows[0], highs[0], lows[1], highs[1], begins, ends, box, row)
        assert sorted(zip(box[:n].tolist(), row[:n].tolist(), strict=True)) == points_in_boxes(points, boxes)

    law()


@pytest.mark.parametrize("compiled", [False, True])
def test_chains_find_the_points_in_every_box_once(compiled: bool) -> None:
    """Few chains for many cells, so that cells of one box share some; rows are added in two steps."""
    chain, search = chain_rows.version(compiled), search_chains.version(compiled)

    @LAW
    @given(cases(), st.tuples(AXES, AXES), st.integers(1, 4), st.integers(0, 20))
    def law(case: Any, axes: Any, n_bits: int, oldest: int) -> None:
        points, boxes = case
        codes, lows, highs = arrays(points, boxes)
        for part in (codes, lows, highs):
            part[0] //= 2**60
        points = codes.T.tolist()
        boxes = list(zip(lows.T.tolist(), highs.T.tolist(), strict=True))
        heads, links = np.full(1 << n_bits, -1), np.empty((len(points), 4), np.int64)
        places, units, widths = map(np.array, zip(*axes, strict=True))
        for begin, end in ((0, min(oldest, len(points))), (oldest, len(points))):
            chain(codes, begin, end, places, units, widths, heads, links, 64 - n_bits)
        box, row = np.empty(200, np.int64), np.empty(200, np.int64)
        used = np.empty((2, MOST_CELLS * len(boxes)), np.int64)
        wide = np.empty(1 + len(boxes), np.int64)
        ends = (np.setdiff1d([1], places), lows, highs, places, units, widths)
        n = search(heads, links, 64 - n_bits, oldest, codes, *ends, *used, wide, box, row)
        left_out = wide[1 : 1 + wide[0]].tolist()
        assert not (set(box[:n].tolist()) & set(left_out))
        if all(unit == ALL_ONE for _, unit, _ in axes):
            assert not left_out
        hits = sorted(zip(box[:n].tolist(), row[:n].tolist(), strict=True))
        in_boxes = points_in_boxes(points, boxes)
        assert hits == [hit for hit in in_boxes if hit[1] >= oldest and hit[0] not in left_out]

    law()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_box_of_few_cells_is_not_left_out(compiled: bool) -> None:
    heads, links = np.full(16, -1), np.empty((10, 4), np.int64)
    codes, low, high = np.arange(10).reshape(1, -1), np.array([[2, -50]]), np.array([[7, 50]])
    axes = np.array([0, 0]), np.array([WHOLE, ALL_ONE]), np.array([2.0, 1.0])
    chain_rows.version(compiled)(codes, 0, 10, *axes, heads, links, 60)
    used, wide = np.empty((2, 2 * MOST_CELLS), np.int64), np.empty(3, np.int64)
    box, row = np.empty(10, np.int64), np.empty(10, np.int64)
    search = search_chains.version(compiled)
    n = search(heads, links, 60, 0, codes, np.empty(0, np.int64), low, high, *axes, *used, wide, box, row)
    assert (sorted(row[:n].tolist()), set(box[:n].tolist())) == ([2, 3, 4, 5, 6, 7], {0})
    assert wide[: 1 + wide[0]].tolist() == [1, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_cells_of_floats_are_in_their_order(compiled: bool) -> None:
    find = find_cell.version(compiled)
    bits = np.zeros(1, np.int64)

    @LAW
    @given(st.lists(st.floats(allow_nan=False), max_size=20), st.floats(1e-300, 1e300))
    def law(values: list[float], width: float) -> None:
        codes = order_floats(np.array(values, np.float64))
        with np.errstate(all="ignore"):
            cells = [find(code, ORDERED, width, bits, bits.view(np.float64)) for code in codes]
            wanted = np.floor(np.array(values, np.float64) / width).clip(-(2.0**62), 2.0**62)
        assert cells == wanted.astype(np.int64).tolist()

    law()


@pytest.mark.parametrize("compiled", [False, True])
def test_a_scan_respects_the_range_of_each_box_over_several_blocks(compiled: bool) -> None:
    n_rows = 3 * BLOCK + 5
    codes = np.arange(n_rows)
    begins, ends = np.array([0, BLOCK - 1, 2 * BLOCK]), np.array([3, BLOCK + 1, 2 * BLOCK])
    low, high = np.zeros(3, np.int64), np.full(3, n_rows)
    box, row = np.empty(10, np.int64), np.empty(10, np.int64)
    n = scan_boxes.version(compiled)(codes, codes, low, high, low, high, begins, ends, box, row)
    hits = sorted(zip(box[:n].tolist(), row[:n].tolist(), strict=True))
    assert hits == [(0, 0), (0, 1), (0, 2), (1, BLOCK - 1), (1, BLOCK)]


@pytest.mark.parametrize("compiled", [False, True])
def test_a_loop_says_how_many_hits_there_are_when_there_is_no_room_for_them(compiled: bool) -> None:
    codes, low, high = np.arange(10), np.array([2]), np.array([7])
    box, row = np.empty(3, np.int64), np.empty(3, np.int64)
    n = scan_boxes.version(compiled)(
        codes, codes, low, high, low, high, np.array([0]), np.array([10]), box, row
    )
    assert (n, row.tolist()) == (6, [2, 3, 4])
