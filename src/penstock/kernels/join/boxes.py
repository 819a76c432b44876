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
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

BLOCK = 1024
"""Rows of a block: two codes of each are half of the smallest first cache."""
MIX_FIRST, MIX_SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
"""Odd numbers whose products have well-mixed high bits: the place of a cell in a table."""
ALL_ONE, OWN, WHOLE, ORDERED = 0, 1, 2, 3
"""What a code stands for: nothing, a cell of its own, a whole number, or a float (`order_floats`)."""
FARTHEST = 2.0**62
LEAST, GREATEST = -(2**63), 2**63 - 1
MOST_CELLS = 16
"""A box that lies in more cells is not looked for."""


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


@loop("I2 F2 Ir Ir Fr I2 I2")
def bound_codes(
    codes: Ints, floats: Floats, units: Ints, widths: Ints, reaches: Floats, lows: Ints, highs: Ints
) -> int:
    """Turn the values of rows into codes, and find the range of every code; return 0 if a value is NaN.

    Whole numbers are their own codes. Floats get codes in their order, and ranges that are a little wider
    than they reach, because sums are rounded.

    codes    int64[k, n]    after the first, the clock, values; those of floats become codes
    floats   float64[k, n]  the same memory
    units    int64[k]       `OWN`, `WHOLE` or `ORDERED`, as `find_cell` says
    widths   int64[k]       how far ranges of whole numbers reach; not below 0
    reaches  float64[k]     how far those of floats do
    lows     int64[k, n]    written, but for those of the clock: the ranges, both ends included
    highs    int64[k, n]
    """
    bits = np.zeros(1, np.int64)
    ends = bits.view(np.float64)
    for place in range(1, codes.shape[0]):
        unit = units[place]
        width = widths[place]
        reach = reaches[place]
        for row in range(codes.shape[1]):
            if unit != ORDERED:
                code = codes[place, row]
                lows[place, row] = code - width if code >= LEAST + width else LEAST
                highs[place, row] = code + width if code <= GREATEST - width else GREATEST
                continue
            value = floats[place, row]
            if np.isnan(value):
                return 0
            ends[0] = value + 0.0  # -0.0 is 0.0
            codes[place, row] = bits[0] if bits[0] >= 0 else bits[0] ^ GREATEST
            ends[0] = value - reach
            if np.isnan(ends[0]):  # infinity less infinity
                ends[0] = -np.inf
            # Why two: there is a code between those of 0.0 and of what is next below.
            lows[place, row] = (bits[0] if bits[0] >= 0 else bits[0] ^ GREATEST) - 2
            ends[0] = value + reach
            if np.isnan(ends[0]):
                ends[0] = np.inf
            highs[place, row] = (bits[0] if bits[0] >= 0 else bits[0] ^ GREATEST) + 2
    return 1


@loop()
def find_cell(code: int, unit: int, width: float, bits: Ints, floats: Floats) -> int:
    """Return the cell of a code on an axis; of a greater code it is not less.

    unit          what a code stands for: `ALL_ONE`, `OWN`, `WHOLE`, `ORDERED`
    width         of a cell
    bits, floats  int64[1], float64[1]  one place in memory, to read the bits of a float
    """
    if unit == ALL_ONE:
        return 0
    if unit == OWN:
        return code
    if unit == WHOLE:
        value = np.float64(code)
    elif code >= 0:
        bits[0] = code
        value = floats[0]
    else:
        bits[0] = ~code
        value = -floats[0]
    # Why cut off: so that no cell is beyond int64.
    return int(min(max(np.floor(value / width), -FARTHEST), FARTHEST))


@loop("I2 i i I I Fr I I2 i")
def chain_rows(
    codes: Ints,
    begin: int,
    end: int,
    axes: Ints,
    units: Ints,
    widths: Floats,
    heads: Ints,
    links: Ints,
    shift: int,
) -> None:
    """Put rows before the chains of their cells.

    codes       int64[k, n]  all codes of the rows, by slot
    begin, end  the slots of the rows
    axes        int64[2]     the codes that a cell is found by
    units       int64[2]     what they stand for, as `find_cell` says
    widths      float64[2]   of cells
    heads       int64[h]     written: the newest row of each chain; -1 for none
    links       int64[n, 4]  written: the row after each in its chain, its codes on the axes, and its first
                             code, the clock: what a search looks at is in one place
    shift       64 less the bits of a place in `heads`
    """
    bits = np.zeros(1, np.int64)
    floats = bits.view(np.float64)
    for row in range(begin, end):
        first = codes[axes[0], row]
        second = codes[axes[1], row]
        first_cell = find_cell(first, units[0], widths[0], bits, floats)
        head = place_cell(first_cell, find_cell(second, units[1], widths[1], bits, floats), shift)
        links[row, 0] = heads[head]
        links[row, 1] = first
        links[row, 2] = second
        links[row, 3] = codes[0, row]
        heads[head] = row


