"""SPRINGALD's figures 13 and 14, and more: keys uniform and skewed, up to a million, threads, campaigns."""

from __future__ import annotations

from dataclasses import replace

from bench.workload import Chart, Line, Point
from bench.workloads.windows import stage
from bench.workloads.windows.experiment import (
    BUCKETS,
    OURS,
    PANDAS,
    POLARS,
    READING,
    Experiment,
    Place,
    Places,
    Trial,
    lines_of,
    try_way,
    try_with_peers,
)
from bench.workloads.windows.shape import Shape

KEYS = (1, 10, 100, 500)
ONE_RATE, PER_CELL = "keys, one rate", "keys, equal slices"
ZIPF = "Zipf 0.9"
SECOND = 1_000_000


def sweep_keys(n_rows: int, which: tuple[int, ...] = KEYS, *, peers: bool = True) -> Experiment:
    """Vary the keys: the same stream with more keys, and equal rows per slice and key (figure 14)."""
    one_rate = Chart(
        "Keys, the same stream",
        "SPRINGALD, figure 14. Sum over windows of 1 s every 10 ms, a million rows a second whatever "
        "the keys: rows "
        "per slice and key fall from 10,000 to 20, results rise with the keys (both in the table).",
        "keys",
        (),
    )
    per_cell = Chart(
        "Keys, equal rows per slice and key",
        "SPRINGALD, figure 14, held as the other sweeps: 100 rows per slice and key, so one result per "
        "100 rows "
        "whatever the keys.",
        "keys",
        (),
    )
    trials: list[Trial] = []
    charts = []
    for group, chart, per_key in ((ONE_RATE, one_rate, 0), (PER_CELL, per_cell, 100)):
        places = {
            f"{n:,}": Place(n, Shape(n_rows, n_keys=n, per_slice=n * per_key or 10_000, steady=True))
            for n in which
        }
        of_group = _try_skews(group, places, peers=peers)
        trials += of_group
        charts.append(replace(chart, lines=lines_of(of_group)))
    return Experiment("keys", tuple(trials), tuple(charts))


def _try_skews(group: str, places: Places, *, peers: bool) -> tuple[Trial, ...]:
    skewed = {
        label: Place(at, replace(shape, skew=0.9) if shape.n_keys > 1 else shape)
        for label, (at, shape) in places.items()
    }
    of_ours = try_way(group, OURS, places, name="penstock, uniform")
    zipf = try_way(group, OURS, skewed, name=f"penstock, {ZIPF}", variant=ZIPF, style=1)
    of_peers = [try_way(group, way, places) for way in (READING, BUCKETS, PANDAS, POLARS)] if peers else []
    return (of_ours, zipf, *of_peers)


def sweep_many_keys(n_rows: int) -> Experiment:
    """Vary the keys up to a million, in tumbling windows of 1 s with a quarter of the rows each."""
    places = {
        f"{n:,}": Place(n, Shape(n_rows, every=SECOND, per_slice=n_rows // 4, n_keys=n))
        for n in (1, 100, 10_000, 100_000, 1_000_000)
    }
    trials = try_with_peers("many keys", places)
    caption = (
        "Beyond the paper. Tumbling windows of 1 s, uniform keys, four windows in all: results rise "
        "with the keys "
        "(see the table). A bucket per window is here a plain group-by with dense numbers for keys."
    )
    return Experiment(
        "many keys", trials, (Chart("Up to a million keys", caption, "keys", lines_of(trials)),)
    )


def sweep_threads(n_rows: int) -> Experiment:
    """Vary the threads that run several stages over disjoint keys (figure 13)."""
    trials: list[Trial] = []
    drawn = []
    for at, batch in enumerate((1 << 13, 1 << 15, 1 << 17)):
        label = f"batches of {batch:,}"
        shape = Shape(n_rows, n_keys=500, per_slice=50_000, steady=True, batch=batch)
        points = []
        for n in stage.THREADS:
            one = try_way("threads", stage.threads_way_name(n), {label: Place(n, shape)})
            points.append(Point(n, str(n), one.line.points[0].cell))
            trials.append(one)
        drawn.append(Line(label, tuple(points), at))
    caption = (
        "After SPRINGALD, figure 13 (there the threads feed the device, here they run the stages). "
        f"{stage.N_STAGES} stages over disjoint keys, 500 keys in all, 100 rows per slice and key, 1 s "
        "every "
        "10 ms; rows are partitioned beforehand. More threads than cores gain nothing."
    )
    chart = Chart("Stages over disjoint keys, on threads", caption, "threads", tuple(drawn))
    return Experiment("threads", tuple(trials), (chart,))


def build_campaigns(n_rows: int) -> Experiment:
    """Build the window of the Yahoo benchmark: counts of 1,000 keys, 1 s every 10 ms."""
    shape = Shape(n_rows, n_keys=1_000, function="count")
    trials = tuple(
        replace(one, line=replace(one.line, points=(replace(one.line.points[0], label=one.way),)))
        for one in try_with_peers("campaigns", {"1,000 keys, count": Place(0, shape)})
    )
    caption = (
        "SPRINGALD, figures 20 and 21 (right): the window of the Yahoo Streaming Benchmark, counts of "
        "1,000 uniform "
        "campaigns, 1 s every 10 ms. The filter and the join before it are other operators' work and "
        "not timed. "
        "Slower ways have fewer rows (see all figures)."
    )
    chart = Chart("Yahoo Streaming Benchmark, the window", caption, "way", lines_of(trials), form="bars")
    return Experiment("campaigns", trials, (chart,))
