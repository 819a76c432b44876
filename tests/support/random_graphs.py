"""Random graphs through the public API: every verb, splits, merges, windows, joins, sides, degrees, loops.

A graph is drawn as a list of choices, so that the same graph can be built again with other settings.
Rows keep the columns of `EVENTS` between verbs, so that any verb can follow any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

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
    return pipe.map(same, schema=EVENTS, keeps="key", parallelism=n)


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


class Loop(ps.ProcessOperator):
    """The base of the own loops: they push rows of `EVENTS`."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": EVENTS}


class Threes(Loop):
    """Makes one row of three, which tells their order; of the rest too, when no more can come."""

    async def process(self, ctx: ps.Context) -> None:
        port, over = ctx.inputs["in"], False
        while not over:
            over = not await ctx.wait_for_all({"in": 3})
            rows: list[Any] = [port.pop() for _ in range(min(3, len(port)))]
            if rows:
                digits = [(row.value or 0) % 10 for row in rows]
                value = int("".join(map(str, digits)))
                await ctx.outputs["out"].push({**same(rows[0]), "value": value})


class Hold(Loop):
    """Takes all rows, and pushes how many there were when no more can come."""

    async def process(self, ctx: ps.Context) -> None:
        n = 0
        while await ctx.wait_for_any({"in": 1}):
            ctx.inputs["in"].pop()
            n += 1
        if n:
            await ctx.outputs["out"].push({"key": "held", "value": n, "t": n})


class Lag(Loop):
    """Keeps the two latest rows back until the end."""

    async def process(self, ctx: ps.Context) -> None:
        port = ctx.inputs["in"]
        while await ctx.wait_for_all({"in": 3}):
            await ctx.outputs["out"].push(same(port.pop()))
        while len(port):
            await ctx.outputs["out"].push(same(port.pop()))


class First(Loop):
    """Passes four rows on, and returns."""

    async def process(self, ctx: ps.Context) -> None:
        for _ in range(4):
            if not await ctx.wait_for_all({"in": 1}):
                return
            await ctx.outputs["out"].push(same(ctx.inputs["in"].pop()))


class Rounds(Loop):
    """Says how many rows came together."""

    async def process(self, ctx: ps.Context) -> None:
        port = ctx.inputs["in"]
        while await ctx.wait_for_any({"in": 1}):
            n, row = len(port), same(port.peek())
            while len(port):
                port.pop()
            await ctx.outputs["out"].push({**row, "value": n})


class Pairs(Loop):
    """Pairs rows of two ports, one by one; what one port has too many of is never taken."""

    inputs = ("left", "right")

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"left": 1, "right": 1}):
            left, right = same(ctx.inputs["left"].pop()), same(ctx.inputs["right"].pop())
            await ctx.outputs["out"].push({**left, "value": (left["value"] or 0) + (right["value"] or 0)})


class Either(Pairs):
    """Takes all that is there from two ports, and says how many wait on the other."""

    async def process(self, ctx: ps.Context) -> None:
        left, right = ctx.inputs["left"], ctx.inputs["right"]
        while await ctx.wait_for_any({"left": 1, "right": 1}):
            for port, other in ((left, right), (right, left)):
                while len(port):
                    await ctx.outputs["out"].push({**same(port.pop()), "value": len(other)})


class Turns(Pairs):
    """Takes two rows of one port, then one of the other, and so on; when one is over, all of the other."""

    async def process(self, ctx: ps.Context) -> None:
        wanted, other = {"left": 2}, {"right": 1}
        while await ctx.wait_for_all(wanted):
            for name, n in wanted.items():
                for _ in range(n):
                    await ctx.outputs["out"].push(same(ctx.inputs[name].pop()))
            wanted, other = other, wanted
        (over,) = wanted
        await self.push_rest(ctx, over)

    async def push_rest(self, ctx: ps.Context, name: str) -> None:
        """Push what is there of a port, and what still comes to any."""
        while len(ctx.inputs[name]) or await ctx.wait_for_any({"left": 1, "right": 1}):
            port = next(port for port in (ctx.inputs[name], *ctx.inputs.values()) if len(port))
            await ctx.outputs["out"].push(same(port.pop()))


class Smaller(Turns):
    """Takes the row with the smaller value of two ports, the left one's if they are equal."""

    async def process(self, ctx: ps.Context) -> None:
        left, right = ctx.inputs["left"], ctx.inputs["right"]
        while await ctx.wait_for_all({"left": 1, "right": 1}):
            is_left = (left.peek().value or 0) <= (right.peek().value or 0)
            await ctx.outputs["out"].push(same((left if is_left else right).pop()))
        await self.push_rest(ctx, "left")


