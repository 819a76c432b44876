"""Rings: growth, shrinking, gaps that are not filled, and memory that is used again."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.accumulate import COUNT, MAX
from penstock.kernels.windows.arena import Arena
from penstock.kernels.windows.ring import Rings
from penstock.kernels.windows.slice_loop import BASE, END, FIRST, MASK, MIN_RING_CELLS

fixed = settings(deadline=None, derandomize=True, max_examples=100)
LONGEST = 3


def run_plain(loop: Any, *arguments: Any, work: int = 0) -> Any:
    return loop(*arguments)


class CountRings:
    """Rings with a count per slice, and a dict that says what they should hold."""

    def __init__(self) -> None:
        self.arena = Arena([COUNT, MAX])
        self.rings = Rings(self.arena, LONGEST)
        self.rings.reserve(4)
        self.wanted: dict[tuple[int, int], int] = {}

    def add(self, pairs: list[tuple[int, int]]) -> None:
        slots, ids = (np.array([pair[part] for pair in pairs], np.int64) for part in range(2))
        cells = self.rings.place(slots, ids)
        np.add.at(self.arena.cells[0][:, 0], cells, 1)
        for pair in pairs:
            self.wanted[pair] = self.wanted.get(pair, 0) + 1

    def forget(self, needed_from: int) -> Any:
        emptied = self.rings.forget(*self.rings.active(), needed_from, run_plain)
        self.wanted = {(slot, id_): n for (slot, id_), n in self.wanted.items() if id_ >= needed_from}
        return emptied

    def held_counts(self) -> dict[tuple[int, int], int]:
        result = {}
        for slot, ring in zip(*self.rings.active(), strict=True):
            for id_ in range(ring[FIRST], ring[END]):
                count = int(self.arena.cells[0][ring[BASE] + (id_ & ring[MASK]), 0])
                if count:
                    result[int(slot), id_] = count
        return result

    def check(self) -> None:
        assert self.held_counts() == self.wanted
        assert int(self.arena.cells[0].sum()) == sum(self.wanted.values()), (
            "cells that no ring holds are neutral"
        )
        assert (self.arena.cells[1] == MAX.neutral[0]).all()
        blocks = sorted((int(ring[BASE]), int(ring[MASK]) + 1) for ring in self.rings.active()[1])
        assert all(a + n <= b for (a, n), (b, _) in pairwise(blocks)), "blocks overlap"

    def capacities(self) -> list[int]:
        return [int(ring[MASK]) + 1 for ring in self.rings.active()[1]]


places = (
    st.integers(-40, 40) | st.integers(-5000, 5000) | st.sampled_from([-(2**55), 2**55, 10**7, 10**7 + 100])
)
steps = st.lists(
    st.one_of(
        st.lists(st.tuples(st.integers(0, 3), places), min_size=1, max_size=8),
        st.integers(-6000, 6000),
        st.just(2**60),
    ),
    max_size=8,
)


@pytest.mark.slow
@fixed
@given(steps)
def test_rings_hold_what_was_put_in_and_not_forgotten(script: list[Any]) -> None:
    state = CountRings()
    for step in script:
        if isinstance(step, list):
            state.add(step)
        else:
            before = {slot for slot, _ in state.wanted}
            emptied = state.forget(step)
            assert sorted(emptied.tolist()) == sorted(before - {slot for slot, _ in state.wanted})
        state.check()


def test_a_ring_doubles_or_takes_what_is_needed_and_shrinks_once_it_stayed_below_a_quarter() -> None:
    state = CountRings()
    state.add([(0, 0)])
    assert state.capacities() == [MIN_RING_CELLS]
    state.add([(0, 4)])
    assert state.capacities() == [2 * MIN_RING_CELLS]
    state.add([(0, 63)])
    assert state.capacities() == [64]
    state.forget(47)  # 17 of 64 are left: more than a quarter
    assert state.capacities() == [64]
    state.forget(49)  # 15 of 64 are left, but it held 17 until now
    assert state.capacities() == [64]
    state.forget(50)
    assert state.capacities() == [32]
    state.check()


def test_a_long_gap_is_not_filled() -> None:
    state = CountRings()
    state.add([(0, 0), (0, 10**9), (0, 2 * 10**9)])
    assert state.arena.n_cells < 1000
    assert len(state.capacities()) == 3
    state.check()
    state.forget(5)
    assert len(state.capacities()) == 2
    state.check()


def test_rings_of_a_slot_that_come_near_become_one() -> None:
    state = CountRings()
    state.add([(0, 0), (0, 100), (0, 250)])
    assert len(state.capacities()) == 3
    state.add([(0, 50)])
    assert len(state.capacities()) == 2
    state.add([(0, 165), (0, 210)])
    assert len(state.capacities()) == 1
    state.check()


def test_memory_of_slots_that_have_gone_is_used_again() -> None:
    state = CountRings()
    for start in range(0, 10**6, 10**4):
        state.add([(slot, start + id_) for slot in range(4) for id_ in (0, 20, 40)])
        state.forget(start + 5000)
    assert state.arena.n_cells <= 2048


def test_memory_is_given_back_when_most_of_it_has_become_free() -> None:
    state = CountRings()
    state.rings.reserve(5000)
    state.add([(slot, id_) for slot in range(5000) for id_ in (0, 9)])
    state.add([(7, 20), (9, 21), (9, 10**6)])
    most = state.arena.nbytes
    state.forget(15)
    assert state.arena.nbytes < most / 100
    state.check()
    state.add([(7, 22), (8, 3), (9, 10**6 + 1)])
    state.check()


def scatter(n_slots: int) -> CountRings:
    """Rings of so many slots, each with slices far apart that come in twice and leave by and by."""
    state = CountRings()
    state.rings.reserve(n_slots)
    for start in (0, 40, 1000):
        state.add([(slot, start + far) for slot in range(n_slots) for far in (0, 500, 7 * slot)])
    state.forget(300)
    return state


def test_many_slots_may_have_slices_far_apart() -> None:
    state = scatter(300)
    assert len(state.capacities()) > 600
    state.check()
    state.forget(1200)
    state.check()


def test_slices_far_apart_are_placed_for_all_slots_at_once() -> None:
    def calls_for(n_slots: int) -> int:
        calls = 0

        def count_call(frame: Any, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call" and frame.f_globals["__name__"] == "penstock.kernels.windows.ring"

        sys.setprofile(count_call)
        try:
            scatter(n_slots)
        finally:
            sys.setprofile(None)
        return calls

    assert calls_for(400) < 2 * calls_for(40)
