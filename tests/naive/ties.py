"""Rows that tie in one key, sorted by others: the twin of `kernels/ties.py`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def sort_ties(
    places: Sequence[int], tied: Sequence[bool], keys: Sequence[Sequence[int]]
) -> tuple[list[int], list[bool]]:
    """Return the rows with those of each tie by all keys, and which tie with the next in these too."""
    ties = [[places[0]]] if places else []
    for row, is_tied in zip(places[1:], tied, strict=True):
        if is_tied:
            ties[-1].append(row)
        else:
            ties.append([row])
    in_order = [sorted(tie, key=lambda row: [key[row] for key in keys]) for tie in ties]
    ends = [
        row_and_next[0] in tie and row_and_next[1] in tie and _are_equal(*row_and_next, keys)
        for tie in in_order
        for row_and_next in pairwise(tie)
    ]
    still_tied, at = [], 0
    for tie in in_order:
        still_tied += ends[at : at + len(tie) - 1]
        at += len(tie) - 1
        still_tied.append(False)
    return [row for tie in in_order for row in tie], still_tied[:-1]


def _are_equal(row: int, other: int, keys: Sequence[Sequence[int]]) -> bool:
    return all(key[row] == key[other] for key in keys)
