"""Keys to slots the obvious way: a dict of keys, checked row by row. Imports nothing of ours."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence


class KnownSlots:
    """Which slot each key has, as seen from outside; says when an answer breaks the rules."""

    def __init__(self) -> None:
        self.slots: dict[Hashable, int] = {}

    def see(self, keys: Sequence[tuple[object, ...]], slots: Sequence[int], capacity: int) -> None:
        """One batch was given these slots."""
        assert len(keys) == len(slots)
        for key, slot in zip(keys, slots, strict=True):
            assert 0 <= slot < capacity, f"slot {slot} is not below {capacity}"
            known = self.slots.get(same(key))
            if known is None:
                assert slot not in self.slots.values(), f"{key} got slot {slot}, which is taken"
                self.slots[same(key)] = slot
            else:
                assert slot == known, f"{key} has slot {known} and got {slot}"

    def forget(self, slots: Sequence[int]) -> None:
        """These slots were freed."""
        gone = set(slots)
        assert gone <= set(self.slots.values())
        self.slots = {key: slot for key, slot in self.slots.items() if slot not in gone}

    def keys_of(self, slots: Sequence[int]) -> list[Hashable]:
        """The keys of slots, each as `same` spells it."""
        back = {slot: key for key, slot in self.slots.items()}
        return [back[slot] for slot in slots]


def same(key: tuple[object, ...]) -> tuple[object, ...]:
    """Equal for keys that are one key: NaN equals NaN; -0.0 is equal to 0.0 already."""
    return tuple("NaN" if isinstance(part, float) and math.isnan(part) else part for part in key)


def table_of(words: Sequence[int]) -> list[int]:
    """The slots of words, handed out in order of first appearance from 0."""
    result: dict[int, int] = {}
    return [result.setdefault(word, len(result)) for word in words]
