"""Boxes against points: which stored rows lie in the ranges that new rows ask for (DP-Join, 4.4).

A stored row is a point of int64 codes, one for each condition of the join; a new row is a box, a range of
codes for each of them. So one loop serves bands of any type, equalities and bounds of time. The scan compares
every row of a range with every box, two codes at a time, in blocks that stay in the cache, and looks for the
rows only in blocks that have a hit, because hits are rare. The search looks only at the rows of the cells of
a grid in which a box lies; the rows of a cell are a chain.

`python -m bench join` measures both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]

BLOCK = 1024
"""Rows of a block: two codes of each are half of the smallest first cache."""
MIX_FIRST, MIX_SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""Odd numbers whose products have well-mixed high bits: the place of a cell in a table."""


@loop("Ir Ir Ir Ir Ir Ir Ir Ir I I")
def scan_boxes(
    first: Ints,
    second: Ints,
    first_low: Ints,
    first_high: Ints,
    second_low: Ints,
    second_high: Ints,
    begins: Ints,
    ends: Ints,
    boxes: Ints,
    rows: Ints,
) -> int:
    """Find the rows of each box, among those from its begin to its end; return how many there are.

    first, second            int64[n]  two codes of the rows; may be the same array
    first_low, first_high    int64[m]  the range of the first code, both ends included, low <= high
    second_low, second_high  int64[m]
    begins, ends             int64[m]  the rows that a box is compared with, within 0 and n
    boxes, rows              int64[c]  written: the box and the row of the first c hits, by blocks of rows
    """
    n_boxes = begins.shape[0]
    if n_boxes == 0:
        return 0
    n_hits = 0
    for start in range(begins.min(), ends.max(), BLOCK):
        for box in range(n_boxes):
            begin = max(start, begins[box])
            end = min(start + BLOCK, ends[box])
            if begin >= end:
                continue
            # Why: slices begin at zero, which lets the compiler leave out the question whether an index is
            # negative, and vectorise. A range is one comparison of unsigned distances from its low end.
            a = first[begin:end]
            b = second[begin:end]
            a_low = first_low[box]
            b_low = second_low[box]
            a_span = np.uint64(first_high[box] - a_low)
            b_span = np.uint64(second_high[box] - b_low)
            hit = np.uint64(0)
            for i in range(a.shape[0]):
                hit |= np.uint64((np.uint64(a[i] - a_low) <= a_span) & (np.uint64(b[i] - b_low) <= b_span))
            if hit != 0:
                for i in range(a.shape[0]):
                    if (np.uint64(a[i] - a_low) <= a_span) & (np.uint64(b[i] - b_low) <= b_span):
                        if n_hits < boxes.shape[0]:
                            boxes[n_hits] = box
                            rows[n_hits] = begin + i
                        n_hits += 1
    return n_hits


@loop("Ir Ir i I I i")
def chain_rows(first: Ints, second: Ints, begin: int, heads: Ints, links: Ints, shift: int) -> None:
    """Put rows before the chains of their cells.

    first, second  int64[n]  the cell of each row
    begin          the slot of the first row
    heads          int64[h]  written: the newest row of each chain; -1 for none
    links          int64[c]  written: the row after each in its chain
    shift          64 less the bits of a place in `heads`
    """
    for row in range(first.shape[0]):
        head = (np.uint64(first[row]) * MIX_FIRST + np.uint64(second[row]) * MIX_SECOND) >> np.uint64(shift)
        links[begin + row] = heads[head]
        heads[head] = begin + row


@loop("Ir Ir i i I2 I2 I2 Ir Ir Ir Ir I I I I")
def search_chains(
    heads: Ints,
    links: Ints,
    shift: int,
    oldest: int,
    codes: Ints,
    lows: Ints,
    highs: Ints,
    first_low: Ints,
    first_high: Ints,
    second_low: Ints,
    second_high: Ints,
    open_boxes: Ints,
    open_rows: Ints,
    boxes: Ints,
    rows: Ints,
) -> int:
    """Find the rows of each box by the chains of its cells; return how many there are.

    All chains are followed a row at a time, side by side: a step has to wait for memory, and the steps of
    different chains wait together.

    heads, links, shift      as `chain_rows` left them
    oldest                   rows before this one are over
    codes                    int64[k, n]  all codes of the rows, by slot
    lows, highs              int64[k, m]  the ranges of each box, both ends included
    first_low, first_high    int64[m]     the cells in which the rows of a box lie
    second_low, second_high  int64[m]
    open_boxes, open_rows    int64[o]     used: one for each cell of each box
    boxes, rows              int64[c]     written: the box and the row of the first c hits
    """
    n_open = 0
    for box in range(first_low.shape[0]):
        begin = n_open
        first = first_low[box]
        while first <= first_high[box]:
            second = second_low[box]
            while second <= second_high[box]:
                head = np.int64(
                    (np.uint64(first) * MIX_FIRST + np.uint64(second) * MIX_SECOND) >> np.uint64(shift)
                )
                is_new = True  # two cells of a box may have one chain
                for place in range(begin, n_open):
                    if open_rows[place] == head:
                        is_new = False
                if is_new:
                    open_boxes[n_open] = box
                    open_rows[n_open] = head
                    n_open += 1
                second += 1
            first += 1
    for place in range(n_open):
        open_rows[place] = heads[open_rows[place]]
    n_codes = codes.shape[0]
    n_hits = 0
    while n_open > 0:
        n_left = 0
        for place in range(n_open):
            row = open_rows[place]
            if row < oldest:
                continue
            box = open_boxes[place]
            open_boxes[n_left] = box
            open_rows[n_left] = links[row]
            n_left += 1
            inside = True
            for code in range(n_codes):
                value = codes[code, row]
                if value < lows[code, box] or value > highs[code, box]:
                    inside = False
                    break
            if inside:
                if n_hits < boxes.shape[0]:
                    boxes[n_hits] = box
                    rows[n_hits] = row
                n_hits += 1
        n_open = n_left
    return n_hits
