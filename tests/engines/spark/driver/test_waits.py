"""Sources that keep a run waiting: silence, the clock, and what is the same when a round is done again."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import crash_points
from penstock.engines.spark.driver import rounds as ahead
from penstock.engines.spark.session.session import RunSession
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": int, "v": int}


class Feed:
    """A source that never ends: rows, then silence until the test is over."""

    def __init__(self, *rows: tuple[int, int], batch: int = 1) -> None:
        self.rows, self.batch, self.over = rows, batch, threading.Event()

    def __call__(self) -> Iterator[dict[str, int]]:
        for t, v in self.rows:
            yield {"t": t, "v": v}
        self.over.wait(120)

    def source(self, graph: ps.PipeGraph, name: str, **options: Any) -> ps.MultiPipe:
        reader = ps.read.generator(self, schema=SCHEMA, batch=self.batch, bounded=False)
        return graph.source(reader, time="t", time_unit="s", delay="0 s", name=name, **options)


def first_rows(pipe: ps.MultiPipe, wanted: int, *feeds: Feed) -> list[dict[str, Any]]:
    """The first rows that leave a run on Spark that would go on for ever; it is stopped then."""
    seen: list[dict[str, Any]] = []
    enough = threading.Event()

    def take(batch: pa.RecordBatch) -> None:
        seen.extend(batch.to_pylist())
        if len(seen) >= wanted:
            enough.set()

    pipe.sink(ps.write.callback(take))
    run = pipe.graph.start("spark")
    assert enough.wait(120)
    run.stop()
    assert run.wait(60).outcome == "stopped"
    for feed in feeds:
        feed.over.set()
    return seen


@pytest.mark.slow
def test_windows_leave_though_a_source_is_silent_once_it_is_idle(spark_session: RunSession) -> None:
    quick, silent = Feed((1, 1), (2, 2), (30, 4)), Feed()
    graph = ps.PipeGraph("idle")
    merged = quick.source(graph, "quick").merge(silent.source(graph, "silent", idle="50 ms"))
    sums = merged.window(ps.tumbling("10 s"), name="w").aggregate(s=ps.sum("v"))
    assert first_rows(sums, 1, quick, silent) == [{"window_start": 0, "window_end": 10, "s": 3}]


@pytest.mark.slow
def test_rows_of_one_source_go_on_beside_a_silent_one(spark_session: RunSession) -> None:
    quick, silent = Feed((1, 1), (2, 2)), Feed()
    graph = ps.PipeGraph("beside")
    merged = quick.source(graph, "quick").merge(silent.source(graph, "silent"))
    assert first_rows(merged, 2, quick, silent) == [{"t": 1, "v": 1}, {"t": 2, "v": 2}]


@pytest.mark.slow
def test_early_results_leave_though_no_row_comes(spark_session: RunSession) -> None:
    feed = Feed((1, 1), (2, 2), batch=2)
    graph = ps.PipeGraph("early")
    windows = feed.source(graph, "rows").window(ps.tumbling("10 s"), name="w", early="50 ms")
    rows = first_rows(windows.aggregate(s=ps.sum("v")), 1, feed)
    assert rows == [{"window_start": 0, "window_end": 10, "s": 3, "final": False}]


@pytest.mark.slow
def test_a_run_stops_while_nothing_comes(spark_session: RunSession) -> None:
    feed = Feed()
    graph = ps.PipeGraph("silent")
    feed.source(graph, "rows").sink(ps.write.memory())
    run = graph.start("spark")
    run.stop()
    assert run.wait(60).outcome == "stopped"
    feed.over.set()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [SystemExit, GeneratorExit])
def test_a_generator_that_ends_its_thread_ends_the_run(
    spark_session: RunSession, stop: type[BaseException]
) -> None:
    def leave() -> Iterator[dict[str, int]]:
        yield {"v": 1}
        raise stop("enough")

    graph = ps.PipeGraph("leave")
    graph.source(ps.read.generator(leave, schema={"v": int})).sink(ps.write.memory())
    run = graph.start("spark")
    with pytest.raises(stop, match="enough"):
        run.wait(60)
    assert run.status().state == "failed"


@pytest.mark.slow
def test_rows_leave_though_their_batch_is_not_full(spark_session: RunSession) -> None:
    feed = Feed((1, 1), (2, 2), batch=100)
    assert first_rows(feed.source(ps.PipeGraph("waited"), "rows"), 2, feed) == [
        {"t": 1, "v": 1},
        {"t": 2, "v": 2},
    ]


@pytest.mark.slow
def test_windows_of_ingest_time_leave_by_the_clock_though_no_row_comes(spark_session: RunSession) -> None:
    feed = Feed((1, 1), (2, 2), batch=2)
    graph = ps.PipeGraph("silence")
    reader = ps.read.generator(feed, schema=SCHEMA, batch=2, bounded=False)
    rows = graph.source(reader, time=ps.ingest_time(), name="rows")
    sums = rows.window(ps.tumbling("300 ms")).aggregate(s=ps.sum("v"))
    assert sum(row["s"] for row in first_rows(sums, 1, feed)) in (1, 3)  # two windows, if they are cut apart


@pytest.mark.slow
def test_a_run_that_is_stopped_closes_its_windows_first_if_asked_to(spark_session: RunSession) -> None:
    feed, seen = Feed((1, 1), (2, 2)), list[dict[str, Any]]()
    graph = ps.PipeGraph("drained")
    rows, second_row = feed.source(graph, "rows"), threading.Event()
    rows.filter(ps.col("v") == 2).sink(ps.write.callback(lambda batch: second_row.set()))
    sums = rows.window(ps.tumbling("10 s"), name="w").aggregate(s=ps.sum("v"))
    sums.sink(ps.write.callback(lambda batch: seen.extend(batch.to_pylist())))
    run = graph.start("spark")
    assert second_row.wait(120)
    run.stop(drain=True)
    assert run.wait(60).outcome == "drained"
    assert seen == [{"window_start": 0, "window_end": 10, "s": 3}]
    feed.over.set()


@pytest.mark.slow
@pytest.mark.parametrize("follow", [True, False], ids=["a query", "plain jobs"])
def test_a_stop_gives_up_a_long_micro_batch_and_a_restart_runs_it_again(
    spark_session: RunSession, tmp_path: Path, *, follow: bool
) -> None:
    begun, gate, out = tmp_path / "begun", tmp_path / "gate", tmp_path / "out"
    (tmp_path / "in").mkdir()
    for number in range(3):
        lines = (json.dumps({"v": 10 * number + place}) for place in range(10))
        (tmp_path / "in" / f"{number}.jsonl").write_text("\n".join(lines))

    def hold(row: dict[str, int]) -> dict[str, int]:
        begun.touch()
        while not gate.exists():
            time.sleep(0.01)
        return row

    def start() -> ps.Run:
        graph = ps.PipeGraph("held")
        rows = graph.source(ps.read.jsonl(str(tmp_path / "in"), schema={"v": int}, follow=follow))
        rows.map(hold, schema={"v": int}, name="hold").sink(ps.write.jsonl(str(out)))
        return graph.start("spark", checkpoint=str(tmp_path / "checkpoint") if follow else None)

    for _ in range(2):
        run = start()
        while not begun.exists():
            time.sleep(0.01)
        run.stop()
        stopped = run.wait(60)
        assert (stopped.outcome, stopped.batches, stopped.accounts["hold"].rows_in) == ("stopped", 0, 0)
        begun.unlink()
    gate.touch()
    run = start()
    expected = list(range(30))
    if follow:
        while len(read_values(out)) < len(expected):
            time.sleep(0.01)
        run.stop(drain=True)
    assert run.wait(60).accounts["hold"].rows_out == len(expected)
    assert read_values(out) == expected


def read_values(folder: Path) -> list[int]:
    """Return the values in the files that a run has published, in order."""
    lines = (line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())
    return sorted(json.loads(line)["v"] for line in lines)


def test_a_source_that_fails_stops_the_run_with_its_name() -> None:
    def fail() -> Iterator[dict[str, int]]:
        yield {"t": 1, "v": 1}
        raise OSError("the cable is out")

    graph = ps.PipeGraph("failing")
    reader = ps.read.generator(fail, schema=SCHEMA, batch=1, bounded=False)
    graph.source(reader, name="rows").sink(ps.write.memory())
    with pytest.raises(ps.ConnectorError, match="the cable is out") as failure:
        graph.run(InProcessSparkEngine())
    assert failure.value.step == "rows"


def count_by_hour(folder: Path, clock: ps.ManualClock) -> Any:
    """Counts by the hour in which rows were read."""
    graph = ps.PipeGraph("ingested")
    reader = ps.read.batches([[{"v": 1}, {"v": 2}], [{"v": 3}]], schema={"v": int})
    rows = graph.source(reader, time=ps.ingest_time(), delay="0 s", name="rows")
    counts = rows.window(ps.tumbling("1 h"), name="hours").aggregate(n=ps.count())
    counts.sink(ps.write.jsonl(folder / "counts"), name="counts")
    rows.with_columns(v=ps.col("v") * 10).sink(ps.write.jsonl(folder / "rows"), name="plain")
    return graph.run(InProcessSparkEngine(), clock=clock, checkpoint=str(folder / "checkpoint"), drain=True)


class Died(BaseException):
    """The run ends here."""


@pytest.mark.parametrize("point", [crash_points.READ, crash_points.PROCESSED, crash_points.COMMITTED])
def test_rows_keep_the_time_at_which_they_were_read_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    hour = 3_600_000_000
    monkeypatch.setattr(ahead, "MAX_ROUNDS", 1)

    def heard(reached: str) -> None:
        if reached == point:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(crash_points, "listener", heard)
        with pytest.raises(Died):
            count_by_hour(tmp_path, ps.ManualClock(5 * hour))
    count_by_hour(tmp_path, ps.ManualClock(9 * hour))
    lines = [
        json.loads(line)
        for file in (tmp_path / "counts").glob("part-*")
        for line in file.read_text().splitlines()
    ]
    assert Counter(line["n"] for line in lines) == {2: 1, 1: 1}  # the first batch was read at five o'clock
