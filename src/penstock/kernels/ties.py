"""Short ties: rows that one key leaves in any order, put in order by the others.

Most rows that tie do so with a few others, which are put in order where they stand. That takes a tenth of the
time of sorting all rows that tie by several keys (`python -m bench join`, band).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@loop("I B I2 i")
def order_short_ties(places: Ints, tied: Mask, keys: Ints, most: int) -> int:
    """Sort the rows of every tie; return 0 if one is too long: then those before it are sorted.

    places  int64[n]       rows, those of a tie one after the other; sorted in place
    tied    bool[n - 1]    whether a row ties with the next; if all ties were sorted, what is equal still
    keys    int64[k, n]    of each row, the most significant first
    most    rows of a tie, at most
    """
    n_rows = places.shape[0]
    n_keys = keys.shape[0]
    begin = 0
    while begin < n_rows:
        end = begin + 1
        while end < n_rows and tied[end - 1]:
            end += 1
        if end - begin > most:
            return 0
        for at in range(begin + 1, end):
            row = places[at]
            to = at
            while to > begin:
                before = places[to - 1]
                is_less = False
                for key in range(n_keys):
                    if keys[key, row] != keys[key, before]:
                        is_less = keys[key, row] < keys[key, before]
                        break
                if not is_less:
                    break
                places[to] = before
                to -= 1
            places[to] = row
        begin = end
    for at in range(n_rows - 1):
        if tied[at]:
            for key in range(n_keys):
                if keys[key, places[at]] != keys[key, places[at + 1]]:
                    tied[at] = False
                    break
    return 1
