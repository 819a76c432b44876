"""Sessions as arrays against sessions row by row, and what a store promises: memory, snapshots, order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.folds import build_fold_rule
from penstock.stages.rows.input import ENDED, NEVER
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.session_store import SessionStore
from penstock.stages.window.store import Decision
from penstock.timing.windows import SessionWindow
from tests.naive.sessions import NaiveSessions
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

GAPS = st.integers(1, 8)
LATENESS = st.integers(0, 12)


def store_of(gap: int, lateness: int = 0, compile_after: int = 10_000) -> SessionStore:
    return SessionStore(SessionWindow(gap), lateness, REGISTERS, rows=SCHEMA, compile_after=compile_after)


def rows(*times: int, slot: int = 0) -> list[Row]:
    return [Row(number, slot, time) for number, time in enumerate(times)]


def test_rows_exactly_a_gap_apart_are_one_session() -> None:
    store = store_of(5)
    store.add(input_rows(rows(3, 8, 14)), NEVER)
    left = store.close(ENDED)
    assert sorted(windows(left)) == [(0, 3, 13, 12, -1), (0, 14, 19, 18, -1)]
    assert sorted(rows_in(left)) == [[0, 1], [2]]


def test_a_session_leaves_when_the_watermark_reaches_its_end_and_the_lateness() -> None:
    store = store_of(5, lateness=2)
    store.add(input_rows(rows(3)), NEVER)
    assert windows(store.close(9)) == []
    assert windows(store.close(10)) == [(0, 3, 8, 7, -1)]


def test_a_row_behind_bridges_two_open_sessions() -> None:
    #  [0    5)  [7    12)     both open; at watermark 18 rows at 3 and -8 are behind
    store = store_of(5, lateness=10)
    store.add(input_rows([Row(0, 0, 0), Row(1, 0, 7)]), NEVER)
    fates, misses = store.add(input_rows([Row(2, 0, 3), Row(3, 0, -8)]), 18)
    assert fates.tolist() == [[Decision.ADMITTED, Decision.LATE]]
    assert misses.tolist() == [[0, 1]]
    assert windows(store.close(ENDED)) == [(0, 0, 12, 11, -1)]


def test_rows_behind_reach_a_session_over_each_other() -> None:
    store = store_of(5)
    store.add(input_rows(rows(20)), NEVER)
    #  behind at 24: 11 touches 15 (which touches the open session at 20), 4 touches none of them
    fates, _ = store.add(input_rows([Row(1, 0, 11), Row(2, 0, 15), Row(3, 0, 4)]), 24)
    assert fates.tolist() == [[Decision.ADMITTED, Decision.ADMITTED, Decision.LATE]]


@pytest.mark.slow
@pytest.mark.parametrize("small", [10_000, 0], ids=["plain", "compiled"])
@given(rounds(), GAPS, LATENESS, st.sets(st.integers(0, 6)))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_the_store_agrees_with_sessions_row_by_row(
    small: int, rounds: list[Round], gap: int, lateness: int, early: set[int]
) -> None:
    store, naive = store_of(gap, lateness, small), NaiveSessions(gap, lateness)
    known = {row.number: row for round_ in rounds for row in round_.rows}
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        fates, misses = store.add(input_rows(round_.rows), before)
        late = naive.add([(row.number, row.slot, row.time) for row in round_.rows], before)
        assert fates.tolist() == [[Decision.LATE if is_late else Decision.ADMITTED for is_late in late]]
        assert misses.tolist() == [[int(is_late) for is_late in late]]
        pairs = [(store.close(round_.watermark), naive.close(round_.watermark))]
        if place in early:
            pairs.append((store.fire_early(), naive.fire_early()))
        for left, expected in pairs:
            result = zip(windows(left), rows_in(left), registers_in(left), strict=True)
            assert sorted(result) == sorted(
                (
                    (slot, start, end, end - 1, -1),
                    sorted(numbers, key=lambda number: (known[number].time, number)),
                    registers_of([known[number] for number in numbers]),
                )
                for slot, start, end, numbers in expected
            )
        held = store.has_state(np.arange(4)).tolist()
        assert held == [bool(naive.open.get(slot)) for slot in range(4)]


@pytest.mark.slow
@given(rounds(), GAPS, LATENESS, st.integers(0, 6), st.permutations([0, 1, 2]))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_a_store_that_was_saved_and_loaded_goes_on_as_if_nothing_had_happened(
    rounds: list[Round], gap: int, lateness: int, cut: int, moved: list[int]
) -> None:
    whole, store = store_of(gap, lateness), store_of(gap, lateness)
    slots = np.arange(3)
    for place, (round_, before) in enumerate(zip(rounds, watermarks_before(rounds), strict=True)):
        if place == cut:
            saved, store = store.export(slots), store_of(gap, lateness)
            store.load(saved, np.array(moved))
        names = moved if place >= cut else [0, 1, 2]
        renamed = [Row(row.number, names[row.slot], row.time) for row in round_.rows]
        assert (
            whole.add(input_rows(round_.rows), before)[0].tolist()
            == store.add(input_rows(renamed), before)[0].tolist()
        )
        expected, result = whole.close(round_.watermark), store.close(round_.watermark)
        known = sorted(zip(windows(expected), rows_in(expected), registers_in(expected), strict=True))
        back = [(names.index(slot), *rest) for slot, *rest in windows(result)]
        assert sorted(zip(back, rows_in(result), registers_in(result), strict=True)) == known


def test_a_users_fold_is_joined_when_sessions_are() -> None:
    product = build_fold_rule("product", lambda a, b: a * b, (1.0,), alone=True)
    store = SessionStore(SessionWindow(5), 0, [WindowAccumulator(AccumulatorKind.FOLD, 1, product)])
    store.add(input_rows([Row(4, 0, 0), Row(8, 0, 9)]), NEVER)
    store.add(input_rows([Row(10, 0, 4)]), NEVER)  # bridges the two; values are halves of the numbers
    assert store.close(ENDED).cells[0].tolist() == [[2.0 * 4.0 * 5.0]]


def test_memory_follows_the_open_sessions() -> None:
    store = store_of(5)
    before = store.nbytes
    for start in range(0, 200_000, 20_000):
        store.add(input_rows([Row(i, i % 500, start + 10 * i) for i in range(2_000)]), NEVER)
    assert store.nbytes > before + 100_000
    store.close(ENDED)
    assert store.nbytes <= before + 4_096
    assert not store.has_state(np.arange(500)).any()


def test_far_more_sessions_than_fit_at_first_are_kept_apart() -> None:
    store = store_of(1, compile_after=0)
    many = [Row(i, i % 7, 10 * i) for i in range(5_000)]
    store.add(input_rows(many[::2]), NEVER)
    store.add(input_rows(many[1::2]), NEVER)
    assert len(windows(store.close(ENDED))) == 5_000