class Limit(Loop):
    """Marks rows with the latest value that came to its control port."""

    control = ("limit",)

    def __init__(self) -> None:
        self.limit: int | None = None

    def on_control(self, port: str, row: Any) -> None:
        self.limit = row.value

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            await ctx.outputs["out"].push({**same(ctx.inputs["in"].pop()), "value": self.limit})


LOOPS: dict[str, type[Loop]] = {
    "threes": Threes,
    "hold": Hold,
    "lag": Lag,
    "first": First,
    "rounds": Rounds,
    "feedback": Limit,
}
LOOP_MEETINGS: dict[str, type[Loop]] = {
    "pairs": Pairs,
    "turns": Turns,
    "smaller": Smaller,
    "either": Either,
    "control": Limit,
}
WITH_LOOPS = (*(action for action in WHATS if action != "source"), "merge", *LOOPS, *LOOP_MEETINGS)
"""What is done to graphs with own loops, once their sources are there."""


def choices(
    *, max_degree: int = 3, max_size: int = 10, whats: Sequence[str] = WHATS
) -> st.SearchStrategy[list[Choice]]:
    """What to do to a graph, in order."""
    one = st.builds(
        Choice,
        st.sampled_from(whats),
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
    delay: Callable[[int], int] = lambda n: 3,
) -> ps.PipeGraph:
    """The graph of some choices; all pipes end in sinks.

    rows   gives the reader of the n-th source
    delay  gives its delay in seconds
    """

    def add_source(degree: int) -> ps.MultiPipe:
        n = len([name for name in graph.steps if name.startswith("source")])
        return graph.source(rows(n), time="t", time_unit="s", delay=delay(n), parallelism=degree)

    graph = ps.PipeGraph("random", chaining=chaining)
    pipes = [add_source(1)]
    for choice in done:
        _do(choice, graph, pipes, add_source)
    for pipe in pipes:
        pipe.sink(ps.write.memory())
    return graph


def _do(
    choice: Choice, graph: ps.PipeGraph, pipes: list[ps.MultiPipe], add_source: Callable[[int], ps.MultiPipe]
) -> None:
    at = choice.at % len(pipes)
    pipe = pipes[at]
    if choice.action in VERBS:
        pipes[at] = VERBS[choice.action](pipe, choice.degree)
    elif choice.action in LOOPS:
        pipes[at] = _loop(choice, graph, pipe)
    elif choice.action == "source":
        pipes.append(add_source(choice.degree))
    elif choice.action == "sink":
        pipe.sink(ps.write.memory())
        if len(pipes) > 1:
            del pipes[at]
    elif choice.action in FORKS:
        pipes[at : at + 1] = _fork(choice, pipe)
    elif len(pipes) > 1:
        _meet(choice, graph, pipes)
    elif choice.action == "join":
        pipes[at] = _join(choice, pipe, pipe)


def _fork(choice: Choice, pipe: ps.MultiPipe) -> list[ps.MultiPipe]:
    if choice.action == "split":
        return list(pipe.split(even=col("value") % 2 == 0, odd=col("value") % 2 != 0))
    if choice.action == "copy":
        return [_filter(pipe, choice.degree), _map(pipe, choice.degree)]
    windows = pipe.keyless().window(ps.tumbling(6)).aggregate(value=ps.count())
    results = windows.select(key=ps.lit("all"), value=col("value"), t=col("window_end"))
    return [results, windows.late]


def _loop(choice: Choice, graph: ps.PipeGraph, pipe: ps.MultiPipe) -> ps.MultiPipe:
    name = f"{choice.action}-{len(graph.steps)}"
    (out,) = graph.operator(LOOPS[choice.action](), inputs=[pipe], name=name)
    if choice.action == "feedback":
        pipe_back = out if choice.other % 2 else _map(out, choice.degree)
        pipe_back.feed_back(name, "limit")
    return out


def _meet(choice: Choice, graph: ps.PipeGraph, pipes: list[ps.MultiPipe]) -> None:
    left = pipes.pop(choice.at % len(pipes))
    right = pipes.pop(choice.other % len(pipes))
    if choice.action == "control":
        pipes += graph.operator(Limit(), inputs=[left], control=[right])
    elif choice.action in LOOP_MEETINGS:
        pipes += graph.operator(LOOP_MEETINGS[choice.action](), inputs=[left, right])
    elif set(left.feeds) & set(right.feeds):
        pipes.append(left)
    elif choice.action == "merge":
        pipes.append(left.merge(right))
    else:
        pipes.append(_join(choice, left, right))


def _join(choice: Choice, left: ps.MultiPipe, right: ps.MultiPipe) -> ps.MultiPipe:
    options = JOINS[(choice.at + choice.other) % len(JOINS)]
    return left.join(right, suffix="_right", parallelism=choice.degree, **options).select(*NAMES)
