"""A few new rows of a join of bands: encoded, searched for and stored in one call (DP-Join, 4.4.3).

What a call of a loop costs does not depend on the rows, so for a few rows one call is several times quicker
than one for each part of the work (`python -m bench join`, latency). The parts are those of `boxes.py`.
"""

from __future__ import annotations

from penstock.kernels.join.boxes import (
    LEAST,
    ORDERED,
    Floats,
    Ints,
    Mask,
    bound_codes,
    chain_rows,
    hold_floats,
    search_chains,
)
from penstock.kernels.loops import loop

NOT_DONE = -1
N_BUCKETS = 256
"""As in `stages/keys/slots.py`."""
NO_ORDER = LEAST
"""As in `stages/rows/order.py`: a place that has ended."""


@loop("I2 F2 I2 Ir Ir Fr Fr Ir i i i I2 I I2 i i I I2 i I I Fr I2 i i i I I2 i I I Fr Ir I2 I2 I I I I I B")
def join_few(
    codes: Ints,
    floats: Floats,
    attributes: Ints,
    units: Ints,
    widths: Ints,
    reaches: Floats,
    exact_widths: Floats,
    strict: Ints,
    before: int,
    after: int,
    first: int,
    own_codes: Ints,
    own_tops: Ints,
    own_attributes: Ints,
    begin: int,
    own_is_indexed: int,
    own_heads: Ints,
    own_links: Ints,
    own_shift: int,
    own_axes: Ints,
    own_units: Ints,
    own_widths: Floats,
    stored: Ints,
    oldest: int,
    end: int,
    is_indexed: int,
    heads: Ints,
    links: Ints,
    shift: int,
    axes: Ints,
    axis_units: Ints,
    axis_widths: Floats,
    more_codes: Ints,
    lows: Ints,
    highs: Ints,
    open_boxes: Ints,
    open_rows: Ints,
    wide: Ints,
    boxes: Ints,
    rows: Ints,
    held: Mask,
) -> int:
    """Find the pairs of new rows with stored ones, and store them; return how many pairs there are.

    Return `NOT_DONE`, and store nothing, if a value is NaN or a box lies in too many cells. If there may be
    more pairs than there is room for, store nothing either, and return less: minus how many there may be.

    codes, floats, units, widths, reaches, lows, highs  as `bound_codes` has them, the clock too
    attributes            int64[a, n]     what else is stored of the new rows: buckets and numbers, which are
                                          written; times; places
    exact_widths, strict  float64[k], int64[k]  of floats, as `hold_floats` has them
    before, after         how far before and behind the own clock others are met
    first                 the number of the first row
    own_codes, own_tops   written from `begin` on: those of the own side, by slot
    own_attributes        int64[s, a]     likewise; those of a slot are side by side
    own_is_indexed        1 if the rows have to be chained
    own_heads, ...        as `chain_rows` has them
    stored                int64[k, s]     the codes of the other side, of which slots from `oldest` to `end`
                                          may be live
    is_indexed            1 if they are found by their chains, else all are looked at
    heads, ...            as `search_chains` has them
    boxes, rows           int64[c]        written: the new row and the slot of each pair
    held                  bool[c]         used
    """
    n_codes = codes.shape[0]
    n_rows = codes.shape[1]
    if bound_codes(codes, floats, units, widths, reaches, lows, highs) == 0:
        return NOT_DONE
    for row in range(n_rows):
        lows[0, row] = codes[0, row] - before
        highs[0, row] = codes[0, row] + after
    if is_indexed == 1:
        n_hits = search_chains(
            heads,
            links,
            shift,
            oldest,
            stored,
            more_codes,
            lows,
            highs,
            axes,
            axis_units,
            axis_widths,
            open_boxes,
            open_rows,
            wide,
            boxes,
            rows,
        )
        if wide[0] > 0:
            return NOT_DONE
    else:
        n_hits = 0
        for box in range(n_rows):
            for slot in range(oldest, end):
                inside = True
                for place in range(n_codes):
                    code = stored[place, slot]
                    inside = inside and lows[place, box] <= code <= highs[place, box]
                if inside:
                    if n_hits < boxes.shape[0]:
                        boxes[n_hits] = box
                        rows[n_hits] = slot
                    n_hits += 1
    if n_hits > boxes.shape[0]:
        return -int(n_hits)
    for hit in range(n_hits):
        held[hit] = True
    for place in range(1, n_codes):
        if units[place] == ORDERED:
            width = exact_widths[place]
            hold_floats(codes, stored, place, width, strict[place], boxes[:n_hits], rows[:n_hits], held)
    n_held = 0
    for hit in range(n_hits):
        if held[hit]:
            boxes[n_held] = boxes[hit]
            rows[n_held] = rows[hit]
            n_held += 1
    for row in range(n_rows):
        slot = begin + row
        for place in range(n_codes):
            own_codes[place, slot] = codes[place, row]
        attributes[0, row] = (first + row) % N_BUCKETS
        attributes[1, row] = first + row
        for place in range(own_attributes.shape[1]):
            own_attributes[slot, place] = attributes[place, row] if place < attributes.shape[0] else NO_ORDER
        top = codes[0, row]
        if slot > 0 and own_tops[slot - 1] > top:
            top = own_tops[slot - 1]
        own_tops[slot] = top
    if own_is_indexed == 1:
        end_row = begin + n_rows
        chain_rows(
            own_codes, begin, end_row, own_axes, own_units, own_widths, own_heads, own_links, own_shift
        )
    return n_held


join_brief = join_few.holding_gil()
"""For so few rows that another thread would get the interpreter, and keep it, while they are joined."""
