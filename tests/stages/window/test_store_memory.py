"""Memory follows what is open: after a watermark a store is as small as if the rows before had never come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.stages.sketches import HllSketch, KllSketch
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.count_store import CountStore
from penstock.stages.window.session_store import SessionStore
from penstock.stages.window.sketches import Sketch, SliceSketches
from penstock.stages.window.store import WindowStore
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import CountWindow, SessionWindow, TimeWindow

SCHEMA = pa.schema([("v", pa.int64())])
REGISTERS = (WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.MAX, 1))
SKETCHES = (Sketch(HllSketch, 0), Sketch(KllSketch, 2))
SLIDING = TimeWindow(100, 20)
STORES: dict[str, Callable[[], WindowStore]] = {
    "slices": lambda: TimeStore(Slicing.of([SLIDING]), 0, REGISTERS),
    "sketches": lambda: TimeStore(
        Slicing.of([SLIDING]), 0, REGISTERS, sketches=SliceSketches(SKETCHES, Slicing.of([SLIDING]).longest)
    ),
    "kept rows": lambda: TimeStore(Slicing.of([SLIDING]), 0, (), rows=SCHEMA),
    "sessions": lambda: SessionStore(SessionWindow(30), 0, REGISTERS, rows=SCHEMA, sketches=SKETCHES),
    "counts": lambda: CountStore([CountWindow(20, 5)], 0, REGISTERS, rows=SCHEMA),
}
FREE = 200_000
"""Bytes that a store may keep for what comes next: most of all the room for 8,192 cells of each register."""


def input_rows(slots: Any, times: Any) -> InputRows:
    numbers = np.arange(len(slots))
    values = Values(numbers + (1 << 26)), Values(numbers), Values(numbers.astype(np.float64))
    rows = pa.RecordBatch.from_arrays([pa.array(numbers)], schema=SCHEMA)
    return InputRows(np.asarray(slots, np.int64), np.asarray(times, np.int64), values=values, rows=rows)


def push(store: WindowStore, rows: InputRows, before: int, after: int) -> None:
    store.close(before)
    store.add(rows, before)
    store.close(after)


lots = st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 5), st.integers(1, 400)), max_size=4)
"""What passed before: (rows, keys, how long they took)."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
@given(before=lots, n_last=st.integers(1, 50))
@settings(deadline=None, max_examples=25)
def test_what_passed_before_a_watermark_leaves_no_trace_in_memory(
    name: str, before: list[tuple[int, int, int]], n_last: int
) -> None:
    store, fresh = STORES[name](), STORES[name]()
    watermark, time = NEVER, 0
    for n_rows, n_keys, length in before:
        numbers = np.arange(n_rows)
        push(store, input_rows(numbers % n_keys, time + numbers * length // n_rows), watermark, time + length)
        watermark = time = time + length
    late = watermark + 1_000
    last = np.arange(n_last)
    for item in (store, fresh):
        push(item, input_rows(last % 5, late + last), late, late + 10)
    # Of a count window that is not full up to 19 rows of each of five keys are open still.
    assert store.nbytes <= 10 * fresh.nbytes + FREE


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in STORES if name != "counts"])
def test_a_burst_of_keys_and_rows_is_forgotten(name: str) -> None:
    store = STORES[name]()
    slots, times = np.arange(16_000) % 8_000, np.arange(16_000) // 160
    push(store, input_rows(slots, times), NEVER, 50)
    full = store.nbytes
    push(store, input_rows([0], [1_000]), 1_000, 1_000)
    assert full > 2 * FREE
    assert store.nbytes < FREE
    assert not store.has_state(np.arange(1, 8_000)).any()
    store.close(ENDED, ended=True)
    assert not store.has_state(np.array([0])).any()


def plain(slots: list[int], time: int) -> InputRows:
    return InputRows(np.array(slots), np.full(len(slots), time))


def test_panes_of_keys_that_rest_stay_while_those_of_others_are_let_go() -> None:
    store = CountStore([CountWindow(100, 10)], 0, [WindowAccumulator(AccumulatorKind.ROWS)])
    store.add(plain([slot for slot in range(2_000) for _ in range(55)], 0), NEVER)
    store.close(1)
    for time in range(1, 40):
        store.add(plain([5] * 1_000, time), time)
        store.close(time + 1)
    store.add(plain([7] * 45, 50), 50)
    left = store.close(51)
    assert (left.slots.tolist(), left.starts.tolist(), left.ends.tolist()) == ([7], [0], [50])
    assert left.cells[0].tolist() == [[100]]


@pytest.mark.slow
def test_memory_of_panes_does_not_grow_with_a_long_stream() -> None:
    store = CountStore([CountWindow(1_000, 10)], 0, REGISTERS[:1])
    sizes = []
    for time in range(300):
        store.add(plain([0, 1, 2] * 1_000, time), time)
        store.close(time + 1)
        sizes.append(store.nbytes)
    assert max(sizes) == max(sizes[:10])
