"""Frontiers advance round by round exactly as in the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import penstock as ps
from penstock.engines.frontiers import OVER, Frontier, Frontiers, WatermarkAdvance
from penstock.engines.reference.rounds import Interpreter
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL
from tests.conformance.test_random_graphs import Batches, graph_of, streams
from tests.support.random_graphs import Choice, choices
from tests.support.spark_in_process import InProcessSparkEngine

SCHEMA = {"t": "int64", "v": "int64"}


def frontiers_of(graph: ps.PipeGraph, **saved: float) -> Frontiers:
    return Frontiers(graph.plan(), saved)


def merge_sources() -> ps.PipeGraph:
    """Two sources that flow together into windows that wait for late rows, and a step behind those."""
    graph = ps.PipeGraph("merged")
    a, b = (
        graph.source(ps.read.batches([], schema=SCHEMA), time="t", time_unit="us", delay="0 s", name=name)
        for name in "ab"
    )
    windows = a.merge(b).window(ps.tumbling(10), lateness=4, name="w").aggregate(n=ps.count())
    windows.filter(ps.col("n") > 0, name="behind").sink(ps.write.memory(), name="out")
    windows.late.sink(ps.write.memory(), name="late")
    return graph


def test_merged_streams_have_the_least_frontier_and_windows_delay_it_by_their_lateness() -> None:
    advances = frontiers_of(merge_sources()).advance({"a": Frontier(100), "b": Frontier(50)})
    assert advances["w"] == WatermarkAdvance(BEFORE_ALL, 50, over=False)
    assert advances["behind"] == WatermarkAdvance(BEFORE_ALL, 46, over=False)


def test_nothing_is_promised_for_late_rows_but_the_end() -> None:
    frontiers = frontiers_of(merge_sources())
    assert frontiers.advance({"a": Frontier(100), "b": Frontier(50)})["late"] == WatermarkAdvance(
        BEFORE_ALL, BEFORE_ALL, over=False
    )
    assert frontiers.advance({"a": OVER, "b": OVER})["late"] == WatermarkAdvance(
        BEFORE_ALL, AFTER_ALL, over=True
    )


def test_idle_streams_are_not_waited_for_and_frontiers_never_go_back() -> None:
    frontiers = frontiers_of(merge_sources())
    assert frontiers.advance({"a": Frontier(100), "b": Frontier(50, idle=True)})["w"] == WatermarkAdvance(
        BEFORE_ALL, 100, over=False
    )
    assert frontiers.advance({"a": Frontier(120), "b": Frontier(60)})["w"] == WatermarkAdvance(
        100, 100, over=False
    )


def test_a_resumed_run_starts_with_the_saved_frontiers() -> None:
    first = frontiers_of(merge_sources())
    first.advance({"a": Frontier(100), "b": Frontier(50)})
    again = frontiers_of(merge_sources(), **first.watermarks())
    advances = again.advance({"a": Frontier(100), "b": Frontier(60)})
    assert advances["w"] == WatermarkAdvance(50, 60, over=False)
    assert advances["behind"] == WatermarkAdvance(46, 56, over=False)


Advances = list[tuple[str, float, float, bool]]


@pytest.fixture(scope="module")
def advances_seen() -> Iterator[dict[str, Advances]]:
    """The advances of every step, round by round, in the reference and in `Frontiers`."""
    seen: dict[str, Advances] = {"reference": [], "frontiers": []}
    round_input, advance = Interpreter._round_input, Frontiers.advance

    def watch_input(self: Interpreter, step: Any, *args: Any) -> Any:
        inputs = round_input(self, step, *args)
        over = len(inputs.over) == len(step.inputs)
        seen["reference"].append((step.name, inputs.before, inputs.after, over))
        return inputs

    def watch_advance(self: Frontiers, sources: Any) -> dict[str, WatermarkAdvance]:
        advances = advance(self, sources)
        seen["frontiers"] += [
            (name, advance.before, advance.after, advance.over) for name, advance in advances.items()
        ]
        return advances

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Interpreter, "_round_input", watch_input)
        patched.setattr(Frontiers, "advance", watch_advance)
        yield seen


@pytest.mark.slow
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(done=choices(max_size=8), given_rows=streams())
def test_every_step_of_any_graph_advances_as_in_the_reference(
    advances_seen: dict[str, Advances], done: list[Choice], given_rows: list[Batches]
) -> None:
    for seen in advances_seen.values():
        seen.clear()
    graph = graph_of(done, given_rows)
    for engine in ("reference", InProcessSparkEngine()):
        graph.run(engine, clock=ps.ManualClock())
    sources = {step.name for step in graph.plan().sources}
    assert [step for step in advances_seen["reference"] if step[0] not in sources] == advances_seen[
        "frontiers"
    ]
