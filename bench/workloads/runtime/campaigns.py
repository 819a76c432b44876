"""YSB: views of advertisements, joined with their campaigns, counted per campaign and ten seconds.

Rows are those of WindFlow's own version: advertisement, kind and event type follow from a running number; a
hundred campaigns of ten advertisements each. All five columns lie in memory before the clock starts, as
integers or, in the other case, with text and UUIDs for what text it is in the original.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Way
from bench.workloads.runtime.told import Told

INTEGERS, UUIDS = "YSB, integer ids", "YSB, UUIDs"
POOL, ALONE = "penstock", "penstock, one thread"
N_CAMPAIGNS, ADS_EACH = 100, 10
N_ADS = N_CAMPAIGNS * ADS_EACH
WINDOW = 10_000_000
RATE = 1_000_000
"""Rows a second by their own times."""
BATCH = 1 << 18
ROUND = 100_000
"""The running number begins again after so many rows, as in WindFlow's generator."""

Answer = dict[tuple[Any, int], int]


@dataclass(frozen=True, slots=True, eq=False)
class Ads:
    """Rows, the table of campaigns, and what a view is."""

    rows: pa.Table
    campaigns: pa.Table
    view: Any

    def right(self) -> Answer:
        """Views by (campaign, start of the window), counted by NumPy from the running number."""
        n = self.rows.num_rows
        number, times = np.arange(n) % ROUND, np.arange(n) * 1_000_000 // RATE
        viewed = number % 3 == 0
        flat = times[viewed] // WINDOW * N_CAMPAIGNS + number[viewed] % N_ADS // ADS_EACH
        names = self.campaigns.column("campaign").to_pylist()[::ADS_EACH]
        counts = np.bincount(flat)
        return {
            (names[at % N_CAMPAIGNS], at // N_CAMPAIGNS * WINDOW): int(counts[at])
            for at in np.flatnonzero(counts).tolist()
        }


def cases(n_integers: int, n_uuids: int) -> list[Case]:
    """Return the same rows with integers, and with text."""
    return [
        Case(INTEGERS, lambda seed: with_integers(n_integers), units={"rows": n_integers}, group="YSB"),
        Case(UUIDS, lambda seed: with_uuids(n_uuids, seed), units={"rows": n_uuids}, group="YSB, UUIDs"),
    ]


def ways() -> list[Way]:
    """With as many threads as cores, and with one."""
    return [
        Way(POOL, lambda ads: views(ads, None), only=(INTEGERS, UUIDS)),
        Way(ALONE, lambda ads: views(ads, 1), only=(INTEGERS, UUIDS)),
    ]


def views(ads: Ads, threads: int | None) -> Told:
    """Return the program."""
    graph = ps.PipeGraph("campaigns")
    counted = (
        graph.source(ps.read.table(ads.rows, batch=BATCH), time="time", time_unit="us", delay="0 s")
        .filter(ps.col("event_type") == ads.view)
        .join_table(ads.campaigns, on="ad")
        .key_by("campaign")
        .window(ps.tumbling("10 s"))
        .aggregate(views=ps.count(), last=ps.event_time_max())
    )
    found = counted.collect(engine="local", options=ps.LocalOptions(threads=threads))
    return Told(lambda: _answer(found))


def _answer(table: pa.Table) -> Answer:
    names = ("campaign", "window_start", "views")
    columns = (table.column(name).to_pylist() for name in names)
    return {(campaign, start): n for campaign, start, n in zip(*columns, strict=True)}


def with_integers(n: int) -> Ads:
    """Rows of five integers, 40 bytes."""
    number = np.arange(n) % ROUND
    rows = _rows(number, pa.array(number % N_ADS), pa.array(number % 3))
    ads = np.arange(N_ADS)
    return Ads(rows, pa.table({"ad": ads, "campaign": ads // ADS_EACH}), 0)


def with_uuids(n: int, seed: int) -> Ads:
    """Return the same with UUIDs for advertisements and campaigns, and words for what happened."""
    chance = random.Random(seed)  # noqa: S311 (made-up names, nothing secret)
    ads, campaigns = _uuids(chance, N_ADS), _uuids(chance, N_CAMPAIGNS)
    number = np.arange(n) % ROUND
    words = pa.array(["view", "click", "purchase"])
    rows = _rows(number, pa.array(ads).take(pa.array(number % N_ADS)), words.take(pa.array(number % 3)))
    named = [campaigns[ad // ADS_EACH] for ad in range(N_ADS)]
    return Ads(rows, pa.table({"ad": ads, "campaign": named}), "view")


def _rows(number: np.ndarray[Any, Any], ads: pa.Array, kinds: pa.Array) -> pa.Table:
    times = np.arange(len(number)) * 1_000_000 // RATE
    return pa.table({"user": number, "ad": ads, "ad_type": number % 5, "event_type": kinds, "time": times})


def _uuids(chance: random.Random, n: int) -> list[str]:
    return [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(n)]
