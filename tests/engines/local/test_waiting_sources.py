"""Sources that wait: rows are handed on, the clock makes rounds, and the run can be stopped.

No test waits for time to pass: the clock is moved by hand, and generators wait for events.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.clock import WallClock

PATIENCE_S = 30
SECOND = 1_000_000


class Feed:
    """A generator function whose rows come when the test sends them; it is silent in between."""

    def __init__(self) -> None:
        self._changed, self._items, self._over = threading.Condition(), list[Any](), False
        self._n_sent = self._n_taken = 0
        self.closed = threading.Event()

    def send(self, *items: Any, wait: bool = True) -> None:
        """Send items, and wait until the reader has taken them all and asks for the next."""
        with self._changed:
            self._items.extend(items)
            self._n_sent += len(items)
            self._changed.notify_all()
            if wait:
                assert self._changed.wait_for(lambda: self._n_taken >= self._n_sent, PATIENCE_S)

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def __call__(self) -> Iterator[Any]:
        try:
            while True:
                with self._changed:
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._items or self._over)
                    if not self._items:
                        return
                    item = self._items.pop(0)
                yield item
                self._n_taken += 1
        finally:
            self.closed.set()


class Out:
    """The rows that a sink was given."""

    def __init__(self) -> None:
        self._changed, self.rows = threading.Condition(), list[dict[str, Any]]()

    def take(self, batch: pa.RecordBatch) -> None:
        with self._changed:
            self.rows += batch.to_pylist()
            self._changed.notify_all()

    def wait_for(self, n_rows: int, meanwhile: Callable[[], object] = lambda: None) -> list[dict[str, Any]]:
        """The rows, once there are so many."""
        with self._changed:
            for _ in range(100 * PATIENCE_S):
                if len(self.rows) >= n_rows:
                    return self.rows
                meanwhile()
                self._changed.wait(0.01)
        raise AssertionError(f"there are only {self.rows}")


class Live:
    """A program with one sink, running on rows that a test sends, by a clock that it moves."""

    def __init__(self, build: Callable[[ps.PipeGraph, Live], ps.MultiPipe], **settings: Any) -> None:
        self.feed, self.other, self.out = Feed(), Feed(), Out()
        self.clock = settings.pop("clock", None) or ps.ManualClock(10 * SECOND)
        engine = settings.pop("engine", "local")
        graph = ps.PipeGraph("live")
        build(graph, self).sink(ps.write.callback(self.out.take), name="out")
        self.run = graph.start(engine, clock=self.clock, **settings)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.stop()
        self.feed.end()
        self.other.end()

    def advance(self, us: int) -> None:
        self.clock.advance(us)

    def stop(self, **how: Any) -> Any:
        """Stop the run, while its sources still wait."""
        self.run.stop(**how)
        return self.run.wait(PATIENCE_S)


@pytest.fixture(params=["local", "reference"])
def live_engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def source_of_ingest_time(graph: ps.PipeGraph, live: Live, **options: Any) -> ps.MultiPipe:
    reader = ps.read.generator(live.feed, schema={"v": int}, bounded=False)
    return graph.source(reader, time=ps.ingest_time(), name="rows", **options)


def timed_source(graph: ps.PipeGraph, feed: Feed, name: str, **options: Any) -> ps.MultiPipe:
    reader = ps.read.generator(feed, schema={"t": int, "v": int}, batch=options.pop("batch", 1))
    return graph.source(reader, time="t", time_unit="s", delay="0 s", name=name, **options)


def starts(rows: list[dict[str, Any]]) -> list[tuple[float, Any]]:
    return [(row["window_start"].timestamp(), row["n"]) for row in rows]


@pytest.mark.parametrize("reader", ["generator", "iterable"])
def test_rows_leave_when_the_first_has_waited_for_the_longest_wait(live_engine: str, reader: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        return graph.source(getattr(ps.read, reader)(live.feed, schema={"v": int}, batch=100))

    with Live(build, engine=live_engine) as live:
        live.feed.send({"v": 1}, {"v": 2})
        live.advance(100_000)
        assert live.out.wait_for(2) == [{"v": 1}, {"v": 2}]


def test_with_wait_none_rows_wait_until_the_batch_is_full(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        reader = ps.read.generator(live.feed, schema={"v": int}, batch=3, wait=None)
        return graph.source(reader)

    with Live(build, engine=live_engine) as live:
        live.feed.send({"v": 1}, {"v": 2})
        live.advance(60 * SECOND)
        live.feed.send({"v": 3})
        assert len(live.out.wait_for(3)) == 3
        assert live.stop().batches == 1


@pytest.mark.parametrize("batch", [1, 2, 60])
@pytest.mark.parametrize("options", [None, ps.LocalOptions(deterministic=True)], ids=["free", "in rounds"])
def test_a_run_stops_while_its_source_is_silent(batch: int, options: Any) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        reader = ps.read.generator(live.feed, schema={"v": int}, batch=batch)
        return graph.source(reader)

    with Live(build, options=options) as live:
        live.feed.send({"v": 1}, {"v": 2}, {"v": 3})
        result = live.stop()
        assert result.outcome == "stopped"
        assert live.out.rows == [{"v": 1}, {"v": 2}, {"v": 3}]  # what had come is not dropped
        assert not live.feed.closed.is_set()  # it waited all the time
        live.feed.end()
        assert live.feed.closed.wait(PATIENCE_S)  # its `finally` runs once it is done


def test_a_run_stops_before_anything_came(live_engine: str) -> None:
    with Live(lambda graph, live: timed_source(graph, live.feed, "rows"), engine=live_engine) as live:
        assert live.stop().outcome == "stopped"


def test_stop_with_drain_closes_the_windows_first(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        rows = timed_source(graph, live.feed, "rows")
        return rows.window(ps.tumbling("10 s")).aggregate(n=ps.count())

    with Live(build, engine=live_engine) as live:
        live.feed.send({"t": 1, "v": 1}, {"t": 2, "v": 1})
        assert live.stop(drain=True).outcome == "drained"
        assert [row["n"] for row in live.out.rows] == [2]


@pytest.mark.parametrize("options", [None, ps.LocalOptions(deterministic=True)], ids=["free", "in rounds"])
def test_a_stop_with_drain_during_a_round_of_the_clock_closes_the_windows(options: Any) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        def stop(row: Any) -> bool:
            live.run.stop(drain=True)  # in the thread that runs the round
            return True

        reader = ps.read.generator(live.feed, schema={"v": int}, batch=100, bounded=False)
        rows = graph.source(reader, time=ps.ingest_time()).filter(stop)
        return rows.window(ps.tumbling("1 h")).aggregate(n=ps.count())

    with Live(build, options=options) as live:
        live.feed.send({"v": 1}, {"v": 2})
        live.advance(100_000)
        assert live.run.wait(PATIENCE_S).outcome == "drained"
        assert [row["n"] for row in live.out.rows] == [2]
        assert not live.feed.closed.is_set()  # the source was silent all the time


def test_stop_without_drain_keeps_windows_open(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        rows = timed_source(graph, live.feed, "rows")
        return rows.window(ps.tumbling("10 s")).aggregate(n=ps.count())

    with Live(build, engine=live_engine) as live:
        live.feed.send({"t": 1, "v": 1})
        assert live.stop().outcome == "stopped"
        assert live.out.rows == []


def test_stop_with_drain_closes_windows_of_a_source_that_had_ended_before(live_engine: str) -> None:
    """Its own windows, and those that it shares with the source that still waits."""
    feed, begun, at_rest = Feed(), threading.Event(), threading.Event()

    def end() -> Iterator[dict[str, int]]:
        yield {"t": 3, "v": 4}
        at_rest.set()

    graph, schema = ps.PipeGraph("one of two"), {"t": "int64", "v": "int64"}
    time: dict[str, Any] = {"time": "t", "time_unit": "s", "delay": "0 s"}
    ended = graph.source(ps.read.generator(end, schema=schema, batch=1), **time)
    waiting = graph.source(ps.read.generator(feed, schema=schema, batch=1), **time)
    waiting.sink(ps.write.callback(lambda batch: begun.set()))
    alone = ended.window(ps.tumbling("10 s")).aggregate(s=ps.sum("v"))
    alone.sink(own := ps.write.memory())
    both = ended.merge(waiting).window(ps.tumbling("10 s")).aggregate(s=ps.sum("v"))
    both.sink(shared := ps.write.memory())
    run = graph.start(live_engine, drain=False)
    feed.send({"t": 5, "v": 8}, {"t": 25, "v": 16})
    assert at_rest.wait(PATIENCE_S)
    assert begun.wait(PATIENCE_S)
    assert own.rows() == shared.rows() == []
    run.stop(drain=True)
    assert run.wait(PATIENCE_S).outcome == "drained"
    feed.end()
    assert [row["s"] for row in own.rows()] == [4]
    assert [row["s"] for row in shared.rows()] == [12, 16]


def test_stop_with_drain_ends_a_source_that_never_waits() -> None:
    def endless() -> Iterator[dict[str, int]]:
        while True:
            yield {"v": 1}

    flows, sums = threading.Event(), list[dict[str, Any]]()
    graph = ps.PipeGraph("endless")
    rows = graph.source(ps.read.generator(endless, schema={"v": int}), time=ps.ingest_time(), name="rows")
    rows.sink(ps.write.callback(lambda batch: flows.set()))
    counts = rows.window(ps.tumbling("1 d")).aggregate(n=ps.count())
    counts.sink(ps.write.callback(lambda batch: sums.extend(batch.to_pylist())))
    run = graph.start("local", clock=ps.ManualClock())
    assert flows.wait(PATIENCE_S)
    run.stop(drain=True)
    result = run.wait(PATIENCE_S)
    assert result.outcome == "drained"
    assert sum(row["n"] for row in sums) == result.accounts["rows"].rows_in


@pytest.mark.parametrize("batch", [1, 1000])
def test_windows_of_ingest_time_leave_by_the_clock_in_a_silence(live_engine: str, batch: int) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        reader = ps.read.generator(live.feed, schema={"v": int}, batch=batch)
        rows = graph.source(reader, time=ps.ingest_time())
        return rows.window(ps.tumbling("1 s")).aggregate(n=ps.count())

    with Live(build, engine=live_engine) as live:
        live.feed.send({"v": 1}, {"v": 2})
        live.advance(SECOND)
        assert starts(live.out.wait_for(1)) == [(10, 2)]


def test_windows_behind_a_channel_leave_by_the_clock_too() -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        rows = source_of_ingest_time(graph, live).key_by("v")
        return rows.window(ps.tumbling("1 s"), parallelism=2, name="w").aggregate(n=ps.count())

    with Live(build) as live:
        live.feed.send(*({"v": v} for v in range(20)))
        live.advance(3 * SECOND)
        assert starts(live.out.wait_for(20)) == [(10, 1)] * 20


def test_rows_of_ingest_time_have_the_time_at_which_they_were_read(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        reader = ps.read.generator(live.feed, schema={"v": int}, batch=100, wait="1 min")
        rows = graph.source(reader, time=ps.ingest_time())
        return rows.window(ps.tumbling("1 s")).aggregate(n=ps.count())

    with Live(build, engine=live_engine) as live:
        live.feed.send({"v": 1})
        live.advance(SECOND)
        live.feed.send({"v": 2}, {"v": 3})
        live.advance(60 * SECOND)
        assert starts(live.out.wait_for(2)) == [(10, 1), (11, 2)]


def test_rows_of_ingest_time_are_not_late_after_the_clock_was_set_back(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        rows = source_of_ingest_time(graph, live)
        return rows.window(ps.tumbling("1 s"), name="w").aggregate(n=ps.count())

    with Live(build, engine=live_engine, clock=ps.ManualClock(3_600 * SECOND)) as live:
        live.feed.send({"v": 1})
        live.advance(5 * SECOND)
        live.out.wait_for(1)
        live.advance(-1_800 * SECOND)
        live.feed.send({"v": 2})
        live.advance(3_600 * SECOND)
        assert [row["n"] for row in live.out.wait_for(2)] == [1, 1]
        assert live.stop().accounts["w"].late == 0


def test_a_source_is_idle_while_its_generator_waits(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        silent = timed_source(graph, live.other, "silent", idle="5 s")
        merged = timed_source(graph, live.feed, "quick").merge(silent)
        return merged.window(ps.tumbling("10 s")).aggregate(n=ps.count())

    with Live(build, engine=live_engine) as live:
        live.feed.send({"t": 1, "v": 1}, {"t": 2, "v": 1}, {"t": 30, "v": 1}, wait=False)
        rows = live.out.wait_for(1, lambda: live.advance(50_000))
        assert [(row["window_start"], row["n"]) for row in rows] == [(0, 2)]


def _set_if_done(event: ps.events.Event, done: threading.Event) -> None:
    if isinstance(event, ps.events.BatchDone) and any(event.rows_in.values()):
        done.set()


def test_early_results_leave_though_no_row_comes(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        rows = timed_source(graph, live.feed, "rows")
        return rows.window(ps.tumbling("10 s"), early="200 ms").aggregate(n=ps.count())

    done = threading.Event()  # Why: a round that is still under way would see the clock move by itself
    with Live(build, engine=live_engine, events=lambda event: _set_if_done(event, done)) as live:
        live.feed.send({"t": 1, "v": 1})
        assert done.wait(PATIENCE_S)
        live.advance(200_000)
        assert [(row["n"], row["final"]) for row in live.out.wait_for(1)] == [(1, False)]


def test_rows_of_one_source_leave_beside_a_silent_one_in_rounds() -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        return timed_source(graph, live.feed, "quick").merge(timed_source(graph, live.other, "silent"))

    with Live(build, options=ps.LocalOptions(deterministic=True)) as live:
        live.feed.send({"t": 1, "v": 1}, {"t": 2, "v": 2})
        assert [row["v"] for row in live.out.wait_for(2, lambda: live.advance(50_000))] == [1, 2]


def test_rounds_that_the_clock_makes_are_none_of_those_that_until_counts(live_engine: str) -> None:
    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        rows = timed_source(graph, live.feed, "rows")
        return rows.window(ps.tumbling("10 s"), early="200 ms").aggregate(n=ps.count())

    with Live(build, engine=live_engine, until=2) as live:
        live.feed.send({"t": 1, "v": 1})
        live.advance(200_000)
        live.out.wait_for(1)
        live.feed.send({"t": 2, "v": 1}, wait=False)
        assert live.run.wait(PATIENCE_S).batches == 2


def test_a_step_that_fails_in_a_round_of_the_clock_stops_the_run(live_engine: str) -> None:
    def fail(rows: Any) -> dict[str, int]:
        raise ValueError("no")

    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        windows = source_of_ingest_time(graph, live).window(ps.tumbling("1 s"), name="w")
        return windows.apply(fail, schema={"n": int})

    with Live(build, engine=live_engine) as live:
        live.feed.send({"v": 1})
        live.advance(3 * SECOND)
        with pytest.raises(ps.FunctionError, match="no"):
            live.run.wait(PATIENCE_S)


def test_a_source_that_fails_while_another_waits_stops_the_run(live_engine: str) -> None:
    def fail() -> Iterator[dict[str, int]]:
        yield {"t": 1, "v": 1}
        raise OSError("the cable is out")

    def build(graph: ps.PipeGraph, live: Live) -> ps.MultiPipe:
        reader = ps.read.generator(fail, schema={"t": int, "v": int}, batch=1)
        broken = graph.source(reader, time="t", time_unit="s", delay="0 s", name="broken")
        return timed_source(graph, live.feed, "silent").merge(broken)

    live = Live(build, engine=live_engine, clock=WallClock())
    with live, pytest.raises(ps.ConnectorError, match="the cable is out"):
        live.run.wait(PATIENCE_S)


def test_an_asynchronous_generator_is_a_source() -> None:
    async def sensor() -> AsyncIterator[Any]:
        for v in range(5):
            await asyncio.sleep(0)
            yield {"v": v}
        yield [{"v": 5}, {"v": 6}]

    graph = ps.PipeGraph("async")
    rows = graph.source(ps.read.generator(sensor, schema={"v": int})).collect("local")
    assert rows.column("v").to_pylist() == list(range(7))


def test_an_asynchronous_iterable_is_a_source_of_every_run() -> None:
    class Numbers:
        def __aiter__(self) -> AsyncIterator[dict[str, int]]:
            return self._numbers()

        async def _numbers(self) -> AsyncIterator[dict[str, int]]:
            for v in range(3_000):
                yield {"v": v}

    graph = ps.PipeGraph("async")
    rows = graph.source(ps.read.iterable(Numbers(), schema={"v": int}, batch=7))
    for _ in range(2):
        assert rows.collect("local").column("v").to_pylist() == list(range(3_000))


def test_the_event_loop_of_a_source_goes_on_while_steps_are_at_work() -> None:
    ticked, may_go_on = threading.Event(), threading.Event()

    async def sensor() -> AsyncIterator[dict[str, int]]:
        async def tick() -> None:
            while not ticked.is_set():
                await asyncio.sleep(0.001)
                if at_work.is_set():
                    ticked.set()

        task = asyncio.create_task(tick())
        yield {"v": 1}
        await task
        yield {"v": 2}

    at_work = threading.Event()

    def work(row: Any) -> bool:
        if row.v == 1:
            at_work.set()
            may_go_on.set()
            assert ticked.wait(PATIENCE_S)  # while this step holds the thread of its source
        return True

    graph = ps.PipeGraph("async")
    rows = graph.source(ps.read.generator(sensor, schema={"v": int}, batch=1)).filter(work)
    assert rows.collect("local").num_rows == 2


def test_a_silent_asynchronous_source_is_stopped_and_closed() -> None:
    closed, begun = threading.Event(), threading.Event()

    async def silent() -> AsyncIterator[dict[str, int]]:
        try:
            begun.set()
            await asyncio.Event().wait()
            yield {"v": 1}
        finally:
            closed.set()

    graph = ps.PipeGraph("async")
    graph.source(ps.read.generator(silent, schema={"v": int})).sink(ps.write.memory())
    run = graph.start("local")
    assert begun.wait(PATIENCE_S)
    run.stop()
    assert run.wait(PATIENCE_S).outcome == "stopped"
    assert closed.wait(PATIENCE_S)


def test_an_error_in_an_asynchronous_generator_names_it() -> None:
    async def broken() -> AsyncIterator[dict[str, int]]:
        yield {"v": 1}
        raise OSError("the cable is out")

    graph = ps.PipeGraph("async")
    rows = graph.source(ps.read.generator(broken, schema={"v": int}))
    with pytest.raises(ps.ConnectorError, match=r"broken raised OSError after 1 rows: the cable is out"):
        rows.collect("local")


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_generator_that_ends_its_thread_ends_the_run(live_engine: str, stop: type[BaseException]) -> None:
    def leave() -> Iterator[dict[str, int]]:
        yield {"v": 1}
        raise stop("enough")

    graph = ps.PipeGraph("leave")
    graph.source(ps.read.generator(leave, schema={"v": int})).sink(ps.write.memory())
    run = graph.start(live_engine)
    with pytest.raises(stop, match="enough"):
        run.wait(PATIENCE_S)
    assert run.status().state == "failed"


def test_an_asynchronous_source_whose_wait_is_cancelled_has_failed(live_engine: str) -> None:
    async def sensor() -> AsyncIterator[dict[str, int]]:
        yield {"v": 1}
        request = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(request.cancel)  # such as a library that gives up
        await request
        yield {"v": 2}

    graph = ps.PipeGraph("async")
    rows = graph.source(ps.read.generator(sensor, schema={"v": int}))
    refusal = r"sensor raised CancelledError after 1 rows: what it awaits was cancelled"
    with pytest.raises(ps.ConnectorError, match=refusal):
        rows.collect(live_engine)


def test_a_run_that_was_stopped_goes_on_behind_the_rows_it_has_read(
    tmp_path: Path,
) -> None:
    stopped_after, out = 6, tmp_path / "out"

    def count(feed: Feed | None) -> Iterator[dict[str, int]]:
        """Twenty rows; a source that waits stops behind the sixth."""
        for v in range(20):
            if feed is not None and v == stopped_after:
                yield from feed()
            yield {"t": v, "v": v}

    def start(feed: Feed | None, clock: ps.ManualClock, batch: int) -> Any:
        graph = ps.PipeGraph("count")
        reader = ps.read.generator(lambda: count(feed), schema={"t": int, "v": int}, batch=batch)
        rows = graph.source(reader, time="t", time_unit="s", delay="0 s", name="rows")
        sums = rows.window(ps.tumbling("10 s"), name="w").aggregate(s=ps.sum("v"), n=ps.count())
        sums.sink(ps.write.jsonl(out), name="sums")
        return graph.start("local", clock=clock, checkpoint=str(tmp_path / "checkpoint"), drain=True)

    feed, clock = Feed(), ps.ManualClock()
    first = start(feed, clock, 4)
    for _ in range(100 * PATIENCE_S):  # two rows are handed on by the clock, behind a batch of four
        if first.metrics()["rows"].rows_in == stopped_after:
            break
        clock.advance(50_000)
        feed.closed.wait(0.01)
    first.stop()
    assert first.wait(PATIENCE_S).accounts["rows"].rows_in == stopped_after
    feed.end()
    assert start(None, clock, 5).wait(PATIENCE_S).outcome == "drained"
    lines = [
        json.loads(line) for file in sorted(out.glob("part-*")) for line in file.read_text().splitlines()
    ]
    assert sorted((line["s"], line["n"]) for line in lines) == [(45, 10), (145, 10)]
