"""Campaign views: how often each campaign was seen in the last ten seconds, every second, and what it
earned.

This is the program of `penstock demo`. It reads advertisement events from `events/` in a folder and
writes `views/` and, so that no row disappears silently, `late/`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

import penstock as ps
from penstock import col
from penstock.apps.ad_events import ad_events, campaigns


def campaign_views(folder: Path) -> ps.PipeGraph:
    """The graph that reads and writes below a folder; running it again replaces its output."""
    graph = ps.PipeGraph("campaign-views")
    views = (
        graph.source(
            ps.read.parquet(folder / "events", batch=250), time="event_time", delay="2 s", name="events"
        )
        .filter(col("event_type") == "view", name="only-views")
        .join_table(campaigns(), on="ad_id", name="campaigns")
        .key_by("campaign_id")
        .window(ps.sliding("10 s", every="1 s"), lateness="1 s", name="views")
        .aggregate(views=ps.count(), revenue=ps.sum("price"))
    )
    views.sink(ps.write.parquet(folder / "views", overwrite=True), name="results")
    views.late.sink(ps.write.jsonl(folder / "late", overwrite=True), name="late-rows")
    return graph


def write_events(folder: Path, *, rows: int = 5_000, seed: int = 1) -> None:
    """Put made-up events where `campaign_views` reads them."""
    (folder / "events").mkdir(parents=True, exist_ok=True)
    pq.write_table(ad_events(rows, seed=seed), folder / "events" / "events.parquet")
