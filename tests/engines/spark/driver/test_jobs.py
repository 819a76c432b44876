"""When one task carries a whole turn, and what a round tells of itself."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.engines.checkpoint.state_files import StateFiles, StateHandle
from penstock.engines.spark.driver.jobs import (
    PARTITION_ROWS,
    PARTITION_STATE,
    ROW_WEIGHT,
    SMALL_INPUT,
    SMALL_STATE,
    SMALL_WORK,
    balance_slots,
)
from penstock.engines.spark.driver.rounds import SourceRound
from penstock.engines.spark.file_splits import FileSplit, RemoteBatch
from penstock.engines.spark.fragments import JobTask, RoundPlan
from penstock.engines.spark.wire import NO_EDGE, Kind, WireRow
from penstock.events import BatchDone, Event, StateSaved
from tests.support.spark_in_process import InProcessJobs, InProcessSparkEngine


def jobs() -> InProcessJobs:
    graph = ps.PipeGraph("small")
    rows = graph.source(ps.read.rows([{"v": 1}]))
    rows.key_by("v").accumulate(lambda row, n: n + 1, 0, schema={"n": int}).sink(ps.write.memory())
    plan = graph.plan()
    return InProcessJobs(plan, n_partitions=2, seed=0, alone=lambda job: False)


def task(nbytes_held: int = 0) -> JobTask:
    state = {"sums": {7: StateHandle("0000000001-1-0-abc.state", 0, nbytes_held)}}
    return JobTask((RoundPlan(0, 0, {}),), "this", "last", state, StateFiles("state", durable=False))


def wire_rows(nbytes: int) -> list[WireRow]:
    return [WireRow(1, Kind.BATCH, 0, 0, 0, b"x" * nbytes)]


def test_a_turn_with_little_to_carry_to_keep_and_to_do_is_one_task() -> None:
    runner = jobs()
    runner._work_us = SMALL_WORK
    assert runner._is_small(wire_rows(SMALL_INPUT), 0, task(SMALL_STATE))


@pytest.mark.parametrize(
    ("nbytes", "nbytes_held", "worked"),
    [(SMALL_INPUT + 1, 0, 0), (0, SMALL_STATE + 1, 0), (0, 0, SMALL_WORK + 1)],
    ids=["rows", "state", "work"],
)
def test_much_of_anything_is_spread_over_the_parts(nbytes: int, nbytes_held: int, worked: int) -> None:
    runner = jobs()
    runner._work_us = worked
    assert not runner._is_small(wire_rows(nbytes), 0, task(nbytes_held))


def test_partitions_are_more_where_rows_or_keys_are_many() -> None:
    runner = jobs()
    assert runner._count_partitions({}, 0, {}) == 2
    assert runner._count_partitions({}, 5 * PARTITION_ROWS, {}) == 8
    assert runner._count_partitions({}, 10**9, {}) == 256
    assert runner._count_partitions({}, 0, task(3 * PARTITION_STATE).state) == 4


def pointer(n_rows: int) -> WireRow:
    return WireRow(0, Kind.READ, NO_EDGE, 0, 0, FileSplit("s", 0, "a.parquet", 0, 1, 0, n_rows).to_bytes())


def test_files_with_few_rows_are_little_and_with_many_are_not() -> None:
    assert jobs()._is_small([pointer(SMALL_INPUT // ROW_WEIGHT)], 0, task())
    assert not jobs()._is_small([pointer(SMALL_INPUT // ROW_WEIGHT + 1)], 0, task())


def test_equal_slices_of_what_is_sent_are_equal_work() -> None:
    calls = [WireRow(1, Kind.WAKE, NO_EDGE, 0, part) for part in range(3)]
    slots = balance_slots([pointer(10), pointer(30), pointer(20), *calls], 2, 0)
    rows = [row for slot in slots for row in slot]
    n_rows = [
        [FileSplit.from_bytes(r.body).n_rows for r in slot if r.kind is Kind.READ and r.body]
        for slot in slots
    ]
    assert n_rows == [[30], [20, 10]]
    assert len({len(slot) for slot in slots}) == 1
    assert [{r.partition for r in slot if r.kind is Kind.READ} for slot in slots] == [{0}, {1}]
    assert [r for r in rows if r.fragment == 1] == calls
    assert all(r.kind is Kind.WAKE for r in rows if r.fragment == 0 and r.body is None)


def test_rows_that_workers_make_parts_of_at_once_fill_a_turn_more_slowly() -> None:
    def load(rows_as_one: int) -> int:
        batch = RemoteBatch((), 1_600, 0, 0, by_workers=True, rows_as_one=rows_as_one)
        return SourceRound(0, 0, {"s": batch}, {}, frozenset()).size[1]

    assert (load(1), load(16)) == (1_600, 100)


def test_a_round_tells_its_rows_its_time_and_its_lag_and_state_its_bytes_and_rows() -> None:
    graph = ps.PipeGraph("told")
    batches = [[{"t": 1, "key": "a"}, {"t": 5, "key": "b"}], [{"t": 14, "key": "a"}]]
    reader = ps.read.batches(batches, schema={"t": "int64", "key": "string"})
    rows = graph.source(reader, time="t", time_unit="s", delay="2 s", name="rows")
    counts = rows.key_by("key").window(ps.tumbling("10 s"), name="counts").aggregate(n=ps.count())
    counts.sink(ps.write.memory(), name="out")
    heard: list[Event] = []
    graph.run(InProcessSparkEngine(), clock=ps.ManualClock(60_000_000), events=heard.append, until=2)
    done = [event for event in heard if isinstance(event, BatchDone)]
    assert [(event.rows_in, event.rows_out) for event in done] == [
        ({"rows": 2}, {"out": 0}),
        ({"rows": 1}, {"out": 2}),
    ]
    assert [event.lag_us for event in done] == [{"rows": 57_000_000}, {"rows": 48_000_000}]
    assert set(done[0].parts_us) == {"read", "job", "work", "write"}
    (saved,) = (event for event in heard if isinstance(event, StateSaved))
    assert 0 < saved.nbytes < saved.kept_nbytes
    assert saved.kept_rows == 1  # the slice of the row at 14
