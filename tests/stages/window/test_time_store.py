"""The store of time windows against a bucket of rows per window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.kernels.windows.accumulate import decode_floats, encode_floats
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.combine import ReadyWindows, choose_method, list_next_windows
from penstock.stages.window.store import ClosedWindows, Decision
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow
from tests.naive.time_windows import Buckets, Place, Row

fixed = settings(deadline=None, derandomize=True, max_examples=25)
thorough = settings(deadline=None, derandomize=True, max_examples=120)

WHOLE, REAL, ORDERED = 0, 1, 2  # places of the values: integers, floats, floats in the order of integers
EVERY_REGISTER = (
    WindowAccumulator(AccumulatorKind.ROWS),
    WindowAccumulator(AccumulatorKind.COUNT, WHOLE),
    WindowAccumulator(AccumulatorKind.INT_SUM, WHOLE),
    WindowAccumulator(AccumulatorKind.FLOAT_SUM, REAL),
    WindowAccumulator(AccumulatorKind.MAX, WHOLE),
    WindowAccumulator(AccumulatorKind.MIN, ORDERED),
    WindowAccumulator(AccumulatorKind.MAX_COUNT, ORDERED),
    WindowAccumulator(AccumulatorKind.MIN_COUNT, WHOLE),
    WindowAccumulator(AccumulatorKind.FIRST, WHOLE),
    WindowAccumulator(AccumulatorKind.LAST, WHOLE),
    WindowAccumulator(AccumulatorKind.MOMENTS, REAL),
    WindowAccumulator(AccumulatorKind.MAX_TIME),
)
WAYS = ("direct", "sweep", "tree", None)


def input_rows(rows: Sequence[Row]) -> InputRows:
    whole = np.array([row.whole or 0 for row in rows], np.int64)
    real = np.array([0.0 if row.real is None else row.real for row in rows], np.float64)
    ordered = np.empty(len(rows), np.int64)
    encode_floats.plain(real.view(np.int64), ordered)
    has_whole = np.array([row.whole is not None for row in rows], np.bool_)
    has_real = np.array([row.real is not None for row in rows], np.bool_)
    return InputRows(
        np.array([row.slot for row in rows], np.int64),
        np.array([row.time for row in rows], np.int64),
        (np.array([row.order for row in rows], np.int64),),
        (Values(whole, has_whole), Values(real, has_real), Values(ordered, has_real)),
    )


def sort_key(value: float) -> tuple[bool, float]:
    """NaN greatest."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def expected_registers(rows: list[Row]) -> dict[str, Any]:
    """What the registers must hold for a window's rows; sums of floats are left to approx."""
    whole = [row.whole for row in rows if row.whole is not None]
    real = [row.real for row in rows if row.real is not None]
    result: dict[str, Any] = {"rows": len(rows), "count": len(whole), "latest": max(row.time for row in rows)}
    if whole:
        placed = sorted((row.time, row.order, row.whole) for row in rows if row.whole is not None)
        result |= {
            "sum": sum(whole),
            "most": max(whole),
            "least of": (min(whole), whole.count(min(whole))),
            "first": placed[0],
            "last": placed[-1],
        }
    if real:
        keys = sorted(map(sort_key, real))
        result |= {"least": keys[0], "most of": (keys[-1], keys.count(keys[-1]))}
        result["float sum"] = math.fsum(real) if all(map(math.isfinite, real)) else sum(real)
        mean = sum(real) / len(real)
        result["moments"] = (len(real), mean, sum((value - mean) ** 2 for value in real))
    return result


def read_registers(left: ClosedWindows, i: int) -> dict[str, Any]:
    """The registers of the i-th window in the form of `expected_registers`."""
    cell = [cells[i].tolist() for cells in left.cells]
    result: dict[str, Any] = {"rows": cell[0][0], "count": cell[1][0], "latest": cell[11][0]}
    if result["count"]:
        result |= {
            "sum": (cell[2][0] << 32) + cell[2][1],
            "most": cell[4][0],
            "least of": (~cell[7][0], cell[7][1]),
            "first": (~cell[8][0], ~cell[8][1], cell[8][2]),
            "last": tuple(cell[9]),
        }
    if cell[10][0]:
        least, most = (
            sort_key(float(decode_floats(np.array([key]))[0])) for key in (~cell[5][0], cell[6][0])
        )
        result |= {
            "least": least,
            "most of": (most, cell[6][1]),
            "float sum": cell[3][0],
            "moments": tuple(cell[10]),
        }
    return result


def same(actual: dict[str, Any], wanted: dict[str, Any]) -> bool:
    near = ("float sum", "moments")
    exact = {k: v for k, v in actual.items() if k not in near} == {
        k: v for k, v in wanted.items() if k not in near
    }
    if not exact or actual.keys() != wanted.keys():
        return False
    return all(_near(actual[k], wanted[k], k == "moments") for k in near if k in wanted)


