"""Campaign views: the views of each campaign in the last ten seconds, every second, and its revenue.

This is the program of `penstock demo`. It reads advertisement events from `events/` in a folder and
writes `views/` and, so that no row disappears silently, `late/`. The events are made up: out of order, some
late, some of unknown advertisements. They are seeded, so that the same call gives the same rows. Times are
spread evenly from 2030-01-01 on; most rows arrive up to two seconds after later ones, a few so late that
every window of theirs is gone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from penstock import col

START_US = 1_893_456_000_000_000  # 2030-01-01 00:00:00 UTC
ADS_PER_CAMPAIGN = 10
DISORDER_US = 2_000_000  # what `delay="2 s"` allows for
LATE_US = 30_000_000
LATE_SHARE = 0.005
UNKNOWN_SHARE = 0.01

EVENTS = pa.schema(
    [
        ("event_time", pa.timestamp("us", "UTC")),
        ("ad_id", pa.int64()),
        ("event_type", pa.string()),
        ("price", pa.float64()),
    ]
)


def campaign_views(folder: Path) -> ps.PipeGraph:
    """Return the graph that reads and writes below a folder; running it again replaces its output."""
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


def campaigns(n: int = 5) -> pa.Table:
    """Return which advertisement belongs to which campaign: n campaigns of ten advertisements each."""
    ads = range(n * ADS_PER_CAMPAIGN)
    return pa.table(
        {"ad_id": list(ads), "campaign_id": [f"campaign-{ad // ADS_PER_CAMPAIGN}" for ad in ads]},
        schema=pa.schema([("ad_id", pa.int64()), ("campaign_id", pa.string())]),
    )


def ad_events(
    n: int = 5_000, *, seconds: int = 60, n_campaigns: int = 5, seed: int = 1, late_share: float = LATE_SHARE
) -> pa.Table:
    """Make n events over a number of seconds, in the order in which they arrive."""
    chance = np.random.default_rng(seed)
    times = START_US + np.arange(n) * (seconds * 1_000_000) // n
    is_late = chance.random(n) < late_share
    arrivals = times + np.where(is_late, LATE_US, chance.integers(0, DISORDER_US, n))
    known, is_unknown = n_campaigns * ADS_PER_CAMPAIGN, chance.random(n) < UNKNOWN_SHARE
    unknown = known + chance.integers(0, ADS_PER_CAMPAIGN, n)
    kinds = chance.choice(3, n, p=[8 / 12, 3 / 12, 1 / 12])
    columns = [
        pa.array(times, EVENTS.field("event_time").type),
        pa.array(np.where(is_unknown, unknown, chance.integers(0, known, n))),
        pa.array(["view", "click", "purchase"]).take(pa.array(kinds)),
        pa.array(chance.integers(1, 500, n) / 100),
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS).take(np.argsort(arrivals, kind="stable"))
