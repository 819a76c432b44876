"""First, last and count windows by the numbers of the reader: the same rows, also behind replicas."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.clock import WallClock
from penstock.engines.local.options import Settings
from penstock.engines.local.run import build_runtime
from penstock.engines.local.task_groups import totally_ordered_steps
from penstock.engines.local.tasks.chain import StageStep
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event
from penstock.stages.window.stage import WindowStage
from penstock.testing.strategies import cuts, timed_rows
from tests.support.random_graphs import EVENTS

Batches = list[list[dict[str, Any]]]


def graph_of(batches: Batches, *, before: int, degree: int, pattern: Any = "keyed") -> ps.PipeGraph:
    """Replicas that change places, then windows that mind them."""
    graph = ps.PipeGraph("numbered")
    rows = graph.source(
        ps.read.batches(batches, schema=EVENTS), time="t", time_unit="s", delay=2, name="rows"
    )
    pipe = rows.filter(col("value") != 5, parallelism=before, name="kept").key_by("key")
    slid = pipe.window(ps.sliding(8, every=3), lateness=1, parallelism=degree, pattern=pattern, name="slid")
    slid.aggregate(first=ps.first("value"), last=ps.last("value")).sink(ps.write.memory())
    counted = pipe.window(ps.count_window(3, 2), parallelism=degree, name="counted", partial=True)
    counted.aggregate(first=ps.first("value"), s=ps.sum("value")).sink(ps.write.memory())
    return graph


def run_graph(graph: ps.PipeGraph, engine: str, options: Any = None) -> Any:
    """The accounts of every step, and what reached every sink."""
    accounts = graph.run(engine, options=options).accounts
    sinks = {step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)}
    return dict(accounts), {n: Counter(map(repr, w.rows())) for n, w in sinks.items()}  # type: ignore[attr-defined]  # all are memory()


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    batches=timed_rows(span=6, max_size=30).flatmap(cuts),
    before=st.integers(1, 3),
    degree=st.integers(1, 3),
    pattern=st.sampled_from(["keyed", "paned", "map_reduce", "parallel"]),
    seed=st.integers(0, 2**32),
    preaggregate=st.booleans(),
)
def test_rows_of_one_time_are_in_the_readers_order(
    batches: Batches, before: int, degree: int, pattern: str, seed: int, preaggregate: bool
) -> None:
    graph = graph_of(batches, before=before, degree=degree, pattern=pattern)
    options = ps.LocalOptions(seed=seed, deterministic=True, preaggregate=preaggregate)
    assert run_graph(graph, "local", options) == run_graph(graph, "reference")


def test_no_rows_are_kept_for_first_and_last() -> None:
    plan = graph_of([], before=2, degree=2).plan()
    run = build_runtime(plan, Settings(), RunOptions(), clock=WallClock(), events=ignore_event)
    stages = [
        chained.stage for task in run.graph.tasks for chained in task.chain if isinstance(chained, StageStep)
    ]
    windows = [stage for stage in stages if isinstance(stage, WindowStage)]
    assert len(windows) == 4
    assert not any("rows are kept" in line for stage in windows for line in stage.explain())


def test_numbers_are_relied_on_only_where_every_row_has_its_own() -> None:
    graph = ps.PipeGraph("some")
    rows = graph.source(ps.read.rows([], schema=EVENTS), time="t", time_unit="s", delay=2)
    doubled = rows.flat_map(lambda row: [row, row], schema=EVENTS)
    both = rows.filter(col("value") > 1).merge(rows.filter(col("value") < 5))
    halves = rows.split(even=col("value") % 2 == 0, odd=col("value") % 2 != 0)
    pipes = {"rows": rows, "doubled": doubled, "both": both, "even": halves["even"]}
    for name, pipe in pipes.items():
        windows = pipe.key_by("key").window(ps.tumbling(5), name=name).aggregate(x=ps.first("value"))
        windows.sink(ps.write.memory())
    sums = rows.key_by("key").window(ps.tumbling(5), name="sums").aggregate(x=ps.sum("value"))
    sums.sink(ps.write.memory())
    assert totally_ordered_steps(graph.plan()) == {"rows", "even"}
    text = graph.explain("local")
    assert "rows of one time are in order by the reader's numbers: even, rows" in text


def test_with_several_sources_no_number_tells_rows_apart() -> None:
    graph = ps.PipeGraph("several")
    for _ in range(2):
        rows = graph.source(ps.read.rows([], schema=EVENTS), time="t", time_unit="s", delay=2)
        rows.key_by("key").window(ps.tumbling(5)).aggregate(x=ps.first("value")).sink(ps.write.memory())
    assert totally_ordered_steps(graph.plan()) == frozenset()
