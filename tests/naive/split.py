"""Lists of texts split at a separator, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def split_texts(texts: Sequence[str], separator: str) -> tuple[list[int], list[str]]:
    """Return the number of the first word of each text, with that of all words behind them, and the words."""
    firsts, words = [0], []
    for text in texts:
        words += text.split(separator)
        firsts.append(len(words))
    return firsts, words


def spread(firsts: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return of each element of lists which list it is of, and its index there."""
    sizes = [end - first for first, end in pairwise(firsts)]
    places = [(parent, index) for parent, size in enumerate(sizes) for index in range(size)]
    return [parent for parent, _ in places], [index for _, index in places]
