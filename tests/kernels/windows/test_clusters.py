"""Clusters: stretches of slices that lie near each other, against a walk through them one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.ring import find_clusters

APART = 5
stretches = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(-60, 60) | st.sampled_from([-(2**60), 2**60]), st.integers(1, 9)
    ),
    min_size=1,
    max_size=25,
)


def walk_clusters(given_: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(slot, first, past) of each cluster, found by a walk."""
    result: list[tuple[int, int, int]] = []
    for slot, first, length in sorted(given_):
        if result and result[-1][0] == slot and first - result[-1][2] <= APART:
            _, begun, past = result.pop()
            result.append((slot, begun, max(past, first + length)))
        else:
            result.append((slot, first, first + length))
    return result


@settings(deadline=None)
@given(stretches)
def test_stretches_are_one_cluster_while_no_gap_is_too_long(given_: list[tuple[int, int, int]]) -> None:
    slots, first, length = (np.array(column, np.int64) for column in zip(*given_, strict=True))
    *result, of = find_clusters(slots, first, first + length, APART)
    assert list(zip(*result, strict=True)) == walk_clusters(given_)
    assert (result[0][of] == slots).all()
    assert (result[1][of] <= first).all()
    assert (result[2][of] >= first + length).all()
