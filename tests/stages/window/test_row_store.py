"""Kept rows against a list of rows per window, and what a store promises: memory and snapshots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages.rows.input import ENDED, NEVER
from penstock.stages.window.store import ClosedWindows, Decision
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.row_windows import NaiveRowWindows
from tests.support.window_rounds import (
    SCHEMA,
    Round,
    Row,
    decisions_of,
    input_rows,
    rounds,
    rows_in,
    watermarks_before,
    windows,
)

LATENESS = st.integers(0, 12)
SIZES = st.tuples(st.integers(1, 12), st.integers(1, 12))


def share_slices(kinds: list[tuple[int, int]]) -> bool:
    return len(Slicing.groups([TimeWindow(size, every) for size, every in kinds])) == 1


KINDS = st.lists(SIZES, min_size=1, max_size=3).filter(share_slices)


def store_of(*kinds: tuple[int, int], lateness: int = 0) -> TimeStore:
    slicing = Slicing.of([TimeWindow(size, every) for size, every in kinds])
    return TimeStore(slicing, lateness, (), rows=SCHEMA)


def read(left: ClosedWindows) -> list[tuple[int, int, int, int, list[int]]]:
    """(kind, slot, start, end, numbers of rows) of each window."""
    bounds = [(slot, start, end) for slot, start, end, _, _ in windows(left)]
    return sorted(
        (kind, *item, numbers)
        for kind, item, numbers in zip(left.kinds.tolist(), bounds, rows_in(left), strict=True)
    )


def test_a_row_is_in_each_of_its_windows_and_rows_come_in_order() -> None:
    store = store_of((10, 5))
    store.add(input_rows([Row(0, 0, 7), Row(1, 0, 3), Row(2, 0, 7)]), NEVER)
    assert read(store.close(10)) == [(0, 0, -5, 5, [1]), (0, 0, 0, 10, [1, 0, 2])]
    assert read(store.close(ENDED)) == [(0, 0, 5, 15, [0, 2])]


def test_a_row_that_missed_a_window_is_only_in_those_still_open() -> None:
    store = store_of((10, 5))
    store.close(10)
    fates, misses = decisions_of(store, input_rows([Row(0, 0, 7), Row(1, 0, 3)]), 10)
    assert fates.tolist() == [[Decision.ADMITTED, Decision.LATE]]
    assert misses.tolist() == [[1, 2]]
    assert read(store.close(ENDED)) == [(0, 0, 5, 15, [0])]


@pytest.mark.slow
@given(rounds(), KINDS, LATENESS, st.sets(st.integers(0, 6)))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_store_agrees_with_a_list_of_rows_per_window(
    rounds: list[Round], kinds: list[tuple[int, int]], lateness: int, early: set[int]
) -> None:
    store, naive = store_of(*kinds, lateness=lateness), NaiveRowWindows(kinds, lateness)
    known = {row.number: row for round_ in rounds for row in round_.rows}
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        fates, misses = decisions_of(store, input_rows(round_.rows), before)
        said = [naive.add(row.number, row.slot, row.time, before) for row in round_.rows]
        expected = [
            [
                Decision.ADMITTED if n_open else Decision.LATE if n_missed else Decision.GAP
                for n_open, n_missed in kinds_said
            ]
            for kinds_said in said
        ]
        assert fates.T.tolist() == expected
        assert misses.T.tolist() == [[n_missed for _, n_missed in kinds_said] for kinds_said in said]
        pairs = [(store.close(round_.watermark), naive.close(round_.watermark))]
        if place in early:
            pairs.append((store.fire_early(), naive.fire_early()))
        for left, windows_left in pairs:
            in_order = [
                (*window, sorted(numbers, key=lambda number: (known[number].time, number)))
                for window, numbers in windows_left
            ]
            assert read(left) == sorted(in_order)


@pytest.mark.slow
@given(rounds(), KINDS, LATENESS, st.integers(0, 6), st.permutations([0, 1, 2]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_store_that_was_saved_and_loaded_goes_on_as_if_nothing_had_happened(
    rounds: list[Round], kinds: list[tuple[int, int]], lateness: int, cut: int, moved: list[int]
) -> None:
    whole, store = store_of(*kinds, lateness=lateness), store_of(*kinds, lateness=lateness)
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        if place == cut:
            saved, store = store.export(np.arange(3)), store_of(*kinds, lateness=lateness)
            store.load(saved, np.array(moved))
        names = moved if place >= cut else [0, 1, 2]
        renamed = [Row(row.number, names[row.slot], row.time) for row in round_.rows]
        whole.add(input_rows(round_.rows), before)
        store.add(input_rows(renamed), before)
        result = [
            (kind, names.index(slot), start, end, numbers)
            for kind, slot, start, end, numbers in read(store.close(round_.watermark))
        ]
        assert sorted(result) == read(whole.close(round_.watermark))


@pytest.mark.slow
def test_memory_follows_the_rows_that_open_windows_need() -> None:
    store = store_of((100, 10))
    most = 0
    for start in range(0, 20_000, 100):
        store.add(
            input_rows([Row(i, i % 50, start + i // 10) for i in range(1_000)]), max(NEVER, start - 100)
        )
        most = max(most, store.nbytes)
        store.close(start)
    assert most < 500_000
    store.close(ENDED)
    assert store.nbytes < most / 2
    assert not store.has_state(np.arange(50)).any()
