"""Advertisement events to try things with: out of order, some late, some of unknown advertisements.

Seeded, so that the same call gives the same rows. Times are spread evenly from 2030-01-01 on; most rows
arrive up to two seconds after later ones, a few so late that every window of theirs is gone.
"""

from __future__ import annotations

import random

import pyarrow as pa

START_US = 1_893_456_000_000_000  # 2030-01-01 00:00:00 UTC
ADS_PER_CAMPAIGN = 10
DISORDER_US = 2_000_000  # what `delay="2 s"` allows for
LATE_US = 30_000_000
LATE_SHARE = 0.002
UNKNOWN_SHARE = 0.01

EVENTS = pa.schema(
    [
        ("event_time", pa.timestamp("us", "UTC")),
        ("ad_id", pa.int64()),
        ("event_type", pa.string()),
        ("price", pa.float64()),
    ]
)


def campaigns(n: int = 5) -> pa.Table:
    """Which advertisement belongs to which campaign: n campaigns of ten advertisements each."""
    ads = range(n * ADS_PER_CAMPAIGN)
    return pa.table(
        {"ad_id": list(ads), "campaign_id": [f"campaign-{ad // ADS_PER_CAMPAIGN}" for ad in ads]},
        schema=pa.schema([("ad_id", pa.int64()), ("campaign_id", pa.string())]),
    )


def ad_events(n: int = 5_000, *, seconds: int = 60, n_campaigns: int = 5, seed: int = 1) -> pa.Table:
    """Make n events over a stretch of time, in the order in which they arrive."""
    chance = random.Random(seed)  # noqa: S311 (made-up data, nothing secret)
    arrivals = []
    for at in range(n):
        time = START_US + at * seconds * 1_000_000 // n
        held_up = LATE_US if chance.random() < LATE_SHARE else chance.randrange(DISORDER_US)
        arrivals.append((time + held_up, time, _event(chance, n_campaigns)))
    arrivals.sort(key=lambda arrival: arrival[:2])
    rows = [{"event_time": time, **event} for _, time, event in arrivals]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def _event(chance: random.Random, n_campaigns: int) -> dict[str, object]:
    known = n_campaigns * ADS_PER_CAMPAIGN
    unknown = chance.random() < UNKNOWN_SHARE
    return {
        "ad_id": known + chance.randrange(ADS_PER_CAMPAIGN) if unknown else chance.randrange(known),
        "event_type": chance.choices(("view", "click", "purchase"), weights=(8, 3, 1))[0],
        "price": chance.randrange(1, 500) / 100,
    }
