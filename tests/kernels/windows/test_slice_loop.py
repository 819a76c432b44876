"""Finding cells in blocks, and cutting runs, against putting rows into rings one by one; at both speeds."""

from __future__ import annotations

from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.slice_loop import (
    BASE,
    BLOCK_ROWS,
    CLEAN,
    END,
    FIRST,
    HAS_EXTRA,
    LATE_FROM,
    LATE_TO,
    MASK,
    MAX_DISTANCE,
    MAX_ID,
    find_cells,
    find_runs,
    write_run_cells,
)
from tests.naive import cells as naive

fixed = settings(deadline=None, max_examples=60)
speeds = pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])

N_SLOTS = 3
RINGS = 64  # cells of a full-grown ring here
Row = tuple[int, int]
Setting = tuple[int, int, list[int]]  # open from, period, offsets

offsets_of = st.sampled_from([[0], [0, 3], [0, 1, 6]])
times = st.integers(-200, 400)
ring_of = st.none() | st.tuples(st.integers(-30, 30), st.integers(1, 40), st.integers(-5, 50), st.booleans())


@st.composite
def nearly_in_order(draw: st.DrawFn, n_slots: int) -> list[Row]:
    """A few blocks of rows, mostly many in one slice, sometimes with a stray."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 6))):
        time, n = draw(times), draw(st.sampled_from([1, 2, 60, BLOCK_ROWS, BLOCK_ROWS + 1]))
        slots = draw(st.lists(st.integers(0, n_slots - 1), min_size=1, max_size=4))
        rows += [(slots[i % len(slots)], time + i % draw(st.sampled_from([1, 3]))) for i in range(n)]
    return rows


def rings_of(given_: list[Any]) -> dict[int, naive.Ring]:
    """Rings of 64 cells, apart from each other."""
    result = {}
    for slot, cell in enumerate(given_):
        if cell is not None:
            first, held, clean, far = cell
            result[slot] = naive.Ring(slot * RINGS, RINGS, first, first + held, first + clean, far)
    return result


def table_of(rings: dict[int, naive.Ring]) -> Any:
    table = np.tile(np.array([0, -1, 0, 0, 0, MAX_ID, -MAX_ID, 0], np.int64), (N_SLOTS, 1))
    for slot, ring in rings.items():
        row = table[slot]
        row[BASE], row[MASK], row[FIRST], row[END] = ring.base, ring.size - 1, ring.first, ring.end
        row[CLEAN], row[HAS_EXTRA] = ring.clean, ring.far
    return table


def room_of(rings: dict[int, naive.Ring], spare: list[int], setting: Setting, n_rows: int) -> tuple[Any, ...]:
    """The arguments of the loops from `clock` to `late`."""
    open_from, period, offsets = setting
    reach = max(open_from, -(10**6))
    rounds = reach // period
    clock = (open_from, reach, rounds * period, rounds * len(offsets), period, MAX_ID, *offsets)
    stack = np.array([len(spare), *spare, *[0] * 8], np.int64)
    late = np.zeros(n_rows + 1, np.int64)
    return np.array(clock, np.int64), table_of(rings), stack, late


def expect_rings(table: Any, rings: dict[int, naive.Ring]) -> None:
    """The ends are the twin's, and every slice that changed late lies in the noted range."""
    assert (table[:, MASK] >= 0).tolist() == [slot in rings for slot in range(N_SLOTS)]
    for slot, ring in rings.items():
        assert (table[slot, BASE], table[slot, MASK]) == (ring.base, ring.size - 1)
        assert (table[slot, FIRST], table[slot, END]) == (ring.first, ring.end)
        assert all(table[slot, LATE_FROM] <= cell < table[slot, LATE_TO] for cell in ring.late)
        if not ring.late:
            assert table[slot, LATE_TO] <= table[slot, LATE_FROM]


@pytest.mark.slow
@speeds
@fixed
@given(
    nearly_in_order(N_SLOTS),
    st.lists(ring_of, min_size=N_SLOTS, max_size=N_SLOTS),
    st.tuples(st.integers(-210, 60), st.integers(7, 12), offsets_of),
    st.integers(0, 2),
)
def test_blocks_of_rows_find_the_cells_that_rows_find_one_by_one(
    compiled: bool, rows: list[Row], given_: list[Any], setting: Setting, n_spare: int
) -> None:
    twin_rings, twin_spare = rings_of(given_), [1000, 1100][:n_spare]
    room = room_of(twin_rings, twin_spare, setting, len(rows))
    slots, at = (np.array([row[part] for row in rows], np.int64) for part in range(2))
    cells = np.full(len(rows), -7, np.int64)
    stopped = find_cells.version(compiled)(slots, at, 0, *room, cells)
    wanted = naive.place(rows, *setting, twin_rings, twin_spare)
    assert stopped == wanted.stopped
    assert cells[:stopped].tolist() == [-1 if cell is None else cell for cell in wanted.cells]
    assert room[3][1 : room[3][0] + 1].tolist() == [i for i, cell in enumerate(wanted.cells) if cell is None]
    expect_rings(room[1], twin_rings)


