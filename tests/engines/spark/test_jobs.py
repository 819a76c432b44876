"""When one task carries a whole turn, and what a round tells of itself."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.engines.spark.jobs import LITTLE_KEPT, LITTLE_SENT, LITTLE_WORK
from penstock.engines.spark.leg_plan import RoundPlan, Task
from penstock.engines.spark.legs import cut
from penstock.engines.spark.wire import Sent
from penstock.engines.state_files import StateFiles
from penstock.events import BatchDone, Event, StateSaved
from tests.engines.spark.here import JobsHere, LegsHere


def jobs() -> JobsHere:
    graph = ps.PipeGraph("small")
    rows = graph.source(ps.read.rows([{"v": 1}]))
    rows.key_by("v").accumulate(lambda row, n: n + 1, 0, schema={"n": int}).sink(ps.write.memory())
    plan = graph.plan()
    return JobsHere(plan, cut(plan), n_parts=2, seed=0, alone=lambda job: False)


def task(kept: int = 0) -> Task:
    state = {"sums": {7: ("0000000001-1-0-abc.state", 0, kept)}}
    return Task((RoundPlan(0, 0, {}),), "this", "last", state, StateFiles("state", durable=False))


def sent(nbytes: int) -> list[Sent]:
    return [Sent(1, 0, 0, 0, b"x" * nbytes)]


def test_a_turn_with_little_to_carry_to_keep_and_to_do_is_one_task() -> None:
    made = jobs()
    made._worked = LITTLE_WORK
    assert made._is_little(sent(LITTLE_SENT), task(LITTLE_KEPT), {})


@pytest.mark.parametrize(
    ("nbytes", "kept", "worked"),
    [(LITTLE_SENT + 1, 0, 0), (0, LITTLE_KEPT + 1, 0), (0, 0, LITTLE_WORK + 1)],
    ids=["rows", "state", "work"],
)
def test_much_of_anything_is_spread_over_the_parts(nbytes: int, kept: int, worked: int) -> None:
    made = jobs()
    made._worked = worked
    assert not made._is_little(sent(nbytes), task(kept), {})


def test_a_round_tells_its_rows_its_time_and_its_lag_and_state_its_bytes() -> None:
    graph = ps.PipeGraph("told")
    batches = [[{"t": 1, "key": "a"}, {"t": 5, "key": "b"}], [{"t": 14, "key": "a"}]]
    reader = ps.read.batches(batches, schema={"t": "int64", "key": "string"})
    rows = graph.source(reader, time="t", time_unit="s", delay="2 s", name="rows")
    counts = rows.key_by("key").window(ps.tumbling("10 s"), name="counts").aggregate(n=ps.count())
    counts.sink(ps.write.memory(), name="out")
    heard: list[Event] = []
    graph.run(LegsHere(), clock=ps.ManualClock(60_000_000), events=heard.append, until=2)
    done = [event for event in heard if isinstance(event, BatchDone)]
    assert [(event.rows_in, event.rows_out) for event in done] == [
        ({"rows": 2}, {"out": 0}),
        ({"rows": 1}, {"out": 2}),
    ]
    assert [event.lag_us for event in done] == [{"rows": 57_000_000}, {"rows": 48_000_000}]
    assert set(done[0].parts_us) == {"read", "job", "work", "write"}
    (saved,) = (event for event in heard if isinstance(event, StateSaved))
    assert 0 < saved.nbytes < saved.kept_nbytes
