"""The tables from words to slots, as they are written and compiled: both against a dict.

Run as written, an index past an array's end is an error; compiled it would be silent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.hash_table import assign_dense, assign_words, insert_slots, remove_slots
from penstock.kernels.loops import Loop
from tests.naive.slots import table_of

Ints = npt.NDArray[np.int64]
Pick = Callable[[Loop], Callable[..., Any]]

SHIFT = 64 - 4  # tables of sixteen entries: crowded, and soon past their end
SPREAD = 0x9E3779B97F4A7C15
BACK = pow(SPREAD, -1, 1 << 64)


@pytest.fixture(params=["as written", "compiled"])
def pick(request: pytest.FixtureRequest) -> Pick:
    if request.param == "compiled":
        return lambda loop: loop.compiled
    return _quiet


def _quiet(loop: Loop) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):  # the hash is meant to wrap
            return loop.plain(*arguments)

    return call


def at_home(entry: int, number: int) -> int:
    """A word whose search begins at `entry`; another one for each number. The hash, run backwards."""
    mixed = ((entry << SHIFT) + number) * BACK % (1 << 64)
    word = mixed ^ (mixed >> 32)
    return word - (1 << 64) if word >= 1 << 63 else word


class Far:
    """A far table of sixteen entries with room for twelve slots."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.pairs: Ints = np.full(32, -1, dtype=np.int64)
        self.slot_words: Ints = np.zeros(12, dtype=np.int64)
        self.stack: Ints = np.arange(11, -1, -1)
        self.n_free = 12

    def assign(self, words: list[int], row: int = 0, block: int = 4) -> tuple[int, list[int]]:
        slots = np.full(len(words), -7, dtype=np.int64)
        missed = np.zeros(block + 1, dtype=np.int64)
        values = np.array(words, dtype=np.int64)
        values.flags.writeable = False
        stopped, self.n_free = self.pick(assign_words)(
            values, row, self.pairs, SHIFT, self.slot_words, self.stack, self.n_free, missed, slots
        )
        return stopped, slots.tolist()

    def remove(self, slots: list[int]) -> None:
        gone = np.array(slots, dtype=np.int64)
        self.pick(remove_slots)(gone, self.slot_words, self.pairs, SHIFT)
        self.stack[self.n_free : self.n_free + len(slots)] = gone
        self.n_free += len(slots)


def test_words_with_one_home_stand_behind_each_other_also_past_the_end(pick: Pick) -> None:
    words = [at_home(15, 1), at_home(15, 2), at_home(15, 3), at_home(0, 1), at_home(15, 2)]
    table = Far(pick)
    assert table.assign(words) == (5, [0, 1, 2, 3, 1])
    assert table.pairs.reshape(16, 2)[[15, 0, 1, 2], 1].tolist() == [0, 1, 2, 3]


def test_a_word_taken_out_does_not_hide_the_ones_behind_it(pick: Pick) -> None:
    words = [at_home(15, 1), at_home(15, 2), at_home(0, 1), at_home(1, 1), at_home(4, 1)]
    table = Far(pick)
    table.assign(words)
    table.remove([0])
    assert table.pairs.reshape(16, 2)[[15, 0, 1, 2, 4], 1].tolist() == [1, 2, 3, -1, 4]
    assert table.assign(words[1:]) == (4, [1, 2, 3, 4])


def test_without_a_free_slot_it_stops_at_the_row_and_goes_on_from_there(pick: Pick) -> None:
    table = Far(pick)
    words = [5, 6, 5, 7, 8, 6, 5, 7]
    table.stack[:2], table.n_free = [1, 0], 2
    stopped, slots = table.assign(words)
    assert (stopped, slots[:3]) == (3, [0, 1, 0])
    table.stack[:2], table.n_free = [3, 2], 2
    assert table.assign(words, row=3) == (8, [-7, -7, -7, 2, 3, 1, 0, 2])


@pytest.mark.slow
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 2)), max_size=12), max_size=8),
    st.randoms(use_true_random=False),
    st.integers(1, 5),
)
@settings(deadline=None)
def test_a_far_table_finds_what_is_in_it_and_nothing_else(
    batches: list[list[tuple[int, int]]], random: Any, block: int
) -> None:
    written, compiled = Far(_quiet), Far(lambda loop: loop.compiled)
    known: dict[int, int] = {}
    for batch in batches:
        words = [at_home(*item) for item in batch]
        fresh = set(words) - set(known)
        if len(known) + len(fresh) > 12:
            continue
        answer = written.assign(words, block=block)
        assert answer == compiled.assign(words, block=block)
        for word, slot in zip(words, answer[1], strict=True):
            assert known.setdefault(word, slot) == slot
        assert sorted(set(known.values())) == sorted(known.values())
        gone = random.sample(sorted(known), random.randint(0, len(known)))
        for table in (written, compiled):
            table.remove([known[word] for word in gone])
        known = {word: slot for word, slot in known.items() if word not in gone}
        assert written.pairs.tolist() == compiled.pairs.tolist()
        held = written.pairs.reshape(16, 2)
        assert {int(word): int(slot) for word, slot in held if slot >= 0} == known


def test_slots_are_entered_into_an_empty_table_as_if_their_words_had_come(pick: Pick) -> None:
    words = [at_home(14, n) for n in range(5)] + [2**63 - 1, -(2**63), -1, 0]
    arrived, entered = Far(pick), Far(pick)
    arrived.assign(words)
    entered.slot_words[:] = arrived.slot_words
    pick(insert_slots)(np.arange(9), entered.slot_words, entered.pairs, SHIFT)
    assert entered.pairs.tolist() == arrived.pairs.tolist()


def near(pick: Pick, words: list[int], low: int, reach: int, n_free: int = 64) -> tuple[int, int, list[int]]:
    table: Ints = np.full(reach, -1, dtype=np.int64)
    slots: Ints = np.full(len(words), -7, dtype=np.int64)
    stack = np.arange(n_free - 1, -1, -1)
    stopped, left = pick(assign_dense)(
        np.array(words, dtype=np.int64), 0, low, table, np.zeros(64, np.int64), stack, n_free, slots
    )
    return stopped, left, slots[:stopped].tolist()


@pytest.mark.parametrize("low", [-(2**63), -8, 0, 2**63 - 16])
def test_a_near_table_takes_the_words_of_its_range(pick: Pick, low: int) -> None:
    words = [low + 15, low, low + 15, low + 1]
    assert near(pick, words, low, 16) == (4, 61, table_of(words))


@pytest.mark.parametrize("outside", [7, 26, -(2**63), 2**63 - 1])
def test_a_near_table_stops_at_a_word_out_of_range(pick: Pick, outside: int) -> None:
    assert near(pick, [10, 25, outside, 11], 10, 16) == (2, 62, [0, 1])


def test_a_near_table_stops_when_no_slot_is_free(pick: Pick) -> None:
    assert near(pick, [3, 4, 3, 5, 3], 0, 16, n_free=2) == (3, 0, [0, 1, 0])
