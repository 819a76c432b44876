"""Sketches of slices against the rows of windows, and what a store promises: memory and snapshots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.stages.sketches import HllSketch, KllSketch, hash_coupons
from penstock.stages.window.sketches import Sketch, SketchTree, SliceSketches
from penstock.stages.window.store import ClosedWindows, Decision
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.row_windows import NaiveRowWindows
from tests.support.window_rounds import Round, Row, rounds, watermarks_before, windows

LAW = settings(deadline=None, max_examples=60)
LATENESS = st.integers(0, 12)
SLIDES = st.sampled_from([1, 2, 3, 4, 6, 12])  # so that all kinds can share slices
KINDS = st.lists(st.tuples(st.integers(1, 12), SLIDES), min_size=1, max_size=3)
SKETCHES = (Sketch(HllSketch, 0), Sketch(KllSketch, 1))
N_DIFFERENT = 5


def store_of(*kinds: tuple[int, int], lateness: int = 0) -> TimeStore:
    slicing = Slicing.of([TimeWindow(*kind) for kind in kinds])
    return TimeStore(slicing, lateness, (), sketches=SliceSketches(SKETCHES, slicing.longest))


def sketch_bytes(store: TimeStore) -> int:
    assert store._sketches is not None
    return store._sketches.nbytes


def input_rows(rows: list[Row]) -> InputRows:
    """Of each row the coupon of its number modulo five, and half its number, or null."""
    halves = [row.half for row in rows]
    return InputRows(
        np.array([row.slot for row in rows], np.int64),
        np.array([row.time for row in rows], np.int64),
        values=(
            Values(hash_coupons(pa.array([row.number % N_DIFFERENT for row in rows], pa.int64()))),
            Values(
                np.array([half or 0.0 for half in halves], np.float64),
                np.array([half is not None for half in halves], np.bool_),
            ),
        ),
    )


def read(left: ClosedWindows) -> list[tuple[Any, ...]]:
    """(kind, slot, start, end, different values, median) of each window."""
    distinct, ranks = left.sketches
    bounds = [window[:3] for window in windows(left)]
    return sorted(
        (kind, *window, one.estimate(), other.quantile(0.5))
        for kind, window, one, other in zip(left.kinds.tolist(), bounds, distinct, ranks, strict=True)
    )


def expect_rows(windows: Sequence[tuple[tuple[int, ...], list[int]]]) -> list[tuple[Any, ...]]:
    """The same from the numbers of each window's rows."""
    expected_rows = []
    for window, numbers in windows:
        halves = sorted(half for number in numbers if (half := Row(number, 0, 0).half) is not None)
        median = halves[math.ceil(len(halves) / 2) - 1] if halves else None
        expected_rows.append((*window, len({number % N_DIFFERENT for number in numbers}), median))
    return sorted(expected_rows)


def test_a_window_has_the_values_of_all_its_slices() -> None:
    store = store_of((10, 5))
    store.add(input_rows([Row(1, 0, 7), Row(2, 0, 3), Row(6, 0, 8)]), NEVER)
    assert read(store.close(10)) == [(0, 0, -5, 5, 1, 1.0), (0, 0, 0, 10, 2, 0.5)]
    assert read(store.close(ENDED)) == [(0, 0, 5, 15, 1, 0.5)]


def test_rows_late_for_some_windows_change_only_those_still_open() -> None:
    store = store_of((10, 5))
    store.add(input_rows([Row(1, 0, 7)]), NEVER)
    assert read(store.close(10)) == [(0, 0, 0, 10, 1, 0.5)]
    judged = store.add(input_rows([Row(2, 0, 8), Row(4, 0, 4)]), 10)
    assert judged is not None
    assert judged[0].tolist() == [[Decision.ADMITTED, Decision.LATE]]
    assert judged[1].tolist() == [[1, 2]]
    assert read(store.close(ENDED)) == [(0, 0, 5, 15, 2, 0.5)]


