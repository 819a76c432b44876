"""LinearRoad: variable tolls on an expressway, by congestion and accidents.

Vehicles report where they are every thirty seconds. One that enters a segment pays a toll if, in the minute
before, more than 50 vehicles were in it, its speed over the last five minutes (the mean of the minutes' means
of the vehicles' means) was below 50, and no accident was in it or in the four segments ahead. An accident
is where two vehicles report the same position four times in a row. The toll is 2 * (vehicles - 50) ** 2.

In the benchmark suites the test of the minute is left out and every toll operator has a state of its own, so
that no toll is ever charged, and three empty notifications leave for every report: that is the form
"benchmark", with the nine operators of WindFlow's Table 3. WindFlow, 5.1; Arasu et al., Linear Road.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import col
from penstock.apps.application import (
    Application,
    Options,
    Rows,
    Tables,
    in_order,
    let_arrive,
    open_source,
    read_csv,
)

COLUMNS = ["type", "time", "vid", "speed", "xway", "lane", "direction", "segment", "position"]
SEGMENT_FEET = 5_280
N_SEGMENTS = 100
EXIT = 4
REPORT_S = 30
REPORTS_PER_VEHICLE = 30
JAM_SHARE = 0.3
PER_FAVOURITE = 400
"""Vehicles for which there is a segment more where many of them begin."""
STOPS = 4
"""Reports from one position that make a vehicle a stopped one."""
AHEAD = 4
"""Segments ahead in which an accident counts."""
SEGMENT = ("xway", "direction", "segment")
NOTIFICATION = {"vid": int, "time": int, "toll": int}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoadOptions(Options):
    """Options of LinearRoad; `keys` is the number of expressways, 1 by default, and times are seconds.

    cars      vehicles in a segment above which a toll is due
    slow      speed below which a toll is due
    accident  share of the vehicles that collide with another one, and stand still for a while
    """

    cars: int = 50
    slow: int = 50
    accident: float = 0.02


def generate(options: RoadOptions) -> Tables:
    """Make vehicles that enter over time, slow down where there is a jam, and sometimes collide."""
    chance = np.random.default_rng(options.seed)
    n = max(1, options.rows // REPORTS_PER_VEHICLE)
    xways, directions = chance.integers(0, options.keys or 1, n), chance.integers(0, 2, n)
    starts = chance.integers(0, max(1, int(options.rows / options.rate)) + REPORT_S, n)
    # A few segments are favourites, so that traffic is dense there even if vehicles are few.
    favourites = chance.integers(5, 60, min(8, 1 + n // PER_FAVOURITE))
    position = chance.choice(favourites, n) * SEGMENT_FEET + chance.integers(0, 5_000, n)
    jams = chance.random(N_SEGMENTS) < JAM_SHARE
    # Vehicles 2i and 2i + 1 of an accident drive side by side until they stop.
    n_accidents = int(n * options.accident / 2)
    one, other = 2 * np.arange(n_accidents), 2 * np.arange(n_accidents) + 1
    stops_at = np.full(n, -1)
    stops_at[one] = stops_at[other] = chance.integers(2, REPORTS_PER_VEHICLE - 8, n_accidents)
    for values in (xways, directions, starts, position):
        values[other] = values[one]
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for turn in range(REPORTS_PER_VEHICLE):
        segment = np.clip(position // SEGMENT_FEET, 0, N_SEGMENTS - 1)
        top = np.where(jams[segment], 35, 70)
        speed = chance.integers(10, 31, n) + top - 30
        speed[other] = speed[one]
        has_stopped = (stops_at >= 0) & (turn >= stops_at) & (turn < stops_at + STOPS + 3)
        speed[has_stopped] = 0
        slot = np.where(turn == REPORTS_PER_VEHICLE - 1, EXIT, 1 + np.arange(n) % 3)
        report = [np.zeros(n, np.int64), starts + turn * REPORT_S, np.arange(n), speed, xways, slot]
        report += [directions, segment, position]
        for name, values in zip(COLUMNS, report, strict=True):
            columns[name].append(np.array(values, np.int64))
        feet = speed * REPORT_S * SEGMENT_FEET // 3_600
        position = np.clip(
            position + np.where(directions == 0, feet, -feet), 0, N_SEGMENTS * SEGMENT_FEET - 1
        )
    rows = pa.table({name: np.concatenate(parts) for name, parts in columns.items()})
    by_time = np.argsort(rows.column("time").to_numpy(), kind="stable")
    return {"reports": let_arrive(rows.take(by_time), chance, options, unit_us=1_000_000)}


def load(file: Path) -> Tables:
    """Read a file of the LinearRoad generator: fifteen numbers per line, of which nine make a report."""
    rows = read_csv(file, [*COLUMNS, *(f"query-{i}" for i in range(6))], time="time")
    return {"reports": rows.select(COLUMNS)}


def build(readers: Mapping[str, Any], writer: Any, options: RoadOptions) -> ps.PipeGraph:
    """Build the graph that charges tolls, or the one of the benchmark suites."""
    graph, rows = open_source("linear-road", readers["reports"], options, unit="s")
    charges = _notify(rows, options) if options.form == "benchmark" else _charge(rows, options)
    charges.sink(writer, name="sink")
    return graph


def _charge(rows: ps.MultiPipe, options: RoadOptions) -> ps.MultiPipe:
    reports = rows.filter(col("type") == 0, parallelism=options.parallelism, name="dispatcher")
    # What was found out about a minute holds for the next one.
    within = ("0 s", "61 s")
    slow = find_congestion(reports, options)
    accidents = find_accidents(reports)
    ahead = (ps.right("accident") - ps.left("segment")) * (1 - 2 * ps.left("direction"))
    on_roads = ["xway", "direction", "minute", ahead.between(0, AHEAD)]
    return (
        find_crossings(reports)
        .join(slow, on=[*SEGMENT, "minute"], within=within, name="congestion")
        .join(accidents, on=on_roads, within=within, how="anti", name="no-accident")
        .select(
            "vid", "time", toll=2 * (col("cars") - options.cars) * (col("cars") - options.cars), name="toll"
        )
    )


def find_crossings(reports: ps.MultiPipe) -> ps.MultiPipe:
    """Return the reports in which a vehicle is in another segment than in the one before, and stays on."""
    last = {name: ps.last(name) for name in ("time", "lane", *SEGMENT)}
    return (
        reports.key_by("vid")
        .window(ps.count_window(2, every=1), name="positions")
        .aggregate(before=ps.first("segment"), **last)
        .filter(col("before") != col("segment"), col("lane") != EXIT, name="crossings")
        .select("vid", "time", *SEGMENT, minute=col("time") // 60, name="crossing")
    )


def find_congestion(reports: ps.MultiPipe, options: RoadOptions) -> ps.MultiPipe:
    """Return the segments that are full and slow, with the minute for which that counts."""
    return (
        reports.key_by(*SEGMENT, "vid")
        .window(ps.tumbling("1 min"), name="vehicle-speed")
        .aggregate(speed=ps.mean("speed"))
        .key_by(*SEGMENT)
        .window(ps.tumbling("1 min"), name="segment-speed")
        .aggregate(speed=ps.mean("speed"), cars=ps.count())
        .select(*SEGMENT, "speed", "cars", minute=col("window_end") // 60, name="minutes")
        .window(ps.sliding("5 min", every="1 min"), name="last-speed")
        .aggregate(speed=ps.mean("speed"), cars=ps.last("cars"), minute=ps.last("minute"))
        .filter(
            col("minute") == col("window_end") // 60,  # vehicles were there in the last of the five minutes
            col("cars") > options.cars,
            col("speed") < options.slow,
            name="congested",
        )
        .select(*SEGMENT, "minute", "cars", name="segments")
    )


def find_accidents(reports: ps.MultiPipe) -> ps.MultiPipe:
    """Return the segments where two vehicles have stopped, with the minute for which that counts."""
    last = {name: ps.last(name) for name in SEGMENT}
    return (
        reports.key_by("vid")
        .window(ps.count_window(STOPS, every=1), name="stops")
        .aggregate(low=ps.min("position"), position=ps.max("position"), **last)
        .filter(col("low") == col("position"), name="stopped")
        .key_by("xway", "direction", "position")
        .window(ps.tumbling("1 min"), name="accidents")
        .aggregate(one=ps.min("vid"), other=ps.max("vid"), accident=ps.max("segment"))
        .filter(col("one") != col("other"), name="two-vehicles")
        .select("xway", "direction", "accident", minute=col("window_end") // 60, name="accident")
    )


def _notify(rows: ps.MultiPipe, options: RoadOptions) -> ps.MultiPipe:
    """Return three notifications without a toll for every report, by the operators of Table 3."""

    def add(pipe: ps.MultiPipe, name: str) -> ps.MultiPipe:
        return pipe.flat_map(pass_report, schema=NOTIFICATION, name=name)

    reports = rows.flat_map(dispatch, schema=NOTIFICATION, parallelism=options.parallelism, name="dispatcher")
    positions = add(reports, "toll-pos")
    speeds = add(add(add(reports, "speed"), "last-speed"), "toll-las")
    vehicles = add(add(reports, "vehicles"), "toll-cv")
    return positions.merge(speeds, vehicles)


def dispatch(row: ps.Row) -> Rows:
    """Return a position report, and nothing for other requests."""
    return [{"vid": row.vid, "time": row.time, "toll": 0}] if row.type == 0 else []


def pass_report(row: ps.Row) -> Rows:
    """Return the report: what an operator without the test of the minute makes of it is never charged."""
    return [{"vid": row.vid, "time": row.time, "toll": 0}]


def recount(tables: Tables, options: RoadOptions) -> Rows:
    """Charge tolls from dictionaries of everything that was reported."""
    reports = [row for row in in_order(tables["reports"]) if row["type"] == 0]
    if options.form == "benchmark":
        return [{"vid": row["vid"], "time": row["time"], "toll": 0} for row in reports for _ in range(3)]
    speeds: dict[Any, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    by_vehicle = defaultdict(list)
    for row in reports:
        place = row["xway"], row["direction"], row["segment"], row["time"] // 60
        speeds[place][row["vid"]].append(row["speed"])
        by_vehicle[row["vid"]].append(row)
    means = {place: _mean([_mean(one) for one in of.values()]) for place, of in speeds.items()}
    accidents = _accidents(by_vehicle)
    tolls = []
    for row in (
        later for rows in by_vehicle.values() for one, later in pairwise(rows) if _crosses(one, later)
    ):
        *road, segment, minute = row["xway"], row["direction"], row["segment"], row["time"] // 60
        before = (*road, segment, minute - 1)
        last = [
            means[*road, segment, at] for at in range(minute - 5, minute) if (*road, segment, at) in means
        ]
        way = 1 if row["direction"] == 0 else -1
        blocked = any((*road, segment + way * i, minute - 1) in accidents for i in range(AHEAD + 1))
        cars = len(speeds[before]) if before in means else 0
        if cars > options.cars and _mean(last) < options.slow and not blocked:
            toll = 2 * (cars - options.cars) ** 2
            tolls.append({"vid": row["vid"], "time": row["time"], "toll": toll})
    return tolls


def _accidents(by_vehicle: Mapping[int, Rows]) -> set[tuple[int, ...]]:
    """Return (xway, direction, segment, minute) of the accidents."""
    stopped = defaultdict(set)
    for vid, rows in by_vehicle.items():
        for end in range(STOPS, len(rows) + 1):
            last = rows[end - 1]
            if len({row["position"] for row in rows[end - STOPS : end]}) == 1:
                stopped[last["xway"], last["direction"], last["position"], last["time"] // 60].add(
                    (vid, last["segment"])
                )
    return {
        (xway, direction, max(segment for _, segment in vehicles), minute)
        for (xway, direction, _, minute), vehicles in stopped.items()
        if len({vid for vid, _ in vehicles}) > 1
    }


def _crosses(before: dict[str, Any], row: dict[str, Any]) -> bool:
    return bool(before["segment"] != row["segment"] and row["lane"] != EXIT)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


LINEAR_ROAD = Application(
    name="linear-road",
    label="LR",
    paper="WindFlow",
    summary="tolls on an expressway, by congestion and accidents",
    reads="type, time, vid, speed, xway, lane, direction, segment, position; or the generator's file",
    forms=("columns", "benchmark"),
    options=RoadOptions,
    unit_us=1_000_000,
    generate=generate,
    build=build,
    recount=recount,
    load=load,
)
