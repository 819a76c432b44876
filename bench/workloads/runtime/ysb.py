"""YSB: views of advertisements, joined with their campaigns, counted per campaign and ten seconds.

Rows are those of WindFlow's version: advertisement, kind and event type follow from a running number; there
are a hundred campaigns of ten advertisements each. All five columns are in memory before the clock starts, as
integers or, in the other case, as text and UUIDs where the original has text.

At full size a run takes a few seconds, so that with a period of a second several checkpoints are in it. All
columns but the time repeat themselves every 100,000 rows, so those of some millions of rows, more than any
cache has, are used again for the rows behind them.
"""

from __future__ import annotations

import random
import tempfile
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Outcome, Way

INTEGERS, UUIDS = "YSB, integer ids", "YSB, UUIDs"
POOL, ALONE = "penstock", "penstock, one thread"
SAVED = "penstock, with checkpoint= and events="
N_CAMPAIGNS, ADS_EACH = 100, 10
N_ADS = N_CAMPAIGNS * ADS_EACH
WINDOW = 10_000_000
RATE = 1_000_000
"""Rows per second of event time."""
BATCH = 1 << 18
ROUND = 100_000
"""The number of rows after which the running number restarts, as in WindFlow's generator."""
N_STORED = 160 * ROUND
"""The most rows of which all columns are in memory; behind them only times are new."""

Answer = dict[tuple[Any, int], int]


@dataclass(frozen=True, slots=True, eq=False)
class Ads:
    """The rows, the table of campaigns, and the event type of a view."""

    rows: pa.Table
    campaigns: pa.Table
    view: Any

    def expected_answer(self) -> Answer:
        """Return the views by (campaign, window start), counted by NumPy from the running number."""
        n = self.rows.num_rows
        n_cells = ((n - 1) * 1_000_000 // RATE // WINDOW + 1) * N_CAMPAIGNS
        counts = np.zeros(n_cells, np.int64)
        for first in range(0, n, N_STORED):
            place = np.arange(first, min(first + N_STORED, n))
            number, times = place % ROUND, place * 1_000_000 // RATE
            viewed = number % 3 == 0
            flat = times[viewed] // WINDOW * N_CAMPAIGNS + number[viewed] % N_ADS // ADS_EACH
            counts += np.bincount(flat, minlength=n_cells)
        names = self.campaigns.column("campaign").to_pylist()[::ADS_EACH]
        return {
            (names[at % N_CAMPAIGNS], at // N_CAMPAIGNS * WINDOW): int(counts[at])
            for at in np.flatnonzero(counts).tolist()
        }


def build_cases(n_integers: int, n_uuids: int) -> list[Case]:
    """Build the cases with integers and with UUIDs."""
    return [
        Case(INTEGERS, lambda seed: build_integer_ads(n_integers), units={"rows": n_integers}, group="YSB"),
        Case(UUIDS, lambda seed: build_uuid_ads(n_uuids, seed), units={"rows": n_uuids}, group="YSB, UUIDs"),
    ]


def build_ways() -> list[Way]:
    """Build the ways: as many threads as cores, one, and with a checkpoint every second and a listener."""
    return [
        Way(POOL, lambda ads: count_views(ads, None), only=(INTEGERS, UUIDS)),
        Way(ALONE, lambda ads: count_views(ads, 1), only=(INTEGERS, UUIDS)),
        Way(SAVED, lambda ads: count_views(ads, None, is_saved=True), only=(INTEGERS, UUIDS)),
    ]


def count_views(ads: Ads, threads: int | None, *, is_saved: bool = False) -> Outcome:
    """Run the program: filter, join, and a count per campaign and window."""
    graph = ps.PipeGraph("campaigns")
    counted = (
        graph.source(ps.read.table(ads.rows, batch=BATCH), time="time", time_unit="us", delay="0 s")
        .filter(ps.col("event_type") == ads.view)
        .join_table(ads.campaigns, on="ad")
        .key_by("campaign")
        .window(ps.tumbling("10 s"), name="views")
        .aggregate(views=ps.count(), last=ps.event_time_max())
    )
    options = ps.LocalOptions(threads=threads, save_every="1 s")
    if is_saved:
        results, events = ps.write.memory(), deque[ps.events.Event](maxlen=1)
        counted.sink(results)
        with tempfile.TemporaryDirectory() as folder:
            graph.run(engine="local", options=options, checkpoint=folder, events=events.append, drain=True)
        return Outcome(lambda: _answer_from_table(results.table()))
    table = counted.collect(engine="local", options=options)
    return Outcome(lambda: _answer_from_table(table))


def _answer_from_table(table: pa.Table) -> Answer:
    names = ("campaign", "window_start", "views")
    columns = (table.column(name).to_pylist() for name in names)
    return {(campaign, start): n for campaign, start, n in zip(*columns, strict=True)}


def build_integer_ads(n: int) -> Ads:
    """Build rows of five integers, 40 bytes each."""
    number = np.arange(min(n, N_STORED)) % ROUND
    rows = _build_rows(n, number, pa.array(number % N_ADS), pa.array(number % 3))
    ads = np.arange(N_ADS)
    return Ads(rows, pa.table({"ad": ads, "campaign": ads // ADS_EACH}), 0)


def build_uuid_ads(n: int, seed: int) -> Ads:
    """Build the same rows with UUIDs for advertisements and campaigns, and text for event types."""
    chance = random.Random(seed)  # noqa: S311 (made-up names, nothing secret)
    ads, campaigns = _draw_uuids(chance, N_ADS), _draw_uuids(chance, N_CAMPAIGNS)
    number = np.arange(min(n, N_STORED)) % ROUND
    words = pa.array(["view", "click", "purchase"])
    kinds = words.take(pa.array(number % 3))
    rows = _build_rows(n, number, pa.array(ads).take(pa.array(number % N_ADS)), kinds)
    named = [campaigns[ad // ADS_EACH] for ad in range(N_ADS)]
    return Ads(rows, pa.table({"ad": ads, "campaign": named}), "view")


def _build_rows(n: int, number: np.ndarray[Any, Any], ads: pa.Array, kinds: pa.Array) -> pa.Table:
    """Build so many rows of these columns, which are used again and again, and their times."""
    stored = {"user": pa.array(number), "ad": ads, "ad_type": pa.array(number % 5), "event_type": kinds}
    columns: dict[str, list[pa.Array]] = {name: [] for name in (*stored, "time")}
    for first in range(0, n, len(number)):
        size = min(len(number), n - first)
        for name, column in stored.items():
            columns[name].append(column.slice(0, size))
        columns["time"].append(pa.array(np.arange(first, first + size) * 1_000_000 // RATE))
    return pa.table({name: pa.chunked_array(chunks) for name, chunks in columns.items()})


def _draw_uuids(chance: random.Random, n: int) -> list[str]:
    return [str(uuid.UUID(int=chance.getrandbits(128), version=4)) for _ in range(n)]
