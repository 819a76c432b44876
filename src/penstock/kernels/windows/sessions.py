"""Runs of rows into open sessions: the walk that opens, lengthens and joins sessions.

A session is [opens, closes) and its neighbours of the same slot are linked from the newest to the oldest,
because rows come near the newest: a batch costs as many steps as its rows reach back. Invariant: no two
sessions of a slot touch. Two touch when one begins at or before the end of the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.kernels.loops import loop

Ints = npt.NDArray[np.int64]

NO_SESSION = -1
"""The link of the oldest session, and the session of a run that found none."""


@loop("Ir Ir Ir i I I I I Ir I I I")
def assign_sessions(
    slots: Ints,
    starts: Ints,
    ends: Ints,
    must_touch: int,
    newest: Ints,
    older: Ints,
    opens: Ints,
    closes: Ints,
    free: Ints,
    homes: Ints,
    merged: Ints,
    targets: Ints,
) -> int:
    """Find or make the session of each run; return the number of sessions that were merged into others.

    slots       int64[n]  runs of one slot stand together, the latest first, and do not touch
    starts      int64[n]
    ends        int64[n]
    must_touch  1: a run that touches no session gets none
    newest      int64[s]  the newest session of each slot; updated. Slots are below s
    older       int64[m]  the link of each session; updated
    opens       int64[m]  updated, as is closes int64[m]
    free        int64[f]  sessions not in use, f at least n
    homes       int64[n]  written: the session of each run, or NONE
    merged, targets  int64[m]  written: merged[j] was merged into targets[j], and is in no list any more
    """
    n_taken = 0
    n_merged = 0
    newer = NO_SESSION
    here = NO_SESSION
    for i in range(slots.shape[0]):
        slot = slots[i]
        if i == 0 or slots[i - 1] != slot:
            newer = NO_SESSION
            here = newest[slot]
        while here != NO_SESSION and opens[here] > ends[i]:
            newer = here
            here = older[here]
        if here != NO_SESSION and closes[here] >= starts[i]:
            opens[here] = min(opens[here], starts[i])
            closes[here] = max(closes[here], ends[i])
            while older[here] != NO_SESSION and closes[older[here]] >= opens[here]:
                gone = older[here]
                opens[here] = min(opens[here], opens[gone])
                older[here] = older[gone]
                merged[n_merged] = gone
                targets[n_merged] = here
                n_merged += 1
        elif must_touch:
            homes[i] = NO_SESSION
            continue
        else:
            new = free[n_taken]
            n_taken += 1
            opens[new] = starts[i]
            closes[new] = ends[i]
            older[new] = here
            if newer == NO_SESSION:
                newest[slot] = new
            else:
                older[newer] = new
            here = new
        homes[i] = here
    return n_merged
