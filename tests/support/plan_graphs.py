"""Graphs whose text and picture the tests look at: small, and each with something of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

import penstock as ps
from penstock import col

EVENTS = pa.schema(
    [
        ("ad_id", pa.string()),
        ("event_type", pa.string()),
        ("event_time", pa.timestamp("us")),
        ("price", pa.float64()),
    ]
)
CAMPAIGNS = pa.table({"ad_id": ["a", "b"], "campaign_id": ["x", "y"]})


def campaign_views() -> ps.PipeGraph:
    """The program of the README: a filter, a table, a window, and late rows kept apart."""
    graph = ps.PipeGraph("campaign-views")
    views = (
        graph.source(ps.read.rows([], schema=EVENTS), time="event_time", delay="2 s", name="events")
        .filter(col("event_type") == "view")
        .join_table(CAMPAIGNS, on="ad_id", name="campaigns")
        .key_by("campaign_id")
        .window(ps.sliding("10 s", every="1 s"), lateness="1 s", name="views", parallelism=4)
        .aggregate(views=ps.count(), revenue=ps.sum("price"))
    )
    views.sink(ps.write.memory(), name="results")
    views.late.sink(ps.write.memory(), name="late-rows")
    return graph


def split_and_merge() -> ps.PipeGraph:
    """Two named branches that meet again, and a third that nobody reads."""
    graph = ps.PipeGraph("split-and-merge")
    pipe = graph.source(ps.read.rows([], schema=EVENTS), name="events", parallelism=2)
    kinds = pipe.split(view=col("event_type") == "view", click=col("event_type") == "click", name="kinds")
    dear = kinds["view"].filter(col("price") > 10, name="dear")
    clicks = kinds["click"].with_columns(price=col("price") * 2, name="doubled", on_error="skip")
    dear.merge(clicks).sink(ps.write.memory(), name="both")
    return graph


def join() -> ps.PipeGraph:
    """Two streams, joined in a grid of workers; both kinds of late rows are read."""
    graph = ps.PipeGraph("bids-and-asks")
    sides = {
        name: graph.source(
            ps.read.rows([], schema={"symbol": "string", "at": "timestamp[us]", name: "float64"}),
            time="at",
            delay="1 s",
            name=f"{name}s",
        )
        for name in ("bid", "ask")
    }
    asks = sides["ask"].filter(col("ask") > 0, name="valid asks").select("symbol", "ask")
    pairs = sides["bid"].join(asks, on="symbol", within="5 s", layout=(2, 3), name="pairs")
    pairs.sink(ps.write.memory(), name="matched")
    pairs.late.sink(ps.write.memory(), name="late bids")
    pairs.late_right.sink(ps.write.memory(), name="late asks")
    return graph


class Limiter(ps.ProcessOperator):
    """Passes on what is below a limit, which comes back from further down."""

    outputs: ClassVar[Mapping[str, object]] = {
        "out": {"a": "int64"},
        "rejected": {"a": "int64", "why": "string"},
    }
    control = ("limit",)

    async def process(self, ctx: ps.Context) -> None:
        raise AssertionError("these graphs are looked at, never run")


def feedback() -> ps.PipeGraph:
    """A loop through a control port, two output ports, and one that nobody reads."""
    graph = ps.PipeGraph("feedback")
    numbers = graph.source(ps.read.rows([], schema={"a": "int64"}), name="numbers")
    passed, _rejected = graph.operator(Limiter(), inputs=[numbers], name="limiter")
    doubled = passed.with_columns(a=col("a") * 2, name="doubled")
    doubled.feed_back("limiter", "limit")
    doubled.sink(ps.write.memory(), name="out")
    return graph
