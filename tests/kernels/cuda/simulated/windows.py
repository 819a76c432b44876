"""CudaWindows against a bucket per window: any cut into batches, any watermarks, any limits."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cuda.device import available, choose_device
from penstock.kernels.cuda.launch import Launch
from penstock.kernels.cuda.operation import count, total
from penstock.kernels.cuda.windows import CudaWindows
from tests.naive.sliding import Row, Sliding

Step = list[Row] | float
TIMES = st.integers(-15, 30) | st.sampled_from([-400, 500, 2**60, -(2**60)])
ROWS = st.lists(st.tuples(st.integers(0, 5), TIMES, st.integers(-9, 9)), max_size=12)
WATERMARKS = st.integers(-20, 40) | st.sampled_from([-math.inf, 450, 2**60])
STEPS = st.lists(ROWS | WATERMARKS, max_size=6)


def add(windows: CudaWindows, rows: list[Row]) -> None:
    slots, times, values = (np.array([row[i] for row in rows], dtype=np.int64) for i in range(3))
    windows.add(slots, times, values)


def left(windows: CudaWindows, watermark: float) -> list[tuple[int, int, int]]:
    """(start, slot, sum) of the windows that leave, in the order they come."""
    found = windows.leave(watermark)
    return list(zip(found.starts.tolist(), found.slots.tolist(), found.results.tolist(), strict=True))


def sums(left: list[tuple[int, int, list[Any]]]) -> list[tuple[int, int, int]]:
    return [(start, slot, sum(values)) for start, slot, values in left]


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    steps=STEPS,
    size=st.integers(1, 12),
    every=st.integers(1, 12),
    n_windows=st.integers(1, 4),
    batch_rows=st.integers(1, 8),
    max_keys=st.none() | st.integers(1, 3),
    max_pending=st.sampled_from([1, 16, 64]),
    launch=st.builds(Launch, blocks=st.integers(1, 2), threads=st.integers(1, 2)),
)
def test_windows_leave_as_from_a_bucket_per_window(
    steps: list[Step],
    size: int,
    every: int,
    n_windows: int,
    batch_rows: int,
    max_keys: int | None,
    max_pending: int,
    launch: Launch,
) -> None:
    windows = CudaWindows(
        total("int64"),
        size=size,
        every=every,
        n_windows=n_windows,
        batch_rows=batch_rows,
        max_keys_per_batch=max_keys,
        max_pending=max_pending,
        launch=launch,
    )
    twin = Sliding(size, every)
    for step in [*steps, math.inf]:
        if isinstance(step, list):
            add(windows, step)
            twin.add(step)
        else:
            assert left(windows, step) == sums(twin.leave(step))
    assert windows.skipped == twin.skipped


def story(seed: int) -> tuple[dict[str, Any], list[Step]]:
    """A stream with disorder, stragglers, leaps and watermarks; and limits that are small for it."""
    draw = random.Random(seed)
    options: dict[str, Any] = {
        "size": draw.randint(1, 14),
        "every": draw.randint(1, 14),
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
    return options, steps


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.integers(0, 10**9))
def test_a_stream_with_stragglers_and_leaps_loses_nothing(seed: int) -> None:
    options, steps = story(seed)
    windows, twin = CudaWindows(total("int64"), **options), Sliding(options["size"], options["every"])
    for step in [*steps, math.inf]:
        if isinstance(step, list):
            add(windows, step)
            twin.add(step)
        else:
            assert left(windows, step) == sums(twin.leave(step))
    assert windows.skipped == twin.skipped


@settings(deadline=None, derandomize=True, max_examples=15)
@given(st.integers(0, 10**9), st.integers(0, 12))
def test_a_snapshot_may_be_taken_anywhere_and_gone_on_from(seed: int, cut: int) -> None:
    options, steps = story(seed)
    windows, twin = CudaWindows(total("int64"), **options), Sliding(options["size"], options["every"])
    for position, step in enumerate([*steps, math.inf]):
        if position == cut:
            pending = windows.snapshot()
            windows = CudaWindows(total("int64"), **options)
            windows.restore(pending)
        if isinstance(step, list):
            add(windows, step)
            twin.add(step)
        else:
            assert left(windows, step) == sums(twin.leave(step))


def test_the_memory_that_is_told_grows_with_slots_and_open_slices() -> None:
    windows = CudaWindows(total("int64"), size=2, every=1, n_windows=1, batch_rows=8)
    add(windows, [(0, 0, 1)])
    left(windows, 1)
    #  8 slices in the ring, 2 leaves and 1 node in the tree, of 4 registers of 8 bytes
    assert windows.nbytes == (8 + 3) * 4 * 8
    add(windows, [(3, 20, 1)])
    left(windows, 3)
    assert windows.nbytes > 4 * (8 + 3) * 4 * 8


def test_a_window_leaves_when_the_watermark_reaches_its_end_and_only_once() -> None:
    #  0    2    4    6           windows [0, 4) [2, 6) [4, 8), watermark 6
    windows = CudaWindows(total("int64"), size=4, every=2, batch_rows=8)
    add(windows, [(0, 0, 1), (0, 3, 2), (0, 5, 4)])
    assert left(windows, 6) == [(-2, 0, 1), (0, 0, 3), (2, 0, 6)]
    assert left(windows, 6) == []
    assert left(windows, math.inf) == [(4, 0, 4)]


def test_a_slice_that_earlier_windows_used_still_takes_rows() -> None:
    #  windows [0, 6) and [2, 8) hold time 3; the first has left when the late row comes
    windows = CudaWindows(total("int64"), size=6, every=2, n_windows=2, batch_rows=8)
    add(windows, [(0, 3, 1), (0, 5, 10)])
    assert left(windows, 6) == [(-2, 0, 1), (0, 0, 11)]
    add(windows, [(0, 3, 100)])
    assert left(windows, 10) == [(2, 0, 111), (4, 0, 10)]
    assert windows.skipped == 0


def test_a_watermark_that_goes_back_opens_nothing() -> None:
    windows = CudaWindows(total("int64"), size=4, every=4, batch_rows=8)
    add(windows, [(0, 1, 1)])
    assert left(windows, 4) == [(0, 0, 1)]
    assert left(windows, 2) == []
    add(windows, [(0, 3, 5)])
    assert (left(windows, math.inf), windows.skipped) == ([], 1)


def test_fewer_windows_than_the_bound_do_not_wait_and_more_leave_in_several_calls() -> None:
    windows = CudaWindows(total("int64"), size=2, every=1, n_windows=4, batch_rows=8)
    add(windows, [(0, time, 1) for time in range(20)])
    assert left(windows, 1) == [(-1, 0, 1)]
    assert left(windows, 20) == [(start, 0, 2) for start in range(19)]


def test_results_may_be_taken_after_the_next_batch_was_added() -> None:
    windows = CudaWindows(total("int64"), size=4, every=2, batch_rows=8)
    add(windows, [(0, 1, 1), (0, 5, 2)])
    first = windows.closing(4)
    add(windows, [(0, 4, 10)])
    second = windows.closing(8)
    assert first.results().results.tolist() == [1, 1]
    assert second.results().results.tolist() == [12, 12]


def test_a_row_from_the_far_future_waits_on_the_host_and_costs_no_room() -> None:
    windows = CudaWindows(total("int64"), size=4, every=2, n_windows=2, batch_rows=8)
    add(windows, [(0, 2**60, 7), (0, 1, 1), (1, 2**60, 8)])
    assert left(windows, 10) == [(-2, 0, 1), (0, 0, 1)]
    assert windows._ring.size == 8
    ends = [(start, slot, 7 + slot) for start in (2**60 - 2, 2**60) for slot in (0, 1)]
    assert left(windows, math.inf) == ends


def test_rows_held_back_behind_a_gap_are_not_forgotten() -> None:
    #  hopping windows of 1 every 6; the first row held, at 61, is in a gap, and reaches no other
    windows = CudaWindows(total("int64"), size=1, every=6, n_windows=2, batch_rows=1, max_pending=8)
    add(windows, [(0, 0, 1), (0, 61, 5), (0, 120, 2), (0, 600, 3)])
    assert left(windows, math.inf) == [(0, 0, 1), (120, 0, 2), (600, 0, 3)]
    assert windows.skipped == 1


def test_the_ring_grows_with_what_is_open_and_shrinks_again() -> None:
    windows = CudaWindows(total("int64"), size=1, every=1, batch_rows=64)
    add(windows, [(0, time, 1) for time in range(40)])
    assert left(windows, 38) == [(time, 0, 1) for time in range(38)]
    for watermark in (39, 39, 39):
        left(windows, watermark)
    assert windows._ring.size == 8
    assert left(windows, 40) == [(39, 0, 1)]


def test_counting_needs_no_values() -> None:
    windows = CudaWindows(count(), size=4, every=4, batch_rows=8)
    windows.add(np.array([0, 0, 2]), np.array([0, 1, 1]))
    assert left(windows, 4) == [(0, 0, 2), (0, 2, 1)]


def test_values_of_another_kind_are_refused_rather_than_rounded() -> None:
    windows = CudaWindows(total("int64"), size=4, every=4, batch_rows=8)
    with pytest.raises(TypeError, match="Cannot cast"):
        windows.add(np.array([0]), np.array([0]), np.array([0.5]))


def test_the_simulator_is_a_device_for_those_who_ask_but_never_by_itself() -> None:
    assert available()
    assert choose_device("cuda") == "cuda"
    assert choose_device("auto") == "cpu"
