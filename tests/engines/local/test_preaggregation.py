"""Windows by key that are combined before they are dealt give what they give without that (AIR, 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.engines.local.options import Settings
from penstock.engines.local.run import build_runtime
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event
from penstock.testing.strategies import cuts, timed_rows
from tests.support.examples import examples
from tests.support.random_graphs import EVENTS

Batches = list[list[dict[str, Any]]]
Write = Callable[[str], Any]
AGGREGATES: dict[str, Any] = {
    "n": ps.count(),
    "s": ps.sum("value"),
    "least": ps.min("value"),
    "most": ps.max_count("value"),
    "mean": ps.mean("value"),
    "std": ps.std("value"),
    "at": ps.event_time_max(),
}


def graph_of(
    batches: Batches,
    *,
    before: int = 1,
    degree: int = 3,
    chaining: bool = True,
    write: Write = lambda sink: ps.write.memory(),
) -> ps.PipeGraph:
    """Replicas, then overlapping windows by key, then windows of these; late rows and a branch besides."""
    graph = ps.PipeGraph("ahead", chaining=chaining)
    rows = graph.source(
        ps.read.batches(batches, schema=EVENTS), time="t", time_unit="s", delay=2, name="rows"
    )
    filtered = rows.filter(col("value") != 5, parallelism=before, name="kept")
    windows = filtered.key_by("key").window(ps.sliding(10, every=4), lateness=1, parallelism=degree, name="w")
    sums = windows.aggregate(**AGGREGATES)
    sums.sink(write("sums"), name="sums")
    sums.late.sink(write("late"), name="late")
    filtered.with_columns(v=col("value") + 1, name="more").sink(write("more"), name="more out")
    totals = sums.key_by("n").window(ps.tumbling(12), parallelism=2, name="again").aggregate(s=ps.sum("s"))
    totals.sink(write("totals"), name="totals")
    return graph


def run_graph(graph: ps.PipeGraph, engine: str, **asked: Any) -> tuple[dict[str, Accounts], Any]:
    """The accounts of every step, and what reached every sink."""
    options = ps.LocalOptions(**asked) if engine == "local" else None
    result = graph.run(engine, options=options)
    sinks = {step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)}
    return dict(result.accounts), {name: round_rows(writer.rows()) for name, writer in sinks.items()}  # type: ignore[attr-defined]  # all are memory()


def round_rows(rows: list[dict[str, Any]]) -> Counter[str]:
    """Rows with floats cut short: parts are added up in another order."""
    short = ({k: round(v, 9) if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return Counter(map(repr, short))


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(30, nightly=120))
@given(
    batches=timed_rows(span=40, max_size=40).flatmap(cuts),
    before=st.integers(1, 3),
    degree=st.integers(2, 3),
    chaining=st.booleans(),
    deterministic=st.booleans(),
    seed=st.integers(0, 2**32),
    queue_size=st.sampled_from([1, 64]),
    composition=st.sampled_from(["combined", "dedicated", "centralised"]),
)
def test_windows_and_late_rows_are_the_same_with_and_without(
    batches: Batches, before: int, degree: int, chaining: bool, deterministic: bool, **asked: Any
) -> None:
    in_rounds = deterministic or before > 1  # without rounds replicas judge by who was faster
    graph = graph_of(batches, before=before, degree=degree, chaining=chaining)
    with_ = run_graph(graph, "local", preaggregate=True, deterministic=in_rounds, **asked)
    assert with_ == run_graph(graph, "local", deterministic=in_rounds, **asked)
    assert with_ == run_graph(graph, "reference")


@pytest.mark.slow
@pytest.mark.parametrize("switches", [(True, False), (False, True), (True, True)])
def test_a_run_with_it_takes_up_what_one_without_has_saved(
    tmp_path: Path, switches: tuple[bool, bool]
) -> None:
    batches = [
        [{"key": "ab"[i % 2], "value": i, "t": 3 * i}, {"key": "c", "value": i, "t": i}] for i in range(12)
    ]
    for until in (1, 5, 9):
        folder = tmp_path / str(until)
        for switch, rounds in zip(switches, (until, None), strict=True):
            options = ps.LocalOptions(preaggregate=switch, save_every="0 s")
            graph = graph_of(batches, before=2, write=into(folder))
            graph.run(
                "local", checkpoint=str(folder / "checkpoint"), until=rounds, options=options, drain=True
            )
        graph_of(batches, write=into(folder / "whole")).run("reference")
        for sink in ("sums", "late", "more", "totals"):
            assert lines(folder / sink) == lines(folder / "whole" / sink), sink


def into(folder: Path) -> Write:
    """Files in a folder for every sink."""
    return lambda sink: ps.write.jsonl(folder / sink)


def lines(folder: Path) -> Counter[str]:
    """Everything that was written."""
    return Counter(line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())


def ahead_in(graph: ps.PipeGraph) -> dict[str, tuple[str, ...]]:
    """Which windows are combined ahead, by the first step of the line where they are."""
    run = build_runtime(
        graph.plan(), Settings(preaggregate=True), RunOptions(), clock=WallClock(), events=ignore_event
    )
    return {
        bench.group.head.name: bench.group.preaggregates
        for bench in run.graph.replicas
        if bench.group.preaggregates
    }


def test_rows_are_combined_at_the_end_of_the_line_that_feeds_windows() -> None:
    assert ahead_in(graph_of([])) == {"rows": ("w",), "w": ("again",)}
    assert ahead_in(graph_of([], before=2)) == {"kept": ("w",), "w": ("again",)}


def test_what_needs_rows_or_has_one_replica_or_several_feeds_is_not_combined_ahead() -> None:
    graph = ps.PipeGraph("not")
    two = [graph.source(ps.read.rows([], schema=EVENTS), time="t", time_unit="s", delay=2) for _ in range(2)]
    kinds: list[tuple[Any, Any, Any, int]] = [
        (two[0], ps.tumbling(5), ps.collect("value"), 2),
        (two[0], ps.session(5), ps.count(), 2),
        (two[0], ps.tumbling(5), ps.count(), 1),
        (two[0].merge(two[1]), ps.tumbling(5), ps.count(), 2),
    ]
    for pipe, window, aggregate, degree in kinds:
        windows = pipe.key_by("key").window(window, parallelism=degree).aggregate(x=aggregate)
        windows.sink(ps.write.memory())
    assert ahead_in(graph) == {}


def test_explain_says_where_it_can_be_done() -> None:
    text = graph_of([]).explain("local")
    combined = "with preaggregate=True rows are combined per slice and key before the exchange"
    assert f"w: 3 replicas, rows by key (key); {combined}" in text
    assert text.count(combined) == 2