@loop()
def place_cell(first: int, second: int, shift: int) -> int:
    """Return the place of a cell in a table."""
    mixed = np.uint64(np.int64(first)) * MIX_FIRST + np.uint64(np.int64(second)) * MIX_SECOND
    return int(mixed >> np.uint64(shift))


@loop("I2 I2 i f i Ir Ir B")
def hold_floats(
    codes: Ints,
    opposite: Ints,
    place: int,
    width: float,
    strict: int,
    at: Ints,
    opposite_at: Ints,
    held: Mask,
) -> None:
    """Find out of which pairs two floats are close, as Python subtracts them.

    codes, opposite  int64[k, n]  of the rows of either side
    place            which code is that of the floats
    width, strict    how close; if it is 1, less than that
    at, opposite_at  int64[p]     the rows of each pair
    held             bool[p]      what is not so becomes False
    """
    bits = np.zeros(2, np.int64)
    floats = bits.view(np.float64)
    for pair in range(at.shape[0]):
        code = codes[place, at[pair]]
        bits[0] = code if code >= 0 else code ^ GREATEST
        code = opposite[place, opposite_at[pair]]
        bits[1] = code if code >= 0 else code ^ GREATEST
        apart = abs(floats[0] - floats[1])
        if not (apart < width or (apart == width and strict == 0)):
            held[pair] = False


@loop("Ir I2 i i I2 Ir I2 I2 I I Fr I I I I I")
def search_chains(
    heads: Ints,
    links: Ints,
    shift: int,
    oldest: int,
    codes: Ints,
    more_codes: Ints,
    lows: Ints,
    highs: Ints,
    axes: Ints,
    units: Ints,
    widths: Floats,
    open_boxes: Ints,
    open_rows: Ints,
    wide: Ints,
    boxes: Ints,
    rows: Ints,
) -> int:
    """Find the rows of each box by the chains of its cells; return how many there are.

    All chains are followed a row at a time, side by side: a step has to wait for memory, and the steps of
    different chains wait together.

    heads, links, shift    as `chain_rows` left them
    oldest                 rows before this one are over
    codes                  int64[k, n]  all codes of the rows, by slot
    more_codes             int64[j]     which of them are neither the clock nor on an axis
    lows, highs            int64[k, m]  the ranges of each box, both ends included
    axes, units, widths    as for `chain_rows`
    open_boxes, open_rows  int64[o]     used: at least `MOST_CELLS` for each box
    wide                   int64[1 + m] written: how many boxes lie in more cells and are left out, and which
    boxes, rows            int64[c]     written: the box and the row of the first c hits
    """
    bits = np.zeros(1, np.int64)
    floats = bits.view(np.float64)
    n_open = 0
    wide[0] = 0
    for box in range(lows.shape[1]):
        first_low = find_cell(lows[axes[0], box], units[0], widths[0], bits, floats)
        first_high = find_cell(highs[axes[0], box], units[0], widths[0], bits, floats)
        second_low = find_cell(lows[axes[1], box], units[1], widths[1], bits, floats)
        second_high = find_cell(highs[axes[1], box], units[1], widths[1], bits, floats)
        # As floats, because the distance of two cells may be beyond int64.
        n_cells = (1.0 + first_high - first_low) * (1.0 + second_high - second_low)
        if n_cells > MOST_CELLS:
            wide[0] += 1
            wide[wide[0]] = box
            continue
        begin = n_open
        # Why counted: what is after the last cell of all is not a number.
        for a in range(first_high - first_low + 1):
            for b in range(second_high - second_low + 1):
                head = place_cell(first_low + a, second_low + b, shift)
                is_new = True  # two cells of a box may have one chain
                for place in range(begin, n_open):
                    if open_rows[place] == head:
                        is_new = False
                if is_new:
                    open_boxes[n_open] = box
                    open_rows[n_open] = head
                    n_open += 1
    for place in range(n_open):
        open_rows[place] = heads[open_rows[place]]
    n_hits = 0
    first = axes[0]
    second = axes[1]
    while n_open > 0:
        n_left = 0
        for place in range(n_open):
            row = open_rows[place]
            if row < oldest:
                continue
            box = open_boxes[place]
            open_boxes[n_left] = box
            open_rows[n_left] = links[row, 0]
            n_left += 1
            inside = (
                lows[first, box] <= links[row, 1] <= highs[first, box]
                and lows[second, box] <= links[row, 2] <= highs[second, box]
                and lows[0, box] <= links[row, 3] <= highs[0, box]
            )
            for place_of_code in range(more_codes.shape[0]):
                code = more_codes[place_of_code]
                inside = inside and lows[code, box] <= codes[code, row] <= highs[code, box]
            if inside:
                if n_hits < boxes.shape[0]:
                    boxes[n_hits] = box
                    rows[n_hits] = row
                n_hits += 1
        n_open = n_left
    return n_hits
