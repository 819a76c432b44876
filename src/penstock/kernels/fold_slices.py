"""A user's fold from (slot, time, columns) straight into the cells: one loop per fold, without keys and with.

Rows are looked at in blocks, as in `sums`: when the times of a block lie in one slice, as they mostly do when
rows come nearly in order, no row needs its slice; without keys its part then stays in local numbers. Other
blocks go row by row. Arguments are those of `cells.place`, and:

    c0, …   float64[n]         the columns that lift reads, none of them null
    counts  int64[m]           rows per cell
    state   float64[m, width]  parts
    at      int64[1]           a row of the cell that is being combined
"""

from __future__ import annotations

from functools import cache
from typing import Any

from penstock.kernels.careful import Generated
from penstock.kernels.cells import (
    BASE,
    CLEAN,
    END,
    FIRST,
    FURTHEST,
    LEAST,
    MASK,
    slice_at,
    stretch,
    touch_late,
)
from penstock.kernels.folds import Functions, steps_of
from penstock.kernels.sums import BLOCK

_SPACE = {
    "BASE": BASE,
    "BLOCK": BLOCK,
    "CLEAN": CLEAN,
    "END": END,
    "FIRST": FIRST,
    "FURTHEST": FURTHEST,
    "LEAST": LEAST,
    "MASK": MASK,
    "slice_at": slice_at,
    "stretch": stretch,
    "touch_late": touch_late,
}

# As sums.sum_single. Views are counted from 0: Numba must not allow for negative places.
_SINGLE = """
def fold_single(times, COLUMNS, row, clock, inverse, offsets, rings, spare, late, counts, state, at):
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    n = times.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK, n)
        now = times[i:stop]
        least = greatest = now[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
        if least < reach:
            stop = i + 1
            now = times[i:stop]
            least = greatest = times[i]
            if least < open_from:
                clock[LEAST] = min(clock[LEAST], least)
                late[0] += 1
                late[late[0]] = i
                i = stop
                continue
            if least < reach:
                return i
        if greatest - reach >= FURTHEST:
            return i
        first = base_id + slice_at(least - base_time, period, inverse, offsets)
        last = base_id + slice_at(greatest - base_time, period, inverse, offsets)
        held = first >= rings[0, FIRST] and last < rings[0, END]
        if not held and not (stretch(rings, 0, first, spare) and stretch(rings, 0, last, spare)):
            return i
        clock[LEAST] = min(clock[LEAST], least)
        if first < rings[0, CLEAN]:
            touch_late(rings, 0, first, last + 1)
        base, mask = rings[0, BASE], rings[0, MASK]
        VIEWS
        if first == last:
            cell = np.uint64(base + (first & mask))
            at[0] = i
            LOADS
            for j in range(now.shape[0]):
                PARTS = combined(PARTS LIFTED)
            STORES
            counts[cell] += stop - i
        else:
            for j in range(now.shape[0]):
                id_ = base_id + slice_at(now[j] - base_time, period, inverse, offsets)
                cell = np.uint64(base + (id_ & mask))
                at[0] = i + j
                LOADS
                PARTS = combined(PARTS LIFTED)
                STORES
                counts[cell] += 1
        i = stop
    return n
"""

_KEYED = """
def fold_keyed(slots, times, COLUMNS, row, clock, inverse, offsets, rings, spare, late, counts, state, at):
    open_from, reach, base_time, base_id, period = clock[0], clock[1], clock[2], clock[3], clock[4]
    n, n_slots = times.shape[0], rings.shape[0]
    i = row
    while i < n:
        stop = min(i + BLOCK, n)
        now, whose = times[i:stop], slots[i:stop]
        least = greatest = now[0]
        most = whose[0]
        for j in range(now.shape[0]):
            least = min(least, now[j])
            greatest = max(greatest, now[j])
            most = max(most, whose[j])
        if most >= n_slots:
            return i
        clock[LEAST] = min(clock[LEAST], least)
        VIEWS
        id_ = base_id
        together = least >= reach and greatest - reach < FURTHEST
        if together:
            id_ = base_id + slice_at(least - base_time, period, inverse, offsets)
            together = id_ == base_id + slice_at(greatest - base_time, period, inverse, offsets)
        for j in range(now.shape[0]):
            if not together:
                time = now[j]
                if time < open_from:
                    late[0] += 1
                    late[late[0]] = i + j
                    continue
                if time < reach or time - reach >= FURTHEST:
                    return i + j
                id_ = base_id + slice_at(time - base_time, period, inverse, offsets)
            slot = np.uint64(whose[j])
            if id_ < rings[slot, FIRST] or id_ >= rings[slot, END]:
                if not stretch(rings, whose[j], id_, spare):
                    return i + j
            if id_ < rings[slot, CLEAN]:
                touch_late(rings, whose[j], id_, id_ + 1)
            cell = np.uint64(rings[slot, BASE] + (id_ & rings[slot, MASK]))
            at[0] = i + j
            LOADS
            PARTS = combined(PARTS LIFTED)
            STORES
            counts[cell] += 1
        i = stop
    return n
"""


@cache
def single_loop(of: Functions) -> Generated:
    """The loop over rows of slot 0 from `row` on; it returns the row it stopped at."""
    return _made(of, _SINGLE, "fold_single", ["Ir"])


@cache
def keyed_loop(of: Functions) -> Generated:
    """The loop over rows of all slots from `row` on; it returns the row it stopped at."""
    return _made(of, _KEYED, "fold_keyed", ["Ir", "Ir"])


def _made(of: Functions, template: str, name: str, before: list[str]) -> Generated:
    """The template written out for so many columns and floats."""
    columns, parts = range(len(of.names)), range(of.width)
    words = {
        "COLUMNS": ", ".join(f"c{c}" for c in columns),
        "VIEWS": "; ".join(f"v{c} = c{c}[i:stop]" for c in columns),
        "LOADS": "; ".join(f"p{p} = state[cell, {p}]" for p in parts),
        "LIFTED": f"*lifted({', '.join(f'float(v{c}[j])' for c in columns)})",
        "PARTS": " ".join(f"p{p}," for p in parts),
        "STORES": "; ".join(f"state[cell, {p}] = p{p}" for p in parts),
    }
    text = template
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    space: dict[str, Any] = {**_SPACE, **steps_of(of)}
    letters = " ".join([*before, *["Fr"] * len(columns), "i I f Ir I2 I I I F2 I"])
    return Generated(text, name, space, letters, cached=of.lasting)
