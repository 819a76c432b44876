"""Count windows as panes of rows against lists of rows; and memory, snapshots and accounts of the store."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.folds import build_fold_rule
from penstock.stages.rows.input import ENDED, NEVER, InputRows
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.count_store import CountStore
from penstock.stages.window.store import ClosedWindows, Decision, Outcome
from penstock.timing.windows import CountWindow
from tests.naive.counts import NaiveCounts
from tests.support.window_rounds import (
    REGISTERS,
    SCHEMA,
    Round,
    Row,
    input_rows,
    registers_in,
    registers_of,
    rounds,
    rows_in,
    watermarks_before,
    windows,
)

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 8))
LATENESS = st.integers(0, 12)


def store_of(
    size: int, every: int, lateness: int = 0, *, partial: bool = False, compile_after: int = 10_000
) -> CountStore:
    return CountStore(
        [CountWindow(size, every)],
        lateness,
        REGISTERS,
        partial=partial,
        rows=SCHEMA,
        compile_after=compile_after,
    )


def rows(*times: int, slot: int = 0) -> list[Row]:
    return [Row(number, slot, time) for number, time in enumerate(times)]


def settled_in(left: ClosedWindows) -> dict[int, str]:
    assert left.settled is not None
    numbers, outcomes = left.settled
    said = {Outcome.PASSED: "passed", Outcome.UNFINISHED: "unfinished", Outcome.NO_WINDOW: "no window"}
    return {
        number: said[Outcome(outcome)]
        for number, outcome in zip(numbers.tolist(), outcomes.tolist(), strict=True)
    }


def test_rows_are_numbered_by_time_once_the_watermark_has_passed_them() -> None:
    store = store_of(2, 2)
    store.add(input_rows(rows(8, 3, 5, 9)), NEVER)
    assert windows(store.close(5)) == []  # only 3 is before the watermark
    left = store.close(9)
    assert windows(left) == [(0, 3, 5, 5, 0)]
    assert rows_in(left) == [[1, 2]]


def test_a_row_that_comes_after_its_time_was_numbered_is_late() -> None:
    store = store_of(2, 2, lateness=1)
    store.close(10)
    judged = store.add(input_rows(rows(8, 9)), 10)
    assert judged is not None
    fates, misses = judged
    assert fates.tolist() == [[Decision.LATE, Decision.ADMITTED]]
    assert misses.tolist() == [[1, 0]]


def test_rows_of_equal_time_and_no_order_are_numbered_by_their_columns() -> None:
    store = CountStore([CountWindow(1, 1)], 0, rows=SCHEMA)
    batch = pa.RecordBatch.from_pydict({"number": [2, 1, None], "half": [0.5, 0.5, 0.5]}, schema=SCHEMA)
    store.add(InputRows(np.zeros(3, np.int64), np.full(3, 7), rows=batch), NEVER)
    left = store.close(ENDED, ended=True)
    assert left.members is not None
    numbers = left.members.rows.column("number").to_pylist()
    assert left.index is not None
    assert [numbers[left.members.places[i]] for i in left.index.tolist()] == [None, 1, 2]


def test_a_window_that_is_not_full_leaves_only_when_partial_windows_are_asked_for() -> None:
    for partial, expected in ((False, []), (True, [(0, 1, 2, 2, 0)])):
        store = store_of(3, 3, partial=partial)
        store.add(input_rows(rows(1, 2)), NEVER)
        assert windows(store.close(ENDED, ended=True)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("small", [10_000, 0], ids=["plain", "compiled"])
@given(rounds(), SIZES, LATENESS, st.booleans(), st.sets(st.integers(0, 6)))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_store_agrees_with_lists_of_rows(
    small: int, rounds: list[Round], sizes: tuple[int, int], lateness: int, partial: bool, early: set[int]
) -> None:
    store = store_of(*sizes, lateness, partial=partial, compile_after=small)
    naive = NaiveCounts(*sizes, lateness, partial)
    known = {row.number: row for round_ in rounds for row in round_.rows}
    settled: dict[int, str] = {}
    n_settled = 0
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        judged = store.add(input_rows(round_.rows, tags=True), before)
        nothing = np.zeros((1, len(round_.rows)), np.int64)
        fates, misses = (nothing, nothing) if judged is None else judged
        late = [naive.add(row.number, row.slot, row.time, before) for row in round_.rows]
        assert fates.tolist() == [[Decision.LATE if is_late else Decision.ADMITTED for is_late in late]]
        assert misses.tolist() == [[int(is_late) for is_late in late]]
        ended = round_.watermark == ENDED
        left = store.close(round_.watermark, ended=ended)
        settled |= (now := settled_in(left))
        n_settled += len(now)
        pairs = [(left, naive.close(round_.watermark, ended))]
        if place in early and not ended:
            pairs.append((store.fire_early(), naive.fire_early()))
        for result, expected in pairs:
            assert sorted(zip(windows(result), rows_in(result), registers_in(result), strict=True)) == sorted(
                ((slot, start, end, end, index), numbers, registers_of([known[n] for n in numbers]))
                for slot, start, end, index, numbers in expected
            )
    assert settled == naive.outcomes()
    assert n_settled == len(settled)


def read_windows(left: ClosedWindows) -> list[Any]:
    return list(zip(windows(left), rows_in(left), registers_in(left), strict=True))


@pytest.mark.slow
@given(rounds(), st.lists(SIZES, min_size=2, max_size=3), LATENESS, st.booleans(), st.integers(0, 6))
@settings(deadline=None)
def test_kinds_that_share_their_rows_are_what_each_would_be_alone(
    rounds: list[Round], sizes: list[tuple[int, int]], lateness: int, partial: bool, cut: int
) -> None:
    def new() -> CountStore:
        kinds = [CountWindow(*size) for size in sizes]
        return CountStore(kinds, lateness, REGISTERS, partial=partial, rows=SCHEMA)

    together, alone = new(), [store_of(*size, lateness, partial=partial) for size in sizes]
    settled: dict[int, str] = {}
    settled_alone: dict[int, set[str]] = {}
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        if place == cut:
            saved, together = together.export(np.arange(3)), new()
            together.load(saved, np.arange(3))
        rows_ = input_rows(round_.rows, tags=True)
        judged, said = together.add(rows_, before), [one.add(rows_, before) for one in alone]
        assert (judged is None) == all(one is None for one in said)
        if judged is not None:
            assert [part.tolist() for part in judged] == [
                [one[part][0].tolist() for one in said if one is not None] for part in range(2)
            ]
        ended = round_.watermark == ENDED
        lefts = [one.close(round_.watermark, ended=ended) for one in alone]
        left = together.close(round_.watermark, ended=ended)
        now, now_alone = settled_in(left), [settled_in(one) for one in lefts]
        assert not now.keys() & settled.keys()
        settled |= now
        for outcomes in now_alone:
            for number, outcome in outcomes.items():
                settled_alone.setdefault(number, set()).add(outcome)
        passed = {number for number, outcomes in settled_alone.items() if "passed" in outcomes}
        assert {number for number, outcome in settled.items() if outcome == "passed"} == passed
        result = list(zip(left.kinds.tolist(), read_windows(left), strict=True))
        assert result == [(kind, one) for kind, part in enumerate(lefts) for one in read_windows(part)]
    best = ("passed", "unfinished", "no window")
    assert settled == {
        number: next(outcome for outcome in best if outcome in outcomes)
        for number, outcomes in settled_alone.items()
    }


def test_kinds_of_one_step_keep_their_waiting_rows_once() -> None:
    one, three = store_of(50, 50), CountStore([CountWindow(50, 50)] * 3, 0, REGISTERS, rows=SCHEMA)
    for store in (one, three):
        store.add(input_rows([Row(i, 0, i) for i in range(3_000)], tags=True), NEVER)
    assert three.nbytes < 1.1 * one.nbytes


@pytest.mark.slow
@given(rounds(), SIZES, LATENESS, st.booleans(), st.integers(0, 6), st.permutations([0, 1, 2]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_store_that_was_saved_and_loaded_goes_on_as_if_nothing_had_happened(
    rounds: list[Round], sizes: tuple[int, int], lateness: int, partial: bool, cut: int, moved: list[int]
) -> None:
    whole, store = (store_of(*sizes, lateness, partial=partial) for _ in range(2))
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        if place == cut:
            saved, store = store.export(np.arange(3)), store_of(*sizes, lateness, partial=partial)
            store.load(saved, np.array(moved))
        names = moved if place >= cut else [0, 1, 2]
        renamed = [Row(row.number, names[row.slot], row.time) for row in round_.rows]
        whole.add(input_rows(round_.rows, tags=True), before)
        store.add(input_rows(renamed, tags=True), before)
        ended = round_.watermark == ENDED
        expected, result = (
            whole.close(round_.watermark, ended=ended),
            store.close(round_.watermark, ended=ended),
        )
        known = sorted(zip(windows(expected), rows_in(expected), registers_in(expected), strict=True))
        back = [(names.index(slot), *rest) for slot, *rest in windows(result)]
        assert sorted(zip(back, rows_in(result), registers_in(result), strict=True)) == known
        assert settled_in(result) == settled_in(expected)


def test_a_users_fold_is_combined_from_panes() -> None:
    product = build_fold_rule("product", lambda a, b: a * b, (1.0,), alone=True)
    store = CountStore([CountWindow(2, 1)], 0, [WindowAccumulator(AccumulatorKind.FOLD, 1, product)])
    store.add(input_rows([Row(4, 0, 0), Row(8, 0, 1), Row(10, 0, 2)]), NEVER)  # values are halves
    assert store.close(ENDED).cells[0].tolist() == [[2.0 * 4.0], [4.0 * 5.0]]


@pytest.mark.slow
def test_memory_follows_the_windows_that_are_not_full() -> None:
    store = store_of(100, 10)
    most = 0
    for start in range(0, 20_000, 100):
        batch = [Row(i, i % 5, start + i // 10) for i in range(1_000)]
        store.add(input_rows(batch, tags=True), max(NEVER, start - 100))
        most = max(most, store.nbytes)
        store.close(start)
    assert most < 500_000
    store.close(ENDED, ended=True)
    assert store.nbytes < most / 2


def test_a_slot_holds_state_once_it_has_a_row_that_is_not_late() -> None:
    store = store_of(2, 2)
    store.close(5)
    store.add(input_rows([Row(0, 0, 4), Row(1, 1, 5)]), 5)
    assert store.has_state(np.arange(3)).tolist() == [False, True, False]
    store.close(ENDED - 1)
    assert store.has_state(np.arange(3)).tolist() == [False, True, False]
