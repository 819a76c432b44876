"""CudaWindows against a bucket per window: any kinds, any cut into batches, any watermarks, any limits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cuda.device import Launch, choose_device, explain_missing
from penstock.kernels.cuda.kernels import CudaAccumulator
from penstock.kernels.cuda.pane_stage import Rows
from penstock.kernels.cuda.windows import CudaWindows, WindowCells
from penstock.kernels.windows import accumulate as rules
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.time_windows import Buckets, Row

Plain = tuple[int, int, int]
"""(slot, time, value)"""
Step = list[Plain] | int
Found = list[tuple[int, int, int, int]]
"""(kind, start, slot, sum) of windows"""
FOREVER = 2**62
SUMS = (CudaAccumulator(rules.COUNT, "row"), CudaAccumulator(rules.WIDE_SUM, "halves", 0))
TIMES = st.integers(-15, 30) | st.sampled_from([-400, 500, 2**60, -(2**60)])
ROWS = st.lists(st.tuples(st.integers(0, 5), TIMES, st.integers(-9, 9)), max_size=12)
WATERMARKS = st.integers(-20, 40) | st.sampled_from([450, 2**60])
STEPS = st.lists(ROWS | WATERMARKS, max_size=6)
KINDS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=2).filter(
    lambda pairs: len(Slicing.groups(TimeWindow(*pair) for pair in pairs)) == 1
)


def make_windows(*kinds: tuple[int, int], **options: Any) -> CudaWindows:
    return CudaWindows(Slicing.of([TimeWindow(*kind) for kind in kinds]), SUMS, **options)


def add(windows: CudaWindows, rows: list[Plain]) -> None:
    slots, times, values = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    windows.add(Rows(slots, times, (values,), (None,)))


def sort_cells(actual: WindowCells) -> Found:
    sums = [(high << 32) + low for high, low in actual.cells[1].tolist()]
    columns = (actual.kinds.tolist(), actual.starts.tolist(), actual.slots.tolist(), sums)
    return sorted(zip(*columns, strict=True))


def close_windows(windows: CudaWindows, upto: int) -> Found:
    return sort_cells(windows.close_windows(upto))


class Twin:
    """Buckets, and the rows that a device must be given: those that some window still takes."""

    def __init__(self, kinds: list[tuple[int, int]]) -> None:
        self.buckets, self.n_rows = Buckets(kinds, 0), 0

    def take_rows(self, rows: list[Plain]) -> list[Plain]:
        return [row for row in rows if any(fate == "admitted" for fate, _ in self._take(*row))]

    def _take(self, slot: int, time: int, value: int) -> list[tuple[str, int]]:
        self.n_rows += 1
        return self.buckets.add(Row(slot, time, self.n_rows, value, None))

    def close(self, upto: int) -> Found:
        gone = self.buckets.close(upto)
        return sorted(
            (kind, start, slot, sum(row.whole or 0 for row in rows))
            for (kind, slot, start), rows in gone.items()
        )


def run(windows: CudaWindows, twin: Twin, steps: list[Step]) -> None:
    for step in steps:
        if isinstance(step, list):
            add(windows, twin.take_rows(step))
        else:
            assert close_windows(windows, step) == twin.close(step)
            windows.take_emptied()
            slots = np.arange(8)
            assert set(slots[windows.holds(slots)].tolist()) == twin.buckets.slots_in_use()


@settings(deadline=None, max_examples=60)
@given(
    steps=STEPS,
    kinds=KINDS,
    n_windows=st.integers(1, 4),
    batch_rows=st.integers(1, 8),
    max_keys=st.none() | st.integers(1, 3),
    max_pending=st.sampled_from([1, 16, 64]),
    launch=st.builds(Launch, blocks=st.integers(1, 2), threads=st.integers(1, 2)),
)
def test_windows_leave_as_from_a_bucket_per_window(
    steps: list[Step],
    kinds: list[tuple[int, int]],
    n_windows: int,
    batch_rows: int,
    max_keys: int | None,
    max_pending: int,
    launch: Launch,
) -> None:
    windows = make_windows(
        *kinds,
        n_windows=n_windows,
        batch_rows=batch_rows,
        max_keys_per_batch=max_keys,
        max_pending=max_pending,
        launch=launch,
    )
    run(windows, Twin(kinds), [*steps, FOREVER])


def story(seed: int) -> tuple[list[tuple[int, int]], dict[str, Any], list[Step]]:
    """A stream with disorder, stragglers, leaps and watermarks; and limits that are small for it."""
    draw = random.Random(seed)
    every = draw.randint(1, 14)
    kinds = [(draw.randint(1, 14), every), (draw.randint(1, 20), 2 * every)][: draw.randint(1, 2)]
    options: dict[str, Any] = {
        "n_windows": draw.randint(1, 5),
        "batch_rows": draw.choice([1, 4, 16, 32]),
        "max_keys_per_batch": draw.choice([None, 1, 2, 3]),
        "max_pending": draw.choice([1, 8, 64]),
    }
    now, disorder, n_slots = draw.choice([0, -100, 2**40]), draw.choice([5, 40, 200]), draw.choice([1, 6])
    steps: list[Step] = []
    for _ in range(draw.randint(1, 7)):
        strays = [0] * 60 + [10**6, -(10**5)]
        steps.append(
            [
                (
                    draw.randrange(n_slots),
                    now - draw.randint(0, disorder) + draw.choice(strays),
                    draw.randint(-9, 9),
                )
                for _ in range(draw.randint(0, 25))
            ]
        )
        now += draw.choice([0, 3, 10, 50, 10**7])
        steps.append(now - draw.choice([0, 10, 60, 300, 1000]))
    return kinds, options, steps


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**9))
def test_a_stream_with_stragglers_and_leaps_loses_nothing(seed: int) -> None:
    kinds, options, steps = story(seed)
    run(make_windows(*kinds, **options), Twin(kinds), [*steps, FOREVER])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**9), st.integers(0, 12))
def test_what_is_read_back_can_be_taken_up_by_others(seed: int, cut: int) -> None:
    kinds, options, steps = story(seed)
    windows, twin = make_windows(*kinds, **options), Twin(kinds)
    run(windows, twin, steps[:cut])
    states = windows.states()
    places = list(zip(states.slots.tolist(), states.slices.tolist(), strict=True))
    assert len(set(places)) == len(places)
    again = make_windows(*kinds, **options)
    again.load(states, twin.buckets.watermark)
    run(again, twin, [*steps[cut:], FOREVER])


def test_the_memory_that_is_told_grows_with_slots_and_open_slices() -> None:
    windows = make_windows((2, 1), n_windows=1, batch_rows=8)
    add(windows, [(0, 0, 1)])
    close_windows(windows, 1)
    small = windows.nbytes
    add(windows, [(3, 20, 1)])
    close_windows(windows, 3)
    #  of 3 numbers: 8 slices in the ring, 2 leaves and 1 node in the tree, for 3 more slots
    assert windows.nbytes >= small + 3 * (8 + 3) * 3 * 8


def test_a_window_leaves_when_the_watermark_reaches_its_end_and_only_once() -> None:
    #  0    2    4    6           windows [0, 4) [2, 6) [4, 8), watermark 6
    windows = make_windows((4, 2), batch_rows=8)
    add(windows, [(0, 0, 1), (0, 3, 2), (0, 5, 4)])
    assert close_windows(windows, 6) == [(0, -2, 0, 1), (0, 0, 0, 3), (0, 2, 0, 6)]
    assert close_windows(windows, 6) == []
    assert close_windows(windows, FOREVER) == [(0, 4, 0, 4)]


def test_a_slice_that_earlier_windows_used_still_takes_rows() -> None:
    #  windows [0, 6) and [2, 8) hold time 3; the first has left when the late row comes
    windows = make_windows((6, 2), n_windows=2, batch_rows=8)
    add(windows, [(0, 3, 1), (0, 5, 10)])
    assert close_windows(windows, 6) == [(0, -2, 0, 1), (0, 0, 0, 11)]
    add(windows, [(0, 3, 100)])
    assert close_windows(windows, 10) == [(0, 2, 0, 111), (0, 4, 0, 10)]


def test_fewer_windows_than_the_bound_do_not_wait_and_more_leave_in_several_calls() -> None:
    windows = make_windows((2, 1), n_windows=4, batch_rows=8)
    add(windows, [(0, time, 1) for time in range(20)])
    assert close_windows(windows, 1) == [(0, -1, 0, 1)]
    assert close_windows(windows, 20) == [(0, start, 0, 2) for start in range(19)]


def test_a_row_from_the_far_future_waits_on_the_host_and_costs_no_room() -> None:
    windows = make_windows((4, 2), n_windows=2, batch_rows=8)
    add(windows, [(0, 2**60, 7), (0, 1, 1), (1, 2**60, 8)])
    assert close_windows(windows, 10) == [(0, -2, 0, 1), (0, 0, 0, 1)]
    assert windows._ring.size == 8
    ends = [(0, start, slot, 7 + slot) for start in (2**60 - 2, 2**60) for slot in (0, 1)]
    assert close_windows(windows, FOREVER) == ends


def test_the_ring_grows_with_what_is_open_and_shrinks_again() -> None:
    windows = make_windows((1, 1), batch_rows=64)
    add(windows, [(0, time, 1) for time in range(40)])
    assert close_windows(windows, 38) == [(0, time, 0, 1) for time in range(38)]
    for _ in range(3):
        close_windows(windows, 39)
    assert windows._ring.size == 8
    assert close_windows(windows, 40) == [(0, 39, 0, 1)]


def test_a_slot_is_told_of_as_empty_once() -> None:
    windows = make_windows((4, 4), batch_rows=8)
    add(windows, [(0, 1, 1), (2, 5, 1)])
    close_windows(windows, 4)
    assert windows.take_emptied().tolist() == [0]
    assert windows.take_emptied().tolist() == []
    assert windows.holds(np.array([0, 2, 9])).tolist() == [False, True, False]


def test_the_simulator_is_a_device_for_those_who_ask_but_never_by_itself() -> None:
    assert explain_missing() is None
    assert choose_device("cuda") == "cuda"
    assert choose_device("auto") == "cpu"
