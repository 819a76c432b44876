"""The Yahoo streaming benchmark and its relatives: events of advertisements, counted by campaign and window.

`yahoo` is the benchmark as WindFlow and AIR have it: the views of each campaign in ten seconds. `ysb-ratio`
is AIR's YSB*: views and clicks are counted apart, joined by window, and divided. `windowed-count` is AIR's
SWA: a count of all events. There are a hundred campaigns of ten advertisements; rows are those of WindFlow's
version, where everything follows from a running number, so that the answer is known in advance. WindFlow,
5.1; AIR, 5.1.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import col
from penstock.apps.application import Application, Options, Rows, Tables, duration, let_arrive

ADS_PER_CAMPAIGN = 10
N_CAMPAIGNS = 100
PERIOD = 100_000
"""The number of rows after which the running number restarts, as in WindFlow's generator."""
KINDS = ["view", "click", "purchase"]
WINDOW_US = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AdOptions(Options):
    """Options of the applications on advertisements.

    ids        what names advertisements, campaigns and kinds of events: "integers", as in WindFlow's version,
               or "text", as in Yahoo's: UUIDs and words
    window_us  the length of windows, in microseconds
    every_us   the slide of the windows of windowed-count
    ingest     take the time at which rows are read, as WindFlow's version does, instead of the event's own
    """

    ids: Literal["integers", "text"] = "integers"
    window_us: int = WINDOW_US
    every_us: int = WINDOW_US
    ingest: bool = False

    @property
    def n_campaigns(self) -> int:
        """Return the number of campaigns."""
        return self.keys or N_CAMPAIGNS


def generate(options: AdOptions) -> Tables:
    """Make events; advertisement and kind follow from a running number."""
    chance = np.random.default_rng(options.seed)
    number = np.arange(options.rows) % PERIOD
    ads, kinds = number % (options.n_campaigns * ADS_PER_CAMPAIGN), number % len(KINDS)
    is_text = options.ids == "text"
    rows = pa.table(
        {
            "time": (np.arange(options.rows) * (1e6 / options.rate)).astype(np.int64),
            "user": number,
            "ad": pa.array(draw_ids(options.n_campaigns, "ad")).take(pa.array(ads)) if is_text else ads,
            "ad_type": number % 5,
            "kind": pa.array(KINDS).take(pa.array(kinds)) if is_text else kinds,
        }
    )
    return {"events": let_arrive(rows, chance, options)}


@cache
def draw_ids(n_campaigns: int, kind: Literal["ad", "campaign"]) -> list[str]:
    """Return the UUIDs of advertisements or campaigns, always the same ones."""
    n = n_campaigns * ADS_PER_CAMPAIGN if kind == "ad" else n_campaigns
    return [str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}-{i}")) for i in range(n)]


