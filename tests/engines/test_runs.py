"""Runs and sessions as the seam knows them: sinks, stops, events, failures, on engines in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from penstock.clock import ManualClock
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.engines.local.engine import LocalEngine
from penstock.engines.reference.engine import ReferenceEngine
from penstock.errors import ConnectorError, EngineError, FunctionError, GraphError
from penstock.events import BatchDone, Event, RowsErrored, RowsLate, RunEnded, RunStarted, StepFailed
from penstock.expr import col
from penstock.operators.aggregates import count
from penstock.operators.ends import Sink, Source
from penstock.operators.rows import WithColumns
from penstock.operators.windows import KeyedWindows
from penstock.options import LocalOptions
from penstock.plan.plan import Ref
from penstock.timing.windows import tumbling
from tests.support.plans import KTV, BatchesReader, PlanBuilder, PlanRun, batch


@pytest.fixture(params=["reference", "local", "local without rounds"])
def builder(request: pytest.FixtureRequest) -> PlanBuilder:
    """A plan to be run by one of the engines."""
    return on(request.param)


@pytest.fixture(params=["reference", "local"])
def rounds(request: pytest.FixtureRequest) -> PlanBuilder:
    """A plan to be run in rounds by one of the engines."""
    return on(request.param)


def on(engine: str) -> PlanBuilder:
    """An empty plan for an engine."""
    if engine == "reference":
        return PlanBuilder(engine=ReferenceEngine())
    return PlanBuilder(engine=LocalEngine(), engine_options=LocalOptions(deterministic=engine == "local"))


@dataclass
class Diary:
    """A writer, and its own output, that notes what is asked of it."""

    log: list[str] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    fails: str = ""
    delivery: Delivery = Delivery.EXACTLY_ONCE
    accepts_updates: bool = True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> Diary:
        return self._note("open", f"open {sink}")

    def write(self, number: int, rows: pa.RecordBatch) -> None:
        self._note("write", f"write {number}")
        self.rows += [tuple(row.values()) for row in rows.to_pylist()]

    def commit(self, number: int) -> None:
        self._note("commit", f"commit {number}")

    def close(self) -> None:
        self._note("close", "close")

    def describe(self) -> str:
        return "a diary"

    def _note(self, topic: str, text: str) -> Diary:
        if topic == self.fails:
            raise OSError("disk full")
        self.log.append(text)
        return self


def of_kind(ran_events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in ran_events if isinstance(event, kind)]


def test_a_sink_gets_each_round_once_under_its_number_and_is_closed(builder: PlanBuilder) -> None:
    diary = Diary()
    rows = builder.source([("a", 1, 1)], [], [("a", 2, 2)])
    builder.add(Sink(writer=diary, name="out"), rows)
    ran = builder.run()
    assert diary.log == ["open out", "write 0", "commit 0", "write 2", "commit 2", "close"]
    assert diary.rows == [("a", 1, 1), ("a", 2, 2)]
    assert ran.result.accounts["out"].is_balanced


def test_what_leaves_at_the_end_is_committed_under_the_next_number(builder: PlanBuilder) -> None:
    diary = Diary()
    window = builder.add(
        KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), builder.source([("a", 1, 1)])
    )
    builder.add(Sink(writer=diary, name="out"), window)
    builder.run()
    assert diary.log == ["open out", "write 1", "commit 1", "close"]


def test_when_one_sink_cannot_be_opened_the_others_are_closed_and_nothing_is_read(
    builder: PlanBuilder,
) -> None:
    good, bad = Diary(), Diary(fails="open")
    rows = builder.source([("a", 1, 1)])
    builder.add(Sink(writer=good, name="good"), rows)
    builder.add(Sink(writer=bad, name="bad"), rows)
    with pytest.raises(ConnectorError, match="could not open a diary") as failure:
        builder.run()
    assert failure.value.step == "bad"
    assert good.log == ["open good", "close"]


@pytest.mark.parametrize("fails", ["write", "commit"])
def test_a_writer_that_fails_stops_the_run_and_is_closed(builder: PlanBuilder, fails: str) -> None:
    diary = Diary(fails=fails)
    builder.add(Sink(writer=diary, name="out"), builder.source([("a", 1, 1)]))
    with pytest.raises(ConnectorError, match="could not write a diary") as failure:
        builder.run()
    assert failure.value.detail == "OSError: disk full"
    assert diary.log[-1] == "close"


def test_a_writer_that_cannot_be_closed_fails_the_run_after_all_others_are_closed(
    builder: PlanBuilder,
) -> None:
    bad, good = Diary(fails="close"), Diary()
    rows = builder.source([("a", 1, 1)])
    builder.add(Sink(writer=bad, name="bad"), rows)
    builder.add(Sink(writer=good, name="good"), rows)
    with pytest.raises(ConnectorError, match="could not close a diary") as failure:
        builder.run()
    assert failure.value.step == "bad"
    assert good.log[-1] == "close"


@dataclass(frozen=True)
class EndlessReader(BatchesReader):
    """Never ends; notes when it is closed."""

    closed: list[bool] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)

    def batches(self) -> Iterator[SourceBatch]:
        try:
            while True:
                yield batch([("a", 1, 1)])
                self.started.set()
        finally:
            self.closed.append(True)


def test_stop_ends_a_run_without_draining_and_closes_its_readers(builder: PlanBuilder) -> None:
    reader = EndlessReader((), KTV)
    rows = builder.add(Source(reader=reader, time="t", time_unit="us", delay=0))
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows)
    run = builder.start(out)
    assert reader.started.wait(10)
    with pytest.raises(TimeoutError, match="plan is not over"):
        run.wait(timeout=0)
    run.stop()
    result = run.wait(timeout=10)
    assert result.outcome == "stopped"
    assert result.collected[out].num_rows == 0
    assert reader.closed == [True]
    assert run.metrics()[rows.step].rows_in >= 1


def test_until_stops_after_so_many_rounds_without_draining(builder: PlanBuilder) -> None:
    rows = builder.source([("a", 1, 1)], [("a", 2, 2)], [("a", 3, 3)])
    ran = builder.run(until=2)
    assert (ran.result.outcome, ran.result.batches) == ("stopped", 2)
    assert ran.rows(rows) == [("a", 1, 1), ("a", 2, 2)]


@dataclass(frozen=True)
class BrokenReader(BatchesReader):
    def batches(self) -> Iterator[SourceBatch]:
        yield batch([("a", 1, 1)])
        raise OSError("connection lost")


def test_a_reader_that_fails_stops_the_run_naming_the_source(builder: PlanBuilder) -> None:
    builder.add(Source(reader=BrokenReader((), KTV), name="s"))
    with pytest.raises(ConnectorError, match="could not read rows of a test") as failure:
        builder.run()
    assert (failure.value.step, failure.value.detail) == ("s", "OSError: connection lost")


def test_the_events_of_a_run_tell_its_story(rounds: PlanBuilder) -> None:
    builder = rounds
    rows = builder.source([("a", 30, 1)], [("a", 1, 0)], name="s")
    mapped = builder.add(WithColumns(columns={"w": 1 // col("v")}, on_error="skip", name="m"), rows)
    late = builder.source([("b", 50, 1)], [("b", 1, 1)], name="s2")
    window = KeyedWindows(windows=tumbling(10), aggregates={"n": count()}, name="w")
    builder.add(window, late)
    diary = Diary()
    builder.add(Sink(writer=diary, name="out"), mapped)
    events = builder.run(clock=ManualClock(7)).events
    assert events[0] == RunStarted(7, "plan", builder.engine.name, ("s", "m", "s2", "w", "out"))
    assert [(done.batch, done.rows_in, done.rows_out) for done in of_kind(events, BatchDone)] == [
        (0, {"s": 1, "s2": 1}, {"out": 1}),
        (1, {"s": 1, "s2": 1}, {"out": 0}),
        (2, {"s": 0, "s2": 0}, {"out": 0}),
    ]
    assert of_kind(events, RowsLate) == [RowsLate(7, "w", 1)]
    (failed,) = of_kind(events, RowsErrored)
    assert (failed.step, failed.rows, failed.policy) == ("m", 1, "skip")
    assert events[-1] == RunEnded(7, "drained", 2)


def test_a_failed_run_says_which_step_failed_and_ends(builder: PlanBuilder) -> None:
    events: list[Event] = []
    builder.add(WithColumns(columns={"w": 1 // col("v")}, name="m"), builder.source([("a", 1, 0)]))
    run = builder.start(events=events.append)
    with pytest.raises(FunctionError):
        run.wait(timeout=10)
    (failed,) = of_kind(events, StepFailed)
    assert failed.step == "m"
    assert events[-1] == RunEnded(0, "failed", 0)


def test_a_plan_runs_any_number_of_times_with_the_same_result(builder: PlanBuilder) -> None:
    rows = builder.source([("a", 1, 1)], [("a", 12, 2)])
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows)
    assert builder.run().rows(out) == builder.run().rows(out)


def test_a_session_goes_round_by_round_and_gives_what_left_since_the_last_take(builder: PlanBuilder) -> None:
    rows = builder.source(name="s")
    out = builder.add(KeyedWindows(windows=tumbling(10), aggregates={"n": count()}), rows)
    harness = builder.open_harness()
    harness.push({"s": batch([("a", 1, 1)])})
    assert harness.take(out).num_rows == 0
    harness.promise(10)
    assert harness.take(out).to_pylist() == [{"window_start": 0, "window_end": 10, "n": 1}]
    harness.push({"s": batch([("a", 2, 1), ("a", 11, 1)])})
    assert harness.metrics()[out.step].late == 1
    result = harness.end()
    assert harness.take(out).num_rows == 1
    assert (result.outcome, result.batches) == ("drained", 3)
    assert result.collected[out].num_rows == 2


def test_a_session_refuses_sources_and_ports_that_it_does_not_have_and_work_after_its_end(
    builder: PlanBuilder,
) -> None:
    builder.source(name="views")
    harness = builder.open_harness()
    with pytest.raises(GraphError, match='no source "view"') as unknown:
        harness.push({"view": batch([])})
    assert unknown.value.detail == "the sources are views"
    with pytest.raises(GraphError, match='rows of "view" are not collected'):
        harness.take(Ref("view"))
    harness.end()
    for call in (harness.end, lambda: harness.push({}), lambda: harness.promise(1)):
        with pytest.raises(EngineError, match="is over"):
            call()


def test_a_session_that_fails_is_over(builder: PlanBuilder) -> None:
    rows = builder.source(name="s")
    builder.add(WithColumns(columns={"w": 1 // col("v")}, name="m"), rows)
    harness = builder.open_harness()
    with pytest.raises(FunctionError):
        harness.push({"s": batch([("a", 1, 0)])})
    with pytest.raises(EngineError, match="is over"):
        harness.end()


def test_ctrl_c_while_waiting_stops_the_run(builder: PlanBuilder) -> None:
    reader = EndlessReader((), KTV)
    builder.add(Source(reader=reader))
    run: Any = builder.start()
    assert reader.started.wait(10)
    waits: list[float | None] = []
    real_wait = run._over.wait

    def interrupt(timeout: float | None = None) -> bool:
        waits.append(timeout)
        if len(waits) == 1:
            raise KeyboardInterrupt
        return bool(real_wait(timeout))

    run._over.wait = interrupt  # Ctrl-C cannot be pressed in this process
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert reader.closed == [True]


def test_the_result_holds_the_tables_that_were_asked_for(builder: PlanBuilder) -> None:
    rows = builder.source([("a", 1, 1)])
    ran: PlanRun = builder.run(rows)
    assert list(ran.result.collected) == [rows]
    assert ran.result.collected[rows].schema == KTV