def _near(a: Any, b: Any, moments: bool) -> bool:
    if moments and not math.isfinite(b[2]):
        return not math.isfinite(a[2])
    return bool(a == pytest.approx(b, rel=1e-9, abs=1e-6, nan_ok=True))


def windows_of(left: ClosedWindows) -> dict[Place, int]:
    places = zip(left.kinds.tolist(), left.slots.tolist(), left.starts.tolist(), strict=True)
    index = {place: i for i, place in enumerate(places)}
    assert len(index) == len(left.slots), "a window left twice"
    return index


def check(left: ClosedWindows, wanted: dict[Place, list[Row]], sizes: list[int]) -> None:
    result = windows_of(left)
    assert result.keys() == wanted.keys()
    for place, i in result.items():
        assert same(read_registers(left, i), expected_registers(wanted[place])), (
            read_registers(left, i),
            expected_registers(wanted[place]),
        )
        assert left.ends[i] == place[2] + sizes[place[0]]
        assert left.times[i] == left.ends[i] - 1


values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
reals = st.none() | st.integers(-4, 4).map(float) | st.sampled_from([math.nan, math.inf, -0.0])
kinds = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=2)


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[list[Row], int]]:
    """Batches with the watermark after each: time moves on, jumps now and then, rows come out of order."""
    now, order, batches = draw(st.integers(-50, 50)), 0, []
    for _ in range(draw(st.integers(1, 6))):
        rows = []
        for _ in range(draw(st.integers(0, 12))):
            time = now + draw(st.integers(-25, 25))
            rows.append(Row(draw(st.integers(0, 3)), time, order, draw(values), draw(reals)))
            order += 1
        batches.append((rows, now - draw(st.integers(0, 30))))
        now += draw(st.sampled_from([0, 3, 10, 40, 700, 100_000]))
    return batches


def store_of(
    pairs: list[tuple[int, int]], lateness: int, way: Any = None, **options: Any
) -> TimeStore | None:
    """A store of windows that share slices; None when they do not or when `way` does not fit."""
    slicings = Slicing.groups(TimeWindow(size, every) for size, every in pairs)
    if len(slicings) > 1 or (way == "direct" and slicings[0].longest > 1):
        return None
    return TimeStore(slicings[0], lateness, EVERY_REGISTER, method=way, **options)


def run(
    store: TimeStore, pairs: list[tuple[int, int]], lateness: int, stream: list[tuple[list[Row], int]]
) -> None:
    twin, watermark = Buckets(pairs, lateness), NEVER
    sizes = [size for size, _ in pairs]
    for rows, next_watermark in [*stream, ([], ENDED)]:
        judged = store.add(input_rows(rows), watermark)
        nothing = np.zeros((len(pairs), len(rows)), np.int64)
        fates, misses = (nothing, nothing) if judged is None else judged
        for i, row in enumerate(rows):
            said = [(Decision(fates[k, i]).name.lower(), int(misses[k, i])) for k in range(len(pairs))]
            assert said == twin.add(row)
        watermark = max(watermark, next_watermark)
        check(store.close(watermark), twin.close(watermark), sizes)
        slots = np.arange(5)
        assert set(slots[store.has_state(slots)].tolist()) >= twin.slots_in_use()
    assert not store.has_state(np.arange(5)).any()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("small", [0, 10**9], ids=["compiled", "plain"])
@fixed
@given(kinds, st.integers(0, 12), streams(), st.integers(1, 3))
@example(
    [(10, 3)], 0, [([Row(0, 5, 0, 1, 1.0)], 0), ([Row(0, -4, 1, 2, 2.0), Row(0, 100_000, 2, 3, 3.0)], 1)], 1
)
def test_windows_are_those_of_a_bucket_per_window_whichever_way_they_are_combined(
    way: Any,
    small: int,
    pairs: list[tuple[int, int]],
    lateness: int,
    stream: list[tuple[list[Row], int]],
    most: int,
) -> None:
    store = store_of(pairs, lateness, way, compile_after=small, max_windows=most)
    if store is not None:
        run(store, pairs, lateness, stream)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@thorough
@given(kinds, st.integers(0, 12), streams(), st.integers(1, 3))
def test_windows_are_those_of_a_bucket_per_window_over_many_streams(
    way: Any, pairs: list[tuple[int, int]], lateness: int, stream: list[tuple[list[Row], int]], most: int
) -> None:
    store = store_of(pairs, lateness, way, compile_after=100, max_windows=most)
    if store is not None:
        run(store, pairs, lateness, stream)


