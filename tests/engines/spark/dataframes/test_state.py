"""Turns of a group without Spark: state that goes out and in between batches changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import CheckpointError
from penstock.engines.spark.dataframes.window_task import (
    BODY,
    GROUP,
    GROUPS,
    N_SLICE_GROUPS,
    ExecutionPath,
    GroupWindows,
    WindowTask,
)
from penstock.engines.spark.jvm_partials import JvmPartials
from penstock.engines.wire import unpack_batch
from penstock.operators.aggregates import Aggregate
from penstock.stages.rows.input import NEVER
from tests.support.dataframes import SCHEMA, S, at, judged_stream, same
from tests.support.window_tasks import recipe

FOLD = ps.fold(lambda row: row.n * 2.0, lambda a, b: a + b, 0.0, columns="n", type="float64")
CASES: list[tuple[Any, dict[str, Aggregate]]] = [
    (ps.sliding("10 s", "3 s"), {"twice": FOLD, "most": ps.max_count("n")}),
    ({"a": ps.tumbling("1.000001 s"), "b": ps.sliding("10 s", "3 s")}, {"most": ps.max_count("n")}),
    (ps.sliding("3 s", "5 s"), {"all": ps.collect("n")}),
    (ps.session("4 s"), {"rows": ps.count()}),
    (ps.count_window(3, 2), {"all": ps.collect("n")}),
    (ps.sliding("10 s", "3 s"), {"all": ps.collect("n"), "last": ps.last("price")}),
]


def packed_by_group(task: WindowTask, batches: Sequence[pa.RecordBatch]) -> dict[int, list[bytes]]:
    """What Spark's exchange brings to each group."""
    result: dict[int, list[bytes]] = {}
    for batch in task.pack_by_group(iter(batches)):
        for group, body in zip(*(batch.column(name).to_pylist() for name in (GROUP, BODY)), strict=True):
            result.setdefault(group, []).append(body)
    return result


class Stream:
    """What Spark does with the turns of one task: groups, state, watermark, timers."""

    def __init__(self, task: WindowTask, delay: int) -> None:
        self._recipe, self._delay, self._turns = task, delay, GroupWindows(task)
        self.held: dict[int, bytes] = {}
        self._timers: dict[int, int] = {}
        self._greatest: int | None = None

    def push(self, table: pa.Table) -> list[dict[str, Any]]:
        """One batch, and the batch without rows after it."""
        left = self._batch(table)
        times = table.column("ts").cast(pa.int64()).to_pylist()
        self._greatest = max([*times, *([] if self._greatest is None else [self._greatest])], default=None)
        return left + self._batch(table.slice(0, 0))

    def _batch(self, table: pa.Table) -> list[dict[str, Any]]:
        packed = packed_by_group(self._recipe, table.to_batches())
        watermark = NEVER if self._greatest is None else self._greatest - self._delay
        due = [group for group, time in self._timers.items() if time <= watermark]
        return [
            row for group in {**packed, **dict.fromkeys(due)} for row in self._turn(group, packed, watermark)
        ]

    def _turn(self, group: int, packed: dict[int, list[bytes]], watermark: int) -> list[dict[str, Any]]:
        state, bodies = self._turns.advance(self.held.pop(group, None), packed.get(group, []), watermark)
        self._timers.pop(group, None)
        if state is not None:
            self.held[group] = state
            self._timers[group] = max(self._turns.next_emission(watermark), watermark + 1)
        results = [unpack_batch(body, self._recipe.results).rows for body in bodies]
        return [row for batch in results for row in batch.to_pylist()]


def both(
    batches: Sequence[pa.Table], window: Any, aggregates: dict[str, Aggregate]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    stream = Stream(recipe(window, aggregates, lateness="2 s"), delay=5 * S)
    ours = [row for batch in batches for row in stream.push(batch)]
    return ours, judged_stream(batches, ["page"], window, aggregates, delay="5 s", lateness="2 s")


TIMES = st.lists(st.lists(st.integers(-40, 80), min_size=1, max_size=6), min_size=1, max_size=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "aggregates"), CASES, ids=["fold", "apart", "hopping", "session", "count", "sliding"]
)
@settings(max_examples=25)
@given(times=TIMES)
def test_turns_let_go_what_the_reference_engine_lets_go(
    window: Any, aggregates: dict[str, Aggregate], times: list[list[int]]
) -> None:
    batches = [at(*seconds, page="ab"[i % 2]) for i, seconds in enumerate(times)]
    ours, theirs = both(batches, window, aggregates)
    assert same(ours, theirs)


@pytest.mark.parametrize(("window", "aggregates"), CASES[:4], ids=["fold", "apart", "hopping", "session"])
def test_when_all_windows_have_left_there_is_no_state(window: Any, aggregates: dict[str, Aggregate]) -> None:
    stream = Stream(recipe(window, aggregates), delay=0)
    stream.push(at(1, 2, 11))
    assert stream.held
    stream.push(at(1_000, page="b"))
    assert len(stream.held) <= 1  # what there is of the last row