@pytest.mark.slow
@given(rounds(), KINDS, LATENESS, st.sets(st.integers(0, 6)))
@LAW
def test_the_store_agrees_with_the_rows_of_windows(
    rounds: list[Round], kinds: list[tuple[int, int]], lateness: int, early: set[int]
) -> None:
    store, naive = store_of(*kinds, lateness=lateness), NaiveRowWindows(kinds, lateness)
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        judged = store.add(input_rows(round_.rows), before)
        said = [naive.add(row.number, row.slot, row.time, before) for row in round_.rows]
        fates = [
            [
                Decision.ADMITTED if n_open else Decision.LATE if n_missed else Decision.GAP
                for n_open, n_missed in kinds_said
            ]
            for kinds_said in said
        ]
        misses = [[n_missed for _, n_missed in kinds_said] for kinds_said in said]
        if judged is None:
            assert not np.any(fates)
            assert not np.any(misses)
        else:
            assert (judged[0].T.tolist(), judged[1].T.tolist()) == (fates, misses)
        assert read(store.close(round_.watermark)) == expect_rows(naive.close(round_.watermark))
        if place in early:
            assert read(store.fire_early()) == expect_rows(naive.fire_early())


@pytest.mark.slow
@given(rounds(), KINDS, LATENESS, st.integers(0, 6), st.permutations([0, 1, 2]))
@LAW
def test_a_store_that_was_saved_and_loaded_goes_on_as_if_nothing_had_happened(
    rounds: list[Round], kinds: list[tuple[int, int]], lateness: int, cut: int, moved: list[int]
) -> None:
    whole, store = store_of(*kinds, lateness=lateness), store_of(*kinds, lateness=lateness)
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        if place == cut:
            saved, store = store.export(np.arange(3)), store_of(*kinds, lateness=lateness)
            store.load(saved, np.array(moved))
        names = moved if place >= cut else [0, 1, 2]
        whole.add(input_rows(round_.rows), before)
        store.add(input_rows([Row(row.number, names[row.slot], row.time) for row in round_.rows]), before)
        result = [
            (kind, names.index(slot), *rest) for kind, slot, *rest in read(store.close(round_.watermark))
        ]
        assert sorted(result) == read(whole.close(round_.watermark))


def many(n: int, time: int, *, start: int = 0) -> InputRows:
    """Rows of one slot and time, all different."""
    values = np.arange(start, start + n)
    lots = Values(hash_coupons(pa.array(values))), Values(values.astype(np.float64))
    return InputRows(np.zeros(n, np.int64), np.full(n, time), values=lots)


def test_memory_of_a_slice_is_bounded_whatever_number_of_rows_it_has() -> None:
    store = store_of((10, 10))
    for round_ in range(20):
        store.add(many(50_000, 5, start=50_000 * round_), NEVER)
        assert sketch_bytes(store) < 12_000
    distinct, ranks = store.close(ENDED).sketches
    assert abs(distinct[0].estimate() - 1_000_000) < 50_000
    assert abs(ranks[0].quantile(0.5) - 500_000) < 30_000


@pytest.mark.slow
def test_memory_is_given_back_when_windows_have_left() -> None:
    store = store_of((100, 10))
    for time in range(0, 5_000, 10):
        store.add(many(2_000, time, start=time), max(NEVER, time - 100))
        store.close(time)
        assert sketch_bytes(store) < 350_000
    store.close(ENDED)
    assert sketch_bytes(store) == 0
    assert not store.has_state(np.arange(2)).any()


class CountedMerges(HllSketch):
    """A sketch that counts how many it is merged from."""

    n_merged = 0

    @classmethod
    def merge(cls, parts: Any) -> Any:
        CountedMerges.n_merged += len(parts)
        return super().merge(parts)


def test_a_window_of_a_thousand_slices_is_merged_from_few_blocks() -> None:
    tree = SketchTree([Sketch(CountedMerges, 0)], longest=1_024)
    for id_ in range(3_000):
        tree.put(id_, [CountedMerges(np.array([id_ + (1 << 26)], np.uint32))])
    for start in range(1, 1_001):
        (result,) = tree.merge_range(start, start + 1_024)
        assert result.is_dense
    assert CountedMerges.n_merged < 3_000 * 2 + 1_000 * 2 * 10
    tree.drop_before(3_000)
    assert (tree.nbytes, tree.ids) == (0, [])
