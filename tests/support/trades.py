"""The stream that most tests of the graph begin with, and the sink that most end with."""

from __future__ import annotations

import pyarrow as pa

import penstock as ps

TRADES = pa.schema(
    [
        ("user", pa.string()),
        ("item", pa.string()),
        ("price", pa.float64()),
        ("n", pa.int64()),
        ("paid", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("tick", pa.int64()),
    ]
)


def trades(graph: ps.PipeGraph | None = None, *, name: str = "trades", parallelism: int = 1) -> ps.MultiPipe:
    """Trades with event time, up to two seconds out of order."""
    graph = graph or ps.PipeGraph("shop")
    return graph.source(
        ps.read.rows([], schema=TRADES), time="at", delay="2 s", name=name, parallelism=parallelism
    )


def timeless(graph: ps.PipeGraph | None = None, *, name: str = "untimed") -> ps.MultiPipe:
    """The same without event time."""
    return (graph or ps.PipeGraph("shop")).source(ps.read.rows([], schema=TRADES), name=name)