def test_slices_from_the_jvm_are_taken_before_windows_leave() -> None:
    task = recipe(ps.tumbling("10 s"))
    assert task.path is ExecutionPath.JVM
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["a"]), pa.array([0], pa.int64()), pa.array([3], pa.int64())],
        names=["k0", "start", "p0"],
    )
    (packed,) = list(task.pack_by_group(iter([batch])))
    state, bodies = GroupWindows(task).advance(None, packed.column(BODY).to_pylist(), 10 * S)
    (result,) = [unpack_batch(body, task.results).rows.to_pylist() for body in bodies]
    assert [row["rows"] for row in result] == [3]
    assert state is None


def test_state_of_another_step_is_refused() -> None:
    stream = Stream(recipe(ps.session("4 s")), delay=0)
    stream.push(at(1, 2))
    (state,) = stream.held.values()
    with pytest.raises(CheckpointError, match="its window differs"):
        GroupWindows(recipe(ps.session("5 s"))).advance(state, [], 10 * S)


def test_the_next_turn_is_when_a_window_may_leave() -> None:
    assert GroupWindows(recipe(ps.sliding("10 s", "5 s"), lateness="1 s")).next_emission(11 * S) == 16 * S
    assert GroupWindows(recipe(ps.session("4 s"))).next_emission(11 * S) == 11 * S + 1


def test_rows_go_to_groups_by_bucket() -> None:
    table = pa.Table.from_pylist([{"page": str(i), "ts": i, "n": i} for i in range(500)], schema=SCHEMA)
    task = recipe(ps.session("1 s"))
    (packed,) = list(task.pack_by_group(iter(table.to_batches())))
    groups = packed.column(GROUP).to_pylist()
    assert sorted(groups) == sorted(GROUPS)
    rows = [unpack_batch(body, SCHEMA).num_rows for body in packed.column(BODY).to_pylist()]
    assert sum(rows) == 500


def test_slices_of_a_stream_go_to_few_groups_and_those_of_a_batch_to_all() -> None:
    assert len(recipe(ps.tumbling("10 s")).groups) == N_SLICE_GROUPS
    assert recipe(ps.tumbling("10 s"), streams=False).groups == GROUPS


class Jvm:
    """Spark's aggregation on the native road, as a dict: slices leave once the watermark has closed them."""

    def __init__(self, task: WindowTask) -> None:
        self._slicing = JvmPartials(task.op, task.up).slicing
        self._lateness = task.windows.lateness
        self._counts: dict[tuple[str, int], int] = {}

    def take(self, table: pa.Table) -> None:
        for page, time in zip(table.column("page").to_pylist(), times_of(table), strict=True):
            slice_ = page, self._slicing.id_of(time)
            self._counts[slice_] = self._counts.get(slice_, 0) + 1

    def close(self, watermark: int) -> pa.RecordBatch:
        closed = [
            place for place in self._counts if self._slicing.bounds(place[1])[1] + self._lateness <= watermark
        ]
        rows = [(page, self._slicing.start_of(id_), self._counts.pop((page, id_))) for page, id_ in closed]
        columns = [[row[i] for row in rows] for i in range(3)]
        types = pa.string(), pa.int64(), pa.int64()
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, names=["k0", "start", "p0"])


def times_of(table: pa.Table) -> list[int]:
    rows: list[int] = table.column("ts").cast(pa.int64()).to_pylist()
    return rows


@pytest.mark.slow
@given(apart=st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6), min_size=1, max_size=8))
@settings(max_examples=40)
def test_slices_that_the_jvm_closes_make_the_windows_of_the_reference_engine(apart: list[list[int]]) -> None:
    window = ps.sliding("10 s", "3 s")
    batches = [at(*(8 * i + t for t in seconds), page="ab"[i % 2]) for i, seconds in enumerate(apart)]
    task = recipe(window, lateness="1 s")
    jvm, turns, held, ours = (
        Jvm(task),
        GroupWindows(task),
        dict[int, bytes](),
        list[dict[str, Any]](),
    )
    for i, batch in enumerate(batches):
        jvm.take(batch)
        watermark = max(max(times_of(batch_)) for batch_ in batches[: i + 1]) - 12 * S
        packed = packed_by_group(task, [jvm.close(watermark)])
        for group in {**packed, **held}:
            state, bodies = turns.advance(held.pop(group, None), packed.get(group, []), watermark)
            held |= {} if state is None else {group: state}
            for body in bodies:
                ours += unpack_batch(body, task.results).rows.to_pylist()
    theirs = judged_stream(batches, ["page"], window, {"rows": ps.count()}, delay="12 s", lateness="1 s")
    assert same(ours, theirs)
