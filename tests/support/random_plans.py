"""Graphs of any shape, for properties: maps, windows, splits, merges, side outputs, in any order."""

from __future__ import annotations

from hypothesis import strategies as st

import penstock as ps
from penstock import col

SCHEMA = {"k": "string", "t": "timestamp[us]", "v": "int64"}


@st.composite
def random_graphs(
    draw: st.DrawFn, *, merges: bool = True, closed: bool = False, most: int = 14
) -> ps.PipeGraph:
    """A graph of one or more sources and at most `most` further verbs; `closed` ends all pipes in sinks."""
    graph = ps.PipeGraph("random", chaining=draw(st.booleans()))
    pipes = [_source(graph, draw(DEGREES)) for _ in range(draw(st.integers(1, 3)))]
    verbs = ["map", "map", "window", "split", "errors", "sink"] + ["merge"] * merges
    for _ in range(draw(st.integers(0, most))):
        pipe = draw(st.sampled_from(pipes))
        match draw(st.sampled_from(verbs)):
            case "map":
                routing = draw(st.sampled_from([None, None, "rebalance"]))
                pipes.append(pipe.with_columns(v=col("v") + 1, parallelism=draw(DEGREES), routing=routing))
            case "window":
                windowed = pipe.key_by("k").window(ps.tumbling("1 s"), parallelism=draw(DEGREES))
                output = windowed.aggregate(t=ps.max("t"), v=ps.sum("v"))
                pipes += [output.select("k", "t", "v"), output.late]
            case "split":
                both = list(pipe.split(a=col("v") > 0, b=col("v") < 0))
                pipes += both[: draw(st.integers(1, 2))]
            case "errors":
                failing = pipe.with_columns(v=col("v") * 2, on_error="dead_letter")
                pipes += [failing, failing.errors.select("k", "t", "v")]
            case "sink":
                pipe.sink(ps.write.memory())
            case "merge":
                other = draw(st.sampled_from(pipes))
                if other.feeds != pipe.feeds:
                    pipes.append(pipe.merge(other).with_columns(v=col("v")))
    read = {ref for step in graph.steps.values() for ref in step.feeds}
    for pipe in pipes if closed else ():
        if not read.issuperset(pipe.feeds):
            pipe.sink(ps.write.memory())
    return graph


DEGREES = st.sampled_from([None, None, 1, 2, (1, 4)])


def _source(graph: ps.PipeGraph, degree: int | tuple[int, int] | None) -> ps.MultiPipe:
    return graph.source(ps.read.rows([], schema=SCHEMA), time="t", delay="1 s", parallelism=degree)
