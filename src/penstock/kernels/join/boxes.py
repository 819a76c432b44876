"""Boxes against points: which stored rows lie in the ranges that new rows ask for (DP-Join, 4.4).

A stored row is a point of int64 codes, one for each condition of the join; a new row is a box, a range of
codes for each of them. So one loop serves bands of any type, equalities and bounds of time. The scan compares
every row of a range with every box, two codes at a time, in blocks that stay in the cache, and looks for the
rows only in blocks that have a hit, because hits are rare. The search asks an order of the rows by two codes,
and looks only at the rows between the ends of its ranges.

`python -m bench join` measures both.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]

BLOCK = 1024
"""Rows of a block: two codes of each are half of the smallest first cache."""


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


@loop("Ir Ir Ir Ir i I2 I2 I2 Ir Ir Ir Ir I I")
def search_boxes(
    order: Ints,
    groups: Ints,
    seconds: Ints,
    starts: Ints,
    shift: int,
    codes: Ints,
    lows: Ints,
    highs: Ints,
    first_groups: Ints,
    last_groups: Ints,
    second_low: Ints,
    second_high: Ints,
    boxes: Ints,
    rows: Ints,
) -> int:
    """Find the rows of each box by an index; return how many there are.

    order                    int64[n]     the rows by (group, second code)
    groups, seconds          int64[n]     of the rows in that order
    starts                   int64[s]     where each run of 2^shift groups begins, from the least group on;
                                          the last is n
    codes                    int64[k, n]  all codes of the rows, as they are stored
    lows, highs              int64[k, m]  the ranges of each box, both ends included
    first_groups             int64[m]     the range of groups in which the rows of a box lie
    last_groups              int64[m]
    second_low, second_high  int64[m]     the range of the second code
    boxes, rows              int64[c]     written: the box and the row of the first c hits
    """
    n_rows = order.shape[0]
    if n_rows == 0:
        return 0
    least = groups[0]
    greatest = groups[n_rows - 1]
    n_codes = codes.shape[0]
    n_hits = 0
    for box in range(lows.shape[1]):
        low = second_low[box]
        high = second_high[box]
        group = max(least, first_groups[box])
        last = min(greatest, last_groups[box])
        while group <= last:
            run = (group - least) >> shift
            at = starts[run]
            past = starts[run + 1]
            while at < past:
                middle = (at + past) >> 1
                if groups[middle] < group or (groups[middle] == group and seconds[middle] < low):
                    at = middle + 1
                else:
                    past = middle
            if at == n_rows:
                break
            if groups[at] > group:  # no such row in this group, and none between it and that of the next row
                group = groups[at]
                continue
            while at < n_rows and groups[at] == group and seconds[at] <= high:
                row = order[at]
                at += 1
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
            group += 1
    return n_hits
