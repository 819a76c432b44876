"""Boxes against points, plain and compiled, against every point compared with every box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.join.boxes import BLOCK, chain_rows, scan_boxes, search_chains
from tests.naive.joins import points_in_boxes

EDGE = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1])
CODES = st.one_of(EDGE, st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))
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
    @given(cases(), st.integers(1, 4), st.integers(59, 62), st.integers(1, 4), st.integers(0, 20))
    def law(case: Any, width: int, scale: int, n_bits: int, oldest: int) -> None:
        points, boxes = case
        codes, lows, highs = arrays(points, boxes)
        for part in (codes, lows, highs):
            part[0] //= 2**60
        points = codes.T.tolist()
        boxes = list(zip(lows.T.tolist(), highs.T.tolist(), strict=True))
        heads, links = np.full(1 << n_bits, -1), np.empty(len(points), np.int64)
        cells = codes[0] // width, codes[1] >> scale
        for begin, end in ((0, oldest), (oldest, len(points))):
            new = [of_axis[begin:end].copy() for of_axis in cells]
            chain(*new, begin, heads, links, 64 - n_bits)
        ends = [part for axis in (0, 1) for part in (lows[axis], highs[axis])]
        ends = [ends[0] // width, ends[1] // width, ends[2] >> scale, ends[3] >> scale]
        n_cells = int(((ends[1] - ends[0] + 1) * (ends[3] - ends[2] + 1)).sum())
        box, row = np.empty(200, np.int64), np.empty(200, np.int64)
        used = np.empty(n_cells, np.int64), np.empty(n_cells, np.int64)
        n = search(heads, links, 64 - n_bits, oldest, codes, lows, highs, *ends, *used, box, row)
        found = sorted(zip(box[:n].tolist(), row[:n].tolist(), strict=True))
        assert found == [hit for hit in points_in_boxes(points, boxes) if hit[1] >= oldest]

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
