"""The whole workload: a search for the knee of every system on every query, the claims, and AIR's figures.

Windows are of one second instead of AIR's ten and a trial takes some seconds instead of 300, so that a search
takes minutes; where they overlap, a trial has about as many as AIR's thirty. Ways run once: the search itself
repeats what was disturbed. The first trial of a system is not counted: it loads what is loaded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from bench.peers.peer import FLINK_PACED
from bench.sustainable import Knee, find_knee
from bench.workload import Case, Cell, Chart, Claim, Line, Point, Size, Way, Workload, curve_note
from bench.workloads.sustainable.feed import N_CAMPAIGNS, Query
from bench.workloads.sustainable.systems import BY_HAND, IN_PROCESS, ON_SPARK, build_system

SECOND = 1_000_000
QUERIES = (
    Query("SWA", "swa", SECOND, SECOND, 1),
    Query("SWA, 10 windows a row", "swa", 2 * SECOND, SECOND // 5, 1),
    Query("YSB", "ysb", SECOND, SECOND, N_CAMPAIGNS),
    Query("YSB, 10 windows a row", "ysb", 2 * SECOND, SECOND // 5, N_CAMPAIGNS),
    Query("YSB*", "ysb-star", SECOND, SECOND, N_CAMPAIGNS),
)
SYSTEMS = (ON_SPARK, BY_HAND, IN_PROCESS, FLINK_PACED.name)
START = {IN_PROCESS: 400_000.0, ON_SPARK: 100_000.0, BY_HAND: 100_000.0, FLINK_PACED.name: 100_000.0}
MOST = {IN_PROCESS: 100e6, ON_SPARK: 8e6, BY_HAND: 8e6, FLINK_PACED.name: 16e6}
"""The greatest rates that are tried: beyond these of files, writing them would be measured."""
RATE, COST = "rows/s sustained", "per row at the knee (s)"
LATENCY, WINDOWS = "average latency (s)", "windows that came, of 100"


class Trials(NamedTuple):
    """A query, and how its searches are made."""

    query: Query
    seconds: float
    precision: float


def workload(size: Size) -> Workload:
    """Build the workload."""
    seconds, precision = (8.0, 1.35) if size == "quick" else (30.0, 1.15)
    return Workload(
        name="sustainable",
        about="the greatest rate that SWA, YSB and YSB* sustain: Penstock, PySpark by hand, Flink SQL",
        cases=tuple(
            Case(query.name, partial(_make, Trials(query, seconds, precision)), group=query.name)
            for query in QUERIES
        ),
        ways=tuple(Way(name, partial(search, name), notes=build_notes) for name in SYSTEMS),
        oracle=lambda trials: None,
        check=lambda expected, knee: None,  # every answer of every trial is checked by the stop-watch
        claims=tuple(_claims()),
        charts=tuple(_charts()),
        collector=True,
        rounds=1,
        warm_up=0,
    )


def _make(trials: Trials, seed: int) -> Trials:
    return trials


def search(name: str, trials: Trials) -> Knee:
    """Search the knee of a system."""
    system = build_system(name, trials.query)
    system(START[name], 2.0 * trials.query.size / 1e6)
    return find_knee(
        system, start=START[name], seconds=trials.seconds, most=MOST[name], precision=trials.precision
    )


def build_notes(knee: Knee) -> Mapping[str, float]:
    """Return the knee, and the curve of latency and of windows that came; a second a row if there is none."""
    notes = {RATE: knee.rate, COST: 1 / knee.rate if knee.rate else 1.0}
    if knee.rate:
        notes["latency at the knee (s)"] = knee.latency
    for trial in knee.curve():
        if trial.latencies:
            notes[curve_note(trial.rate, LATENCY)] = trial.latency
        notes[curve_note(trial.rate, WINDOWS)] = 100 * len(trial.latencies) / trial.expected
    return notes


def _claims() -> list[Claim]:
    return [
        Claim(
            f"{query.name}: sustains at least {'3x ' if query.overlap > 1 else ''}what PySpark by hand does",
            Cell(query.name, ON_SPARK),
            1 / 3 if query.overlap > 1 else 1,
            Cell(query.name, BY_HAND),
            speed="rows",
            note=COST,
        )
        for query in QUERIES
    ]


def _charts() -> list[Chart]:
    knees = [
        Line(name, tuple(Point(at, query.name, Cell(query.name, name)) for at, query in enumerate(QUERIES)))
        for name in SYSTEMS
    ]
    caption = "AIR, fig. 11, on two cores; PySpark by hand and Penstock on Spark read the same files."
    charts = [Chart("Sustainable throughput", caption, "query", tuple(knees), RATE, "even")]
    for query in QUERIES:
        lines = tuple(Line(name, (Point(0, name, Cell(query.name, name)),)) for name in SYSTEMS)
        title = f"{query.name}: latency by rate, to the end of what is sustained"
        caption = "AIR, figs. 7 and 8: where the average latency jumps, the rate is not sustained."
        charts.append(Chart(title, caption, "rows/s", lines, LATENCY, "log", "curves"))
        title = f"{query.name}: windows that came in time, by rate, to the end of what is sustained"
        caption = "AIR, fig. 9: where windows are missing, the rate is not sustained."
        charts.append(Chart(title, caption, "rows/s", lines, WINDOWS, "log", "curves"))
    return charts