@pytest.mark.slow
@speeds
@fixed
@given(
    nearly_in_order(1),
    ring_of,
    st.tuples(st.integers(-210, 60), st.integers(7, 12), offsets_of),
    st.integers(0, 1),
)
def test_runs_hold_every_row_that_is_not_late_with_the_cell_it_finds_alone(
    compiled: bool, rows: list[Row], ring: Any, setting: Setting, n_spare: int
) -> None:
    rings, spare = rings_of([ring]), [1000][:n_spare]
    room = room_of(rings, spare, setting, len(rows))
    cells, runs = np.full(len(rows), -7, np.int64), np.zeros((len(rows) + 1, 3), np.int64)
    stopped = find_runs.version(compiled)(
        np.array([time for _, time in rows], np.int64), 0, *room, cells, runs
    )
    result = runs[1 : runs[0, 0] + 1]
    write_run_cells.version(compiled)(result, cells)
    wanted = naive.place(rows[:stopped], *setting, deepcopy(rings), list(spare))
    assert wanted.stopped == stopped, "it took a row that has no room"
    assert cells[:stopped].tolist() == [-1 if cell is None else cell for cell in wanted.cells]
    in_runs = [i for start, stop, _ in result.tolist() for i in range(start, stop)]
    assert in_runs == [i for i, cell in enumerate(wanted.cells) if cell is not None]
    # It may stop up to a block early, since it asks for room for a block at a time.
    further = naive.place(rows, *setting, deepcopy(rings), list(spare))
    assert further.stopped - stopped < BLOCK_ROWS


@speeds
def test_rows_in_order_are_one_run_per_slice_but_for_blocks_with_two(compiled: bool) -> None:
    n = 20 * BLOCK_ROWS
    rings = {0: naive.Ring(0, RINGS, 0, 1, 0)}
    room = room_of(rings, [], (-100, 5 * BLOCK_ROWS, [0]), n)
    cells, runs = np.zeros(n, np.int64), np.zeros((n + 1, 3), np.int64)
    assert find_runs.version(compiled)(np.arange(n), 0, *room, cells, runs) == n
    assert runs[1 : runs[0, 0] + 1].tolist() == [
        [5 * BLOCK_ROWS * i, 5 * BLOCK_ROWS * (i + 1), i] for i in range(4)
    ]


@speeds
@pytest.mark.parametrize("stray", [MAX_DISTANCE + 10, 2 * MAX_DISTANCE])
def test_a_row_too_far_ahead_stops_both_and_spoils_nothing_before_it(compiled: bool, stray: int) -> None:
    times_ = np.array([5] * 10 + [stray] + [6] * 10)
    room = room_of({0: naive.Ring(0, RINGS, 0, 4, 0)}, [], (0, 10, [0]), 21)
    cells, runs = np.zeros(21, np.int64), np.zeros((22, 3), np.int64)
    assert find_cells.version(compiled)(np.zeros(21, np.int64), times_, 0, *room, cells) == 10
    assert cells[:10].tolist() == [0] * 10
    assert find_runs.version(compiled)(times_, 0, *room, cells, runs) <= 10
    assert room[1][0, END] == 4


@speeds
def test_a_slot_beyond_the_table_stops_it_at_its_row(compiled: bool) -> None:
    room = room_of({0: naive.Ring(0, RINGS, 0, 4, 0)}, [], (0, 10, [0]), 3)
    cells = np.zeros(3, np.int64)
    assert (
        find_cells.version(compiled)(np.array([0, 0, N_SLOTS]), np.array([5, 15, 25]), 0, *room, cells) == 2
    )
    assert cells[:2].tolist() == [0, 1]


@speeds
@pytest.mark.parametrize("clean", [0, 3, 8])
def test_a_block_of_one_slice_or_two_moves_ends_and_notes_late_slices_wherever_they_lie(
    compiled: bool, clean: int
) -> None:
    for one, other in product(range(-1, 10), repeat=2):
        rings = {0: naive.Ring(0, RINGS, 0, 8, clean)}
        rows = [(0, 10 * one + 1), (0, 10 * other + 9)]
        slots, at = (np.array([row[part] for row in rows], np.int64) for part in range(2))
        room, single = (room_of(rings, [], (-100, 10, [0]), 2) for _ in range(2))
        cells, runs = np.zeros(2, np.int64), np.zeros((3, 3), np.int64)
        assert find_cells.version(compiled)(slots, at, 0, *room, cells) == 2
        assert find_runs.version(compiled)(at, 0, *single, np.zeros(2, np.int64), runs) == 2
        wanted = naive.place(rows, -100, 10, [0], rings, [])
        assert cells.tolist() == wanted.cells
        expect_rings(room[1], rings)
        expect_rings(single[1], rings)