def campaigns(options: AdOptions) -> pa.Table:
    """Return which advertisement belongs to which campaign."""
    ads = np.arange(options.n_campaigns * ADS_PER_CAMPAIGN)
    if options.ids == "integers":
        return pa.table({"ad": ads, "campaign": ads // ADS_PER_CAMPAIGN})
    names = pa.array(draw_ids(options.n_campaigns, "campaign"))
    owners = names.take(pa.array(ads // ADS_PER_CAMPAIGN))
    return pa.table({"ad": draw_ids(options.n_campaigns, "ad"), "campaign": owners})


def is_kind(kind: str, options: AdOptions) -> ps.Expr:
    """Return the predicate for events of a kind."""
    return col("kind") == (kind if options.ids == "text" else KINDS.index(kind))


def read_events(graph: ps.PipeGraph, readers: Mapping[str, Any], options: AdOptions) -> ps.MultiPipe:
    """Start the pipe of events, by their own time or by that at which they are read."""
    if options.ingest:
        return graph.source(readers["events"], time=ps.ingest_time(), name="source")
    return graph.source(readers["events"], time="time", time_unit="us", delay=options.delay, name="source")


def count_by_campaign(events: ps.MultiPipe, prefix: str, options: AdOptions, **counts: Any) -> ps.MultiPipe:
    """Return the events of each campaign in each window, counted."""
    return (
        events.join_table(campaigns(options), on="ad", name=f"{prefix}joiner")
        .key_by("campaign")
        .window(ps.tumbling(duration(options.window_us)), name=f"{prefix}window")
        .aggregate(**counts)
    )


def build_yahoo(readers: Mapping[str, Any], writer: Any, options: AdOptions) -> ps.PipeGraph:
    """Build the benchmark: filter, join with the campaigns, count."""
    graph = ps.PipeGraph("yahoo", chaining=options.chaining)
    views = read_events(graph, readers, options).filter(
        is_kind("view", options), parallelism=options.parallelism, name="filter"
    )
    counts = count_by_campaign(views, "", options, views=ps.count(), last=ps.event_time_max())
    counts.sink(writer, name="sink")
    return graph


def build_ratio(readers: Mapping[str, Any], writer: Any, options: AdOptions) -> ps.PipeGraph:
    """Build YSB*: views and clicks are counted apart, joined by campaign and window, and divided.

    A window with views and no click has the ratio 0. One with clicks and no view has none and does not leave.
    """
    graph = ps.PipeGraph("ysb-ratio", chaining=options.chaining)
    views, clicks = read_events(graph, readers, options).split(
        view=is_kind("view", options),
        click=is_kind("click", options),
        parallelism=options.parallelism,
        name="split",
    )
    viewed = count_by_campaign(views, "view-", options, views=ps.count())
    clicked = count_by_campaign(clicks, "click-", options, clicks=ps.count())
    both = viewed.join(
        clicked.select("campaign", "clicks", name="clicks"),
        on="campaign",
        window=ps.tumbling(duration(options.window_us)),
        how="left",
        name="join",
    )
    ratio = col("clicks").fill_null(0) / col("views")
    both.select("campaign", "window_start", ratio=ratio, name="ratio").sink(writer, name="sink")
    return graph


def build_count(readers: Mapping[str, Any], writer: Any, options: AdOptions) -> ps.PipeGraph:
    """Build SWA: a window over all events."""
    graph = ps.PipeGraph("windowed-count", chaining=options.chaining)
    window = ps.sliding(duration(options.window_us), every=duration(options.every_us))
    events = read_events(graph, readers, options).window(
        window, parallelism=options.parallelism, name="window"
    )
    events.aggregate(events=ps.count()).sink(writer, name="sink")
    return graph


def count_kind(tables: Tables, options: AdOptions, kind: str) -> tuple[Counter[Any], dict[Any, int]]:
    """Return the number of events of a kind by (campaign, window start), and the time of the last."""
    by_ad = dict(zip(*(campaigns(options).column(i).to_pylist() for i in (0, 1)), strict=True))
    wanted = kind if options.ids == "text" else KINDS.index(kind)
    counts: Counter[Any] = Counter()
    last: dict[Any, int] = {}
    columns = (tables["events"].column(name).to_pylist() for name in ("kind", "ad", "time"))
    for event_kind, ad, time in zip(*columns, strict=True):
        if event_kind == wanted:
            key = by_ad[ad], time // options.window_us * options.window_us
            counts[key] += 1
            last[key] = max(last.get(key, 0), time)
    return counts, last


def recount_views(tables: Tables, options: AdOptions) -> Rows:
    """Count the views of each campaign and window."""
    counts, last = count_kind(tables, options, "view")
    size = options.window_us
    return [
        {"campaign": name, "window_start": start, "window_end": start + size, "views": n, "last": last[key]}
        for key, n in counts.items()
        for name, start in [key]
    ]


def recount_ratio(tables: Tables, options: AdOptions) -> Rows:
    """Divide clicks by views where there are views."""
    views, clicks = (count_kind(tables, options, kind)[0] for kind in ("view", "click"))
    return [
        {"campaign": campaign, "window_start": start, "ratio": clicks[campaign, start] / n}
        for (campaign, start), n in views.items()
    ]


def recount_events(tables: Tables, options: AdOptions) -> Rows:
    """Count events window by window."""
    counts: Counter[int] = Counter()
    for time in tables["events"].column("time").to_pylist():
        counts.update(window_starts(time, options.window_us, options.every_us))
    size = options.window_us
    return [{"window_start": at, "window_end": at + size, "events": n} for at, n in counts.items()]


def window_starts(time: int, size: int, every: int) -> Iterator[int]:
    """Yield where the windows begin that a time is in."""
    start = time // every * every
    while start > time - size:
        yield start
        start -= every


def _application(
    name: str,
    label: str,
    paper: str,
    summary: str,
    build: Callable[..., ps.PipeGraph],
    recount: Callable[..., Rows],
) -> Application:
    return Application(
        name=name,
        label=label,
        paper=paper,
        summary=summary,
        reads="time, user, ad, ad_type, kind",
        forms=("columns",),
        options=AdOptions,
        generate=generate,
        build=build,
        recount=recount,
    )


YAHOO = _application(
    "yahoo",
    "YB",
    "WindFlow, AIR",
    "views of each campaign in ten seconds (the Yahoo streaming benchmark)",
    build_yahoo,
    recount_views,
)
YSB_RATIO = _application(
    "ysb-ratio",
    "YSB*",
    "AIR",
    "clicks by views of each campaign in ten seconds: two counts, joined by window",
    build_ratio,
    recount_ratio,
)
WINDOWED_COUNT = _application(
    "windowed-count", "SWA", "AIR", "events in ten seconds", build_count, recount_events
)
