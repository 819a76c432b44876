"""Graphs with keyed state, and runs of them in which replicas change at moments that a test chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.engines.local.dispatch import run_task
from penstock.engines.local.elastic.controller import ReplicaScaling
from penstock.engines.local.options import Settings
from penstock.engines.local.run import Runtime, build_runtime
from penstock.engines.protocol import RunOptions
from penstock.events import ignore_event
from penstock.testing.strategies import cuts, timed_rows
from tests.support.random_graphs import EVENTS

CORES = 4
Batches = list[list[dict[str, Any]]]
Verb = Callable[[ps.MultiPipe, Any], ps.MultiPipe]


def add_up(row: Any, total: int) -> int:
    """How many rows so far."""
    return total + 1


class Seen:
    """A state that could not be saved, and need not be."""

    def __init__(self) -> None:
        self.values: set[int | None] = set()
        self.again: Callable[[int | None], bool] = lambda value: value in self.values


def is_new(row: Any, seen: Seen) -> bool:
    """Whether the key had no such value before."""
    again = seen.again(row.value)
    seen.values.add(row.value)
    return not again


def is_first(row: Any, seen: dict[str, int]) -> bool:
    """Whether the key had no row before."""
    seen["n"] = seen.get("n", 0) + 1
    return seen["n"] == 1


def windows(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """Overlapping windows with what registers hold, and with what they do not."""
    windowed = pipe.key_by("key").window(
        ps.sliding(10, every=4), lateness=1, parallelism=degree, name="moved"
    )
    return windowed.aggregate(value=ps.count(), all=ps.collect("value"), first=ps.first("value"))


def sessions(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """Sessions."""
    windowed = pipe.key_by("key").window(ps.session(5), lateness=2, parallelism=degree, name="moved")
    return windowed.aggregate(value=ps.max("value"), mean=ps.mean("value"))


def count_windows(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """Windows of rows, of two kinds."""
    kinds = {"few": ps.count_window(2, 1), "many": ps.count_window(5)}
    windowed = pipe.key_by("key").window(**kinds, parallelism=degree, name="moved", partial=True)  # type: ignore[arg-type]  # keywords name windows
    return windowed.aggregate(value=ps.sum("value"))


def accumulate_rows(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """Rows so far by key."""
    return pipe.key_by("key").accumulate(add_up, 0, schema={"n": "int64"}, parallelism=degree, name="moved")


def with_state(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """The first rows with their value, by a state that nobody could save."""
    return pipe.key_by("key").filter(is_new, state=Seen, parallelism=degree, name="moved")


def window_behind_map(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """Steps behind it that need no second shuffle, and move along."""
    fresh = pipe.key_by("key").filter(
        lambda row, seen: not is_first(row, seen), state=dict, parallelism=degree, name="moved"
    )
    doubled = fresh.with_columns(value=col("value") * 2, parallelism=degree)
    windowed = doubled.window(ps.tumbling(6), parallelism=degree, name="followed")
    return windowed.aggregate(value=ps.count(), least=ps.min("value"))


def after_replicas(pipe: ps.MultiPipe, degree: Any) -> ps.MultiPipe:
    """Behind replicas that have their turn, and come and go too, and before another keyed step of its own."""
    quanta = pipe.with_columns(value=col("value").fill_null(1), parallelism=degree, name="turns")
    passed = quanta.key_by("key").accumulate(
        add_up, 0, schema={"value": "int64"}, parallelism=degree, name="moved"
    )
    thirds = passed.with_columns(third=col("value") % 3, parallelism=2)
    return (
        thirds.key_by("third")
        .window(ps.tumbling(8), parallelism=degree, name="behind")
        .aggregate(n=ps.count())
    )


VERBS: dict[str, Verb] = {
    program.__name__: program
    for program in (
        windows,
        sessions,
        count_windows,
        accumulate_rows,
        with_state,
        window_behind_map,
        after_replicas,
    )
}


def graph_of(
    verb: Verb,
    streams: list[Batches],
    seen: Callable[[Any], bool],
    *,
    chaining: bool = True,
    degree: Any = (1, 8),
    write: Callable[[str], Any] = lambda sink: ps.write.memory(),
) -> ps.PipeGraph:
    """Sources that are told of before their rows go on, and one keyed step behind them; names in order."""
    graph, pipes = ps.PipeGraph("moved", chaining=chaining), []

    def told_of(row: Any) -> bool:  # a callable object would be copied
        return seen(row)

    for number, batches in enumerate(streams):
        reader = ps.read.batches(batches, schema=EVENTS)
        rows = graph.source(reader, time="t", time_unit="s", delay=3, name=f"source {number}")
        pipes.append(rows.filter(told_of, name=f"seen {number}"))
    whole = pipes[0].merge(*pipes[1:]) if len(pipes) > 1 else pipes[0]
    result = verb(whole, degree)
    result.sink(write("out"), name="out")
    graph["moved"].late.sink(write("late"), name="late")
    return graph


def read_results(graph: ps.PipeGraph, accounts: Any) -> tuple[dict[str, Accounts], dict[str, Counter[str]]]:
    """The accounts of every step, and what reached every sink."""
    sinks = {step.name: step.op.writer for step in graph.steps.values() if isinstance(step.op, ps.Sink)}
    rows = {name: Counter(map(repr, writer.rows())) for name, writer in sinks.items()}  # type: ignore[attr-defined]  # all are memory()
    return dict(accounts), rows


class Changes:
    """Asks for so many replicas when so many rows have gone by."""

    def __init__(self, changes: dict[int, tuple[str, int]]) -> None:
        self._changes, self._n = changes, 0
        self.scaling: ReplicaScaling | None = None

    def __call__(self, row: Any) -> bool:
        if self.scaling is not None and self._n in self._changes:
            self.scaling.set_replicas(*self._changes[self._n])
        self._n += 1
        return True


def drive(run: Runtime) -> None:
    """Everything in this thread."""
    run.dispatcher.begin(run.graph.tasks)
    while (task := run.dispatcher.next_task(0)) is not None:
        run_task(run.dispatcher, task)
    if run.dispatcher.failure is not None:
        raise run.dispatcher.failure
    assert run.dispatcher.is_over


def run_changes(graph: ps.PipeGraph, changes: Changes, **asked: Any) -> Runtime:
    """A run with changes, all the way through."""
    options = Settings(cores=CORES, elastic=ps.Elastic(), **asked)
    run = build_runtime(graph.plan(), options, RunOptions(), clock=WallClock(), events=ignore_event)
    changes.scaling = ReplicaScaling(run.graph)
    run.open_sinks()
    drive(run)
    run.close()
    return run


def many_changes(n: int) -> st.SearchStrategy[dict[int, tuple[str, int]]]:
    """When, what and to how many."""
    asked = st.tuples(st.sampled_from(["moved", "moved", "behind", "turns"]), st.integers(1, CORES))
    return st.dictionaries(st.integers(0, n), asked, max_size=6)


@st.composite
def streams(draw: st.DrawFn, *, sources: int) -> list[Batches]:
    """Rows for some sources, in many batches."""
    return [draw(cuts(draw(timed_rows(span=25, max_size=25)))) for _ in range(sources)]
