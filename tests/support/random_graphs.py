"""Random graphs through the public API: every verb, splits, merges, windows, joins, sides, degrees.

A graph is drawn as a list of choices, so that the same graph can be built again with other settings.
Rows keep the columns of `EVENTS` between verbs, so that any verb can follow any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import penstock as ps
from penstock import col
from penstock.testing.strategies import timed_rows

EVENTS = pa.schema([("key", pa.string()), ("value", pa.int64()), ("t", pa.int64())])
NAMES = tuple(EVENTS.names)


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing done to a graph: `action`, to the open pipe at `at` (modulo how many there are)."""

    action: str
    at: int
    other: int
    degree: int


def same(row: Any) -> dict[str, Any]:
    """The row as it came."""
    return {"key": row.key, "value": row.value, "t": row.t}


def twice(row: Any) -> list[dict[str, Any]]:
    """The row as it came, twice."""
    return [same(row), same(row)]


def add_up(row: Any, total: int) -> int:
    """The state of the accumulator: the rows seen so far."""
    return total + 1


def _filter(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    return pipe.filter(col("value") % 3 != 0, parallelism=n)


def _map(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    return pipe.with_columns(value=col("value").fill_null(1) % 100, parallelism=n)


def _row_map(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    return pipe.map(same, schema=EVENTS, parallelism=n)


def _flat_map(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    return pipe.flat_map(twice, schema=EVENTS, parallelism=n)


def _accumulate(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    counted = pipe.key_by("key").accumulate(add_up, 0, schema={"value": "int64"}, parallelism=n)
    return counted.with_columns(t=col("value")).select(*NAMES)


def _window(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    windows = pipe.key_by("key").window(ps.sliding(10, every=4), parallelism=n)
    return windows.aggregate(value=ps.count()).select("key", "value", t=col("window_start"))


def _session(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    sessions = pipe.key_by("key").window(ps.session(5), lateness=2, parallelism=n)
    return sessions.aggregate(value=ps.max("value"), t=ps.event_time_max()).select(*NAMES)


def _table(pipe: ps.MultiPipe, n: int) -> ps.MultiPipe:
    table = pa.table({"key": ["a", "b"], "label": ["x", "y"]})
    return pipe.join_table(table, on="key", parallelism=n).select(*NAMES)


VERBS: dict[str, Callable[[ps.MultiPipe, int], ps.MultiPipe]] = {
    "filter": _filter,
    "map": _map,
    "row map": _row_map,
    "flat_map": _flat_map,
    "accumulate": _accumulate,
    "window": _window,
    "session": _session,
    "table": _table,
}


def are_even(left: Any, right: Any) -> bool:
    """Whether the values of a pair add up to an even number."""
    return ((left.value or 0) + (right.value or 0)) % 2 == 0


JOINS: list[dict[str, Any]] = [
    {"on": "key", "within": 4},
    {"on": ["key", ps.band("value", 3)], "within": (2, 6), "how": "left", "lateness": 2},
    {"on": ps.band("value", 5, strict=True), "within": 3, "how": "full"},
    {"on": ps.left("value") < ps.right("value"), "window": ps.tumbling(5), "how": "right"},
    {"on": are_even, "within": 2, "how": "semi"},
    {"on": "key", "window": ps.tumbling(8), "how": "anti", "lateness": 1},
    {"on": ["key", are_even], "last_rows": (1, 2)},
    {"on": ps.band("value", 2), "last_rows": (0, 3), "how": "left"},
]
FORKS = ("split", "copy", "late")
MEETINGS = ("merge", "join")
WHATS = (*VERBS, *FORKS, *MEETINGS, "source", "sink")


def choices(*, max_degree: int = 3, max_size: int = 10) -> st.SearchStrategy[list[Choice]]:
    """What to do to a graph, in order."""
    one = st.builds(
        Choice,
        st.sampled_from(WHATS),
        st.integers(0, 7),
        st.integers(0, 7),
        st.integers(1, max_degree),
    )
    return st.lists(one, max_size=max_size)


def feeds() -> st.SearchStrategy[list[list[dict[str, Any]]]]:
    """Rows for the sources, in disorder, with null keys and values."""
    return st.lists(timed_rows(span=30, max_size=15), min_size=1, max_size=3)


def build(
    done: Sequence[Choice],
    *,
    chaining: bool = True,
    rows: Callable[[int], Any] = lambda n: ps.read.rows([], schema=EVENTS),
) -> ps.PipeGraph:
    """The graph of some choices; `rows(n)` gives the reader of the n-th source. All pipes end in sinks."""
    graph = ps.PipeGraph("random", chaining=chaining)
    pipes = [_source(graph, rows, 1)]
    for choice in done:
        _do(choice, graph, pipes, rows)
    for pipe in pipes:
        pipe.sink(ps.write.memory())
    return graph


def _source(graph: ps.PipeGraph, rows: Callable[[int], Any], n: int) -> ps.MultiPipe:
    reader = rows(len([name for name in graph.steps if name.startswith("source")]))
    return graph.source(reader, time="t", time_unit="s", delay=3, parallelism=n)


def _do(choice: Choice, graph: ps.PipeGraph, pipes: list[ps.MultiPipe], rows: Callable[[int], Any]) -> None:
    at = choice.at % len(pipes)
    pipe = pipes[at]
    if choice.action in VERBS:
        pipes[at] = VERBS[choice.action](pipe, choice.degree)
    elif choice.action == "source":
        pipes.append(_source(graph, rows, choice.degree))
    elif choice.action == "sink":
        pipe.sink(ps.write.memory())
        if len(pipes) > 1:
            del pipes[at]
    elif choice.action in FORKS:
        pipes[at : at + 1] = _fork(choice, pipe)
    elif len(pipes) > 1:
        _meet(choice, pipes)
    elif choice.action == "join":
        pipes[at] = _join(choice, pipe, pipe)


def _fork(choice: Choice, pipe: ps.MultiPipe) -> list[ps.MultiPipe]:
    if choice.action == "split":
        return list(pipe.split(even=col("value") % 2 == 0, odd=col("value") % 2 != 0))
    if choice.action == "copy":
        return [_filter(pipe, choice.degree), _map(pipe, choice.degree)]
    windows = pipe.window(ps.tumbling(6)).aggregate(value=ps.count())
    results = windows.select(key=ps.lit("all"), value=col("value"), t=col("window_end"))
    return [results, windows.late]


def _meet(choice: Choice, pipes: list[ps.MultiPipe]) -> None:
    left = pipes.pop(choice.at % len(pipes))
    right = pipes.pop(choice.other % len(pipes))
    if set(left.feeds) & set(right.feeds):
        pipes.append(left)
    elif choice.action == "merge":
        pipes.append(left.merge(right))
    else:
        pipes.append(_join(choice, left, right))


def _join(choice: Choice, left: ps.MultiPipe, right: ps.MultiPipe) -> ps.MultiPipe:
    options = JOINS[(choice.at + choice.other) % len(JOINS)]
    return left.join(right, suffix="_right", parallelism=choice.degree, **options).select(*NAMES)
