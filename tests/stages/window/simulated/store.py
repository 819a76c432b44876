"""The store on a device against the store of slices on the host: same rows in, same windows out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kernels.cuda.slices import SliceStates
from penstock.stages.rows.batch import Ints
from penstock.stages.rows.input import ENDED, NEVER, InputRows
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.cuda_store import CudaStore
from penstock.stages.window.store import ClosedWindows
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.time_windows import Row
from tests.stages.window.test_time_store import EVERY_REGISTER, REAL, input_rows, streams

# NumPy warns where kernels, which the simulator runs as Python, overflow or compute NaN: CUDA does not.
pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
Pairs = list[tuple[int, int]]
Stream = list[tuple[list[Row], int]]
KINDS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=2).filter(
    lambda pairs: len(Slicing.groups(TimeWindow(*pair) for pair in pairs)) == 1
)
REGISTERS = st.lists(st.sampled_from(EVERY_REGISTER[1:]), max_size=3, unique=True).map(
    lambda chosen: (EVERY_REGISTER[0], *chosen)
)
LIMITS = st.fixed_dictionaries(
    {
        "n_windows": st.integers(1, 4),
        "batch_rows": st.sampled_from([2, 16]),
        "max_keys_per_batch": st.sampled_from([None, 1, 2]),
        "max_pending": st.sampled_from([1, 64]),
    }
)
SLOTS = np.arange(5)


def both(pairs: Pairs, lateness: int, registers: Any, limits: Any) -> tuple[CudaStore, TimeStore]:
    slicing = Slicing.of([TimeWindow(*pair) for pair in pairs])
    return CudaStore(slicing, lateness, registers, **limits), TimeStore(slicing, lateness, registers)


def assert_same(one: ClosedWindows, other: ClosedWindows) -> None:
    one, other = (part.at(np.lexsort((part.starts, part.slots, part.kinds))) for part in (one, other))
    for name in ("kinds", "slots", "starts", "ends", "times"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    for a, b in zip(one.cells, other.cells, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-6)


def assert_step(
    ours: TimeStore, host: TimeStore, rows: list[Row], watermark: int, upto: int, turned: Ints = SLOTS
) -> None:
    """Both take rows, judged by one watermark, and let windows leave at the next."""
    moved = input_rows([row._replace(slot=int(turned[row.slot])) for row in rows])
    result, wanted = ours.add(moved, watermark), host.add(moved, watermark)
    assert (result is None) == (wanted is None)
    if result is not None and wanted is not None:
        assert [item.tolist() for item in result] == [item.tolist() for item in wanted]
    left, expected = ours.close(upto), host.close(upto)
    assert_same(left, expected)
    assert ours.has_state(SLOTS).tolist() == host.has_state(SLOTS).tolist()
    assert not ours.has_state(left.touched).any()


@settings(deadline=None, max_examples=20)
@given(KINDS, st.integers(0, 12), REGISTERS, LIMITS, streams())
def test_a_device_judges_and_lets_leave_as_the_host_does(
    pairs: Pairs, lateness: int, registers: Any, limits: Any, stream: Stream
) -> None:
    ours, host = both(pairs, lateness, registers, limits)
    watermark = NEVER
    for rows, after in [*stream, ([], ENDED)]:
        upto = max(watermark, after)
        assert_step(ours, host, rows, watermark, upto)
        watermark = upto
    assert not ours.has_state(SLOTS).any()


@settings(deadline=None, max_examples=15)
@given(KINDS, st.integers(0, 12), REGISTERS, LIMITS, streams(), st.integers(0, 6), st.booleans())
def test_state_goes_from_either_device_to_the_other(
    pairs: Pairs, lateness: int, registers: Any, limits: Any, stream: Stream, when: int, to_host: bool
) -> None:
    ours: TimeStore
    ours, host = both(pairs, lateness, registers, limits)
    watermark, turned = NEVER, SLOTS
    for number, (rows, after) in enumerate([*stream, ([], ENDED)]):
        if number == when:
            held = np.flatnonzero(host.has_state(SLOTS))
            turned = SLOTS[::-1].copy()  # the keys have other slots from now on
            saved = (ours if to_host else host).export(held)
            assert saved["slices"].schema == host.export(held)["slices"].schema
            device, fresh = both(pairs, lateness, registers, limits)
            fresh.load(host.export(held), turned[held])
            ours = TimeStore(fresh.slicing, lateness, registers) if to_host else device
            ours.load(saved, turned[held])
            host = fresh
        upto = max(watermark, after)
        assert_step(ours, host, rows, watermark, upto, turned)
        assert_same(ours.fire_early(), host.fire_early())  # what was shown goes with the state
        watermark = upto


@settings(deadline=None, max_examples=20)
@given(KINDS, st.integers(0, 12), REGISTERS, LIMITS, streams())
def test_windows_are_shown_early_as_on_the_host(
    pairs: Pairs, lateness: int, registers: Any, limits: Any, stream: Stream
) -> None:
    ours, host = both(pairs, lateness, registers, limits)
    watermark = NEVER
    for rows, after in stream:
        for store in (ours, host):
            store.add(input_rows(rows), watermark)
        assert_same(ours.fire_early(), host.fire_early())
        watermark = max(watermark, after)
        assert_same(ours.close(watermark), host.close(watermark))


def count_store(**limits: Any) -> CudaStore:
    return CudaStore(Slicing.of([TimeWindow(10, 5)]), 0, [WindowAccumulator(AccumulatorKind.ROWS)], **limits)


def test_reading_back_for_several_buckets_happens_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, reads = count_store(), []
    store.add(InputRows(np.array([0, 1]), np.array([1, 2])), NEVER)
    states = store._windows.states

    def note() -> SliceStates:
        reads.append(1)
        return states()

    monkeypatch.setattr(store._windows, "states", note)
    for slot in (0, 1):
        assert store.export(np.array([slot]))["slices"].num_rows == 1
    assert len(reads) == 1


def test_memory_counts_what_waits_and_what_is_on_the_device() -> None:
    store = count_store(batch_rows=1000)
    empty = store.nbytes
    store.add(InputRows(np.zeros(100, np.int64), np.arange(100)), NEVER)
    waiting = store.nbytes
    assert waiting >= empty + 100 * 16
    store.close(50)
    assert empty < store.nbytes


def test_the_store_says_that_it_is_on_a_device_and_how_windows_are_put_together() -> None:
    assert count_store().explain() == ("sliding 10 us every 5 us: cuda, B-PAT over up to 2 slices a window",)
    tumbling = CudaStore(
        Slicing.of([TimeWindow(9, 9)]), 0, [WindowAccumulator(AccumulatorKind.FLOAT_SUM, REAL)]
    )
    assert tumbling.explain() == ("tumbling 9 us: cuda, a window is one slice",)
