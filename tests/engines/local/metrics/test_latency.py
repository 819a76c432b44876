"""Latency from source stamps and where the time goes: counted per batch, and only when somebody asks."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.clock import ManualClock
from penstock.engines.local.metrics.latency import RING, Histogram, LatencyTracker, Stopwatch
from penstock.engines.protocol import Latency
from penstock.events import BatchDone


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=60))
def test_percentiles_are_never_too_low_and_at_most_an_eighth_too_high(lengths: list[int]) -> None:
    histogram = Histogram()
    for length in lengths:
        histogram.add(length, 1)
    latency, in_order = histogram.latency(), sorted(lengths)
    assert (latency.rows, latency.max_us) == (len(lengths), in_order[-1])
    for share, reported in ((0.50, latency.p50_us), (0.95, latency.p95_us), (0.99, latency.p99_us)):
        right = in_order[-int(-share * len(lengths) // 1) - 1]
        assert right <= reported <= right * 9 / 8


def test_rows_weigh_in_percentiles_and_not_batches() -> None:
    histogram = Histogram()
    histogram.add(10, 99)
    histogram.add(5_000, 1)
    assert histogram.latency() == Latency(100, 10, 10, 10, 5_000)


def test_the_first_of_sources_that_go_together_stamps_a_round() -> None:
    latencies = LatencyTracker()
    latencies.stamp(0, 3, 100)
    latencies.stamp(0, 3, 170)
    assert latencies.record_commit(0, 3, {"out": 2, "nothing": 0}, 250) == {"out": 150}
    assert latencies.by_sink() == {"out": Latency(2, 150, 150, 150, 150)}


def test_a_round_whose_stamp_is_gone_is_not_counted() -> None:
    latencies = LatencyTracker()
    latencies.stamp(0, 1, 100)
    latencies.stamp(0, 1 + RING, 200)
    assert latencies.record_commit(0, 1, {"out": 1}, 250) == {}
    assert latencies.record_commit(5, 1, {"out": 1}, 250) == {}
    assert latencies.by_sink() == {}


def test_a_stop_watch_counts_a_call_inside_another_once_and_not_what_others_do_between() -> None:
    ticks = iter(range(0, 1_000, 10))

    class Worker:
        """Ten ticks whenever the clock is looked at."""

        def generate(self) -> Any:
            yield from (1, 2)

        def on_batch(self) -> Any:
            yield from self.generate()

    worker = Worker()
    watch = Stopwatch(lambda: next(ticks), worker)
    for _ in worker.on_batch():
        next(ticks)  # what is done with a batch is not the worker's time
    assert watch.ns == 40  # to begin, two batches, and the end


def graph_of(clock: ManualClock, sink: Any, **options: Any) -> ps.PipeGraph:
    """Rows through a function that takes 700 us by the clock, and windows behind it."""

    def slowly(row: Any) -> bool:
        clock.advance(700)
        return True

    graph = ps.PipeGraph("slow", **options)
    batches = [[{"t": 2 * i, "v": i}, {"t": 2 * i + 1, "v": i}] for i in range(10)]
    rows = graph.source(
        ps.read.batches(batches, schema={"t": "int64", "v": "int64"}), time="t", time_unit="s", delay="0 s"
    )
    filtered = rows.filter(slowly, name="slowly")
    filtered.with_columns(v=col("v") + 1, name="more").sink(sink, name="rows out")
    filtered.window(ps.tumbling("5 s"), name="sums").aggregate(s=ps.sum("v")).sink(
        ps.write.memory(), name="sums out"
    )
    return graph


@pytest.mark.parametrize("chaining", [True, False])
def test_latency_is_from_reading_a_batch_to_committing_it_by_the_clock_of_the_run(chaining: bool) -> None:
    clock, events = ManualClock(), list[Any]()
    graph = graph_of(clock, ps.write.memory(), chaining=chaining)
    options = ps.LocalOptions(threads=1, queue_size=1)
    result = graph.run("local", clock=clock, events=events.append, options=options)
    assert result.measurements is not None
    latency = result.measurements.latency
    assert (latency["rows out"].rows, latency["sums out"].rows) == (20, 4)
    assert latency["rows out"].p50_us >= 1_400  # a batch takes two rows' time at least
    done = [event for event in events if isinstance(event, BatchDone)]
    assert max(event.latency_us.get("rows out", 0) for event in done) == latency["rows out"].max_us
    if chaining:
        assert latency["rows out"].max_us <= 2 * 1_400


def test_nothing_is_measured_unless_somebody_listens_or_asks() -> None:
    clock = ManualClock()
    graph = graph_of(clock, ps.write.memory())
    assert graph.run("local", clock=clock).measurements is None
    assert graph.run("local", clock=clock, options=ps.LocalOptions(measure=True)).measurements is not None


def test_time_is_told_for_every_step_and_adds_up_to_that_of_the_tasks() -> None:
    clock = ManualClock()
    graph = graph_of(clock, ps.write.memory())
    run = graph.start("local", options=ps.LocalOptions(measure=True))
    measurements = run.wait().measurements
    assert measurements is not None
    assert (
        set(measurements.user_us)
        == set(measurements.system_us)
        == {step.name for step in graph.steps.values()}
    )
    assert measurements.user_us["slowly"] > 0
    assert set(measurements.state_nbytes) == {"sums"}
    assert 0 < measurements.state_nbytes["sums"] < 1_000_000
    assert all(us >= 0 for us in (*measurements.user_us.values(), *measurements.system_us.values()))
    assert measurements.to_dict()["latency"] == {
        sink: {
            "rows": latency.rows,
            "p50_us": latency.p50_us,
            "p95_us": latency.p95_us,
            "p99_us": latency.p99_us,
            "max_us": latency.max_us,
        }
        for sink, latency in measurements.latency.items()
    }


class Adder(ps.ProcessOperator):
    """An own loop that works for a while on every row."""

    outputs: ClassVar[dict[str, Any]] = {"out": {"v": "int64"}}

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            row: Any = ctx.inputs["in"].pop()
            await ctx.outputs["out"].push({"v": sum(range(row.v, 10_000))})


def test_the_time_of_an_own_loop_is_the_users() -> None:
    graph = ps.PipeGraph("loop")
    rows = graph.source(ps.read.batches([[{"v": i}] for i in range(9)], schema={"v": "int64"}), name="rows")
    rows.process(Adder(), name="adding").sink(ps.write.memory())
    measurements = graph.run("local", options=ps.LocalOptions(measure=True)).measurements
    assert measurements is not None
    assert measurements.user_us["adding"] > 0