@pytest.mark.slow
@fixed
@given(kinds, st.integers(0, 12), streams(), st.integers(0, 6))
def test_saving_and_loading_between_batches_changes_nothing(
    pairs: list[tuple[int, int]], lateness: int, stream: list[tuple[list[Row], int]], when: int
) -> None:
    store = store_of(pairs, lateness)
    if store is None:
        return
    twin, watermark, turned = Buckets(pairs, lateness), NEVER, np.arange(5)
    for number, (rows, next_watermark) in enumerate([*stream, ([], ENDED)]):
        if number == when:
            held_slots = np.flatnonzero(store.has_state(np.arange(5)))
            again = store_of(pairs, lateness)
            assert again is not None
            again.load(store.export(held_slots), 4 - held_slots)
            store, turned = again, 4 - np.arange(5)  # the keys have other slots from now on
        moved = [row._replace(slot=int(turned[row.slot])) for row in rows]
        store.add(input_rows(moved), watermark)
        for row in rows:
            twin.add(row)
        watermark = max(watermark, next_watermark)
        wanted = {(k, int(turned[slot]), start): r for (k, slot, start), r in twin.close(watermark).items()}
        check(store.close(watermark), wanted, [size for size, _ in pairs])


@pytest.mark.slow
@fixed
@given(kinds, streams())
def test_windows_are_shown_early_when_they_have_changed(
    pairs: list[tuple[int, int]], stream: list[tuple[list[Row], int]]
) -> None:
    store = store_of(pairs, 0)
    if store is None:
        return
    twin, watermark, counts = Buckets(pairs, 0), NEVER, dict[Place, int]()
    for rows, next_watermark in stream:
        store.add(input_rows(rows), watermark)
        for row in rows:
            twin.add(row)
        changed = {place: held for place, held in twin.open.items() if len(held) != counts.get(place)}
        check(store.fire_early(), changed, [size for size, _ in pairs])
        counts = {place: len(held) for place, held in twin.open.items()}
        watermark = max(watermark, next_watermark)
        store.close(watermark)
        twin.close(watermark)


def tumbling(size: int = 10) -> TimeStore:
    return TimeStore(Slicing.of([TimeWindow(size, size)]), 0, [WindowAccumulator(AccumulatorKind.ROWS)])


def test_memory_stays_bounded_by_the_open_slices() -> None:
    store, watermark, sizes = tumbling(), NEVER, []
    for start in range(0, 40_000, 1000):
        times = np.arange(start, start + 1000)
        store.add(InputRows(times % 50, times), watermark)
        watermark = start + 1000
        store.close(watermark)
        sizes.append(store.nbytes)
    assert max(sizes[10:]) == sizes[10]


def test_results_of_a_key_leave_in_the_order_of_their_ends() -> None:
    store = TimeStore(
        Slicing.of([TimeWindow(10, 5)]), 0, [WindowAccumulator(AccumulatorKind.ROWS)], max_windows=2
    )
    store.add(InputRows(np.zeros(3, np.int64), np.array([31, 4, 17])), NEVER)
    assert store.close(ENDED).ends.tolist() == [5, 10, 20, 25, 35, 40]


def test_a_watermark_that_goes_back_lets_nothing_leave_twice() -> None:
    store = tumbling()
    store.add(InputRows(np.zeros(2, np.int64), np.array([3, 13])), NEVER)
    assert store.close(10).ends.tolist() == [10]
    assert store.close(5).ends.tolist() == []
    assert store.close(ENDED).ends.tolist() == [20]


def test_a_row_far_in_the_future_costs_no_memory_for_the_time_between() -> None:
    store = tumbling()
    store.add(InputRows(np.zeros(3, np.int64), np.array([3, 2**60, -(2**60)])), NEVER)
    assert store.nbytes < 100_000
    assert store.close(ENDED).starts.tolist() == [-(2**60) // 10 * 10, 0, 2**60 // 10 * 10]


@pytest.mark.parametrize(
    ("window", "registers", "why"),
    [
        (
            TimeWindow(10, 10),
            [WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0)],
            "tumbling 10 us: direct: a window is one slice, and needs no tree",
        ),
        (
            TimeWindow(100, 10),
            [WindowAccumulator(AccumulatorKind.INT_SUM, 0)],
            "sliding 100 us every 10 us: sweep: two stacks; B-PAT when few windows close at once, for a "
            "logarithm of 10 slices each",
        ),
    ],
)
def test_the_store_says_how_windows_are_put_together_and_why(
    window: TimeWindow, registers: list[WindowAccumulator], why: str
) -> None:
    assert TimeStore(Slicing.of([window]), 0, registers).explain() == (why,)


def test_few_windows_at_once_go_through_the_tree_and_many_through_a_sweep() -> None:
    ring = np.array([[0, 1023, 0, 1000, 900, 2**62, -(2**62), 0]])

    def list_ready(size: int, n: int) -> ReadyWindows:
        window = TimeWindow(size, 1)
        bounds = np.array([0]), np.array([n])
        (ready,) = list_next_windows(JitPolicy(), Slicing.of([window]), window, ring, *bounds)
        return ready

    assert choose_method(900, list_ready(901, 1)) == "tree"
    assert choose_method(100, list_ready(100, 900)) == "sweep"
    assert choose_method(1, list_ready(100, 900)) == "direct"
