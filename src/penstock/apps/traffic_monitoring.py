"""TrafficMonitoring: the mean speed on every road, from the positions of taxis.

A position is matched to the first road of its cell of the map within 2.5 m, else to the nearest within
11.18 m, else dropped. The speed of a road is the mean of its last speeds; a speed further from the mean than
two standard deviations is not taken, and 0 leaves for it. The map of the benchmark suite is not to be had, so
roads are a grid over Beijing; the rule of matching is the suite's. WindFlow, 5.1; DSPBench.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
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
    draw_times,
    in_order,
    let_arrive,
    open_source,
    read_csv,
)

SOUTH, NORTH, WEST, EAST = 39.689602, 40.122410, 116.105789, 116.670021
METRES_PER_DEGREE = 111_200
HIT_M = 2.5
REACH_M = math.sqrt(5**2 + 10**2)
LINES_PER_CELL = 25
"""Roads of a cell of a tenth of a degree in each direction."""
N_TAXIS = 500
MATCHED = {"time": int, "road": int, "speed": int}
SPEEDS = {"road": int, "speed": float}
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions(Options):
    """Options of TrafficMonitoring; `keys` is the number of taxis.

    n_speeds        speeds of a road that are kept: 1,000 as in WindFlow's suite, 30 in DSPBench
    first_roads     False leaves out the first road of every cell, as WindFlow's suite does by mistake
    forget_squares  False keeps the squares of speeds that are forgotten in the standard deviation, as
                    WindFlow's suite does by mistake
    """

    n_speeds: int = 1_000
    first_roads: bool = True
    forget_squares: bool = True


@dataclass(frozen=True, slots=True)
class Map:
    """The roads of a city: straight lines from (lat, lon) to (lat, lon), and which of them a cell has."""

    lines: list[tuple[float, float, float, float]]
    cells: dict[tuple[int, int], list[int]]

    def as_array(self) -> Floats:
        """Return the lines as an array of four columns."""
        return np.array(self.lines)

    def match(self, lat: float, lon: float) -> int | None:
        """Return the road at a position."""
        nearest, least = None, math.inf
        for road in self.cells.get((round(10 * lat), round(10 * lon)), ()):
            metres = distance(lat, lon, *self.lines[road]) * METRES_PER_DEGREE
            if metres < HIT_M:
                return road
            if metres < least:
                nearest, least = road, metres
        return nearest if least < REACH_M else None

    def match_all(self, lats: Floats, lons: Floats) -> Floats:
        """Return the roads at positions, -1 where there is none: the same for whole columns."""
        roads = np.full(len(lats), -1, np.int64)
        cells = np.stack([np.rint(10 * lats), np.rint(10 * lons)]).astype(np.int64)
        code = cells[0] * 10_000 + cells[1]
        order, lines = np.argsort(code, kind="stable"), self.as_array()
        for members in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
            in_cell = (
                self.cells.get((int(cells[0, members[0]]), int(cells[1, members[0]])))
                if len(members)
                else None
            )
            if in_cell:
                roads[members] = match_cell(np.array(in_cell), lines[in_cell], lats[members], lons[members])
        return roads


def match_cell(roads: Floats, lines: Floats, lats: Floats, lons: Floats) -> Floats:
    """Return the roads at positions of one cell, -1 where there is none."""
    lat_0, lon_0, lat_1, lon_1 = lines.T[:, None, :]
    dy, dx = lat_1 - lat_0, lon_1 - lon_0
    y, x = lats[:, None] - lat_0, lons[:, None] - lon_0
    share = np.clip((y * dy + x * dx) / (dy * dy + dx * dx), 0.0, 1.0)
    metres = np.sqrt((y - share * dy) ** 2 + (x - share * dx) ** 2) * METRES_PER_DEGREE
    hits = metres < HIT_M
    best = np.where(hits.any(axis=1), hits.argmax(axis=1), metres.argmin(axis=1))
    return np.where(metres[np.arange(len(lats)), best] < REACH_M, roads[best], -1)


def distance(lat: float, lon: float, lat_0: float, lon_0: float, lat_1: float, lon_1: float) -> float:
    """Return the distance of a point from a line, in degrees."""
    dy, dx, y, x = lat_1 - lat_0, lon_1 - lon_0, lat - lat_0, lon - lon_0
    share = min(1.0, max(0.0, (y * dy + x * dx) / (dy * dy + dx * dx)))
    return math.sqrt((y - share * dy) ** 2 + (x - share * dx) ** 2)


@cache
def draw_map(*, first_roads: bool = True) -> Map:
    """Return the roads: in every cell of a tenth of a degree, a grid of lines.

    first_roads  False for cells that do not know the first of their roads
    """
    lines: list[tuple[float, float, float, float]] = []
    cells: dict[tuple[int, int], list[int]] = {}
    for row in range(round(10 * SOUTH), round(10 * NORTH) + 1):
        for column in range(round(10 * WEST), round(10 * EAST) + 1):
            low, near = row / 10 - 0.05, column / 10 - 0.05
            steps = [(i + 0.5) * 0.1 / LINES_PER_CELL for i in range(LINES_PER_CELL)]
            streets = [(low + step, near, low + step, near + 0.1) for step in steps]
            avenues = [(low, near + step, low + 0.1, near + step) for step in steps]
            cells[row, column] = list(range(len(lines), len(lines) + 2 * LINES_PER_CELL))
            lines += streets + avenues
    if not first_roads:
        cells = {cell: roads[1:] for cell, roads in cells.items()}
    return Map(lines, cells)


def generate(options: TrafficOptions) -> Tables:
    """Make positions of taxis on roads, as exactly as a satellite sees them; some are elsewhere."""
    chance = np.random.default_rng(options.seed)
    n, lines = options.rows, draw_map().as_array()
    centre = np.abs(lines[:, 0] - 39.9) + np.abs(lines[:, 1] - 116.4)
    weights = np.exp(-10 * centre)
    roads = chance.choice(len(lines), n, p=weights / weights.sum())
    share, is_off = chance.random(n), chance.random(n) < 0.1
    noise = chance.normal(0.0, np.where(is_off, 60.0, 4.0), (2, n)) / METRES_PER_DEGREE
    lats = lines[roads, 0] + share * (lines[roads, 2] - lines[roads, 0]) + noise[0]
    lons = lines[roads, 1] + share * (lines[roads, 3] - lines[roads, 1]) + noise[1]
    mean = np.random.default_rng(0).integers(20, 60, len(lines))[roads]
    speeds = np.where(chance.random(n) < 0.2, 0, np.maximum(0, chance.normal(mean, 8, n))).astype(np.int64)
    rows = pa.table(
        {
            "time": draw_times(chance, n, options.rate),
            "vehicle": chance.integers(0, options.keys or N_TAXIS, n),
            "lat": np.round(lats, 6),
            "lon": np.round(lons, 6),
            "speed": speeds,
        }
    )
    return {"positions": let_arrive(rows, chance, options)}


def load(file: Path) -> Tables:
    """Read a file of taxi traces: id, vehicle, time, lat, lon, speed, bearing; times may not be in order."""
    rows = read_csv(file, ["id", "vehicle", "time", "lat", "lon", "speed", "bearing"], time="time")
    speeds = pa.array(np.rint(rows.column("speed").to_numpy()).astype(np.int64))
    return {"positions": rows.select(["time", "vehicle", "lat", "lon"]).append_column("speed", speeds)}


def is_in_city(lat: Any, lon: Any, speed: Any) -> Any:
    """Return whether a position is in Beijing and its speed can be; of numbers, or of whole columns."""
    return (lat >= SOUTH) & (lat <= NORTH) & (lon >= WEST) & (lon <= EAST) & (speed >= 0)


class MapMatcher:
    """Finds the road of a position. Every process draws the map for itself."""

    def __init__(self, *, first_roads: bool) -> None:
        self._first_roads = first_roads

    def __call__(self, row: ps.Row) -> Rows:
        """Return the road of a position, nothing where there is none."""
        if not is_in_city(row.lat, row.lon, row.speed):
            return []
        road = draw_map(first_roads=self._first_roads).match(row.lat, row.lon)
        return [] if road is None else [{"time": row.time, "road": road, "speed": row.speed}]


class BatchMatcher:
    """Finds the roads of positions, a batch at a time."""

    def __init__(self, *, first_roads: bool) -> None:
        self._first_roads = first_roads

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the roads of positions, -1 where there is none."""
        lats, lons, speeds = (rows[name].to_numpy() for name in ("lat", "lon", "speed"))
        roads = draw_map(first_roads=self._first_roads).match_all(lats, lons)
        roads = np.where(is_in_city(lats, lons, speeds), roads, -1)
        return pa.record_batch([rows["time"], pa.array(roads), rows["speed"]], names=list(MATCHED))


@dataclass
class RoadSpeeds:
    """The last speeds of a road, their sum, and the sum of their squares: whole numbers, so exact."""

    speeds: deque[int] = field(default_factory=deque)
    total: int = 0
    squares: int = 0


class SpeedCalculator:
    """The mean speed of a road, whose last speeds are the state."""

    def __init__(self, options: TrafficOptions) -> None:
        self._n_speeds, self._forgets = options.n_speeds, options.forget_squares

    def __call__(self, row: ps.Row, road: RoadSpeeds) -> dict[str, Any]:
        """Return the mean with the new speed, or 0 if that is too far off."""
        speed = row.speed
        n, total, squares = len(road.speeds) + 1, road.total + speed, road.squares + speed * speed
        # |speed - mean| <= 2 * deviation, without a division.
        if n > 2 and (n * speed - total) ** 2 > 4 * (n * squares - total * total):
            return {"road": row.road, "speed": 0.0}
        road.speeds.append(speed)
        road.total, road.squares = total, squares
        if n > self._n_speeds:
            oldest = road.speeds.popleft()
            road.total -= oldest
            road.squares -= oldest * oldest if self._forgets else 0
        return {"road": row.road, "speed": road.total / len(road.speeds)}


def build(readers: Mapping[str, Any], writer: Any, options: TrafficOptions) -> ps.PipeGraph:
    """Build the graph: the matcher row by row, or by columns and a filter; the speed by road."""
    graph, rows = open_source("traffic-monitoring", readers["positions"], options)
    spread: Any = {"parallelism": options.parallelism, "name": "matcher"}
    if options.form == "columns":
        matched = rows.map(
            ps.batch(BatchMatcher(first_roads=options.first_roads), schema=MATCHED), **spread
        ).filter(col("road") >= 0, name="on-road")
    else:
        matched = rows.flat_map(MapMatcher(first_roads=options.first_roads), schema=MATCHED, **spread)
    speeds = matched.key_by("road").map(
        SpeedCalculator(options), schema=SPEEDS, state=RoadSpeeds, name="speed"
    )
    speeds.sink(writer, name="sink")
    return graph


def recount(tables: Tables, options: TrafficOptions) -> Rows:
    """Match every position with every road of its cell, and compute every mean anew."""
    roads, speeds = draw_map(first_roads=options.first_roads), []
    by_road: dict[int, list[int]] = defaultdict(list)
    forgotten: dict[int, int] = defaultdict(int)
    for row in in_order(tables["positions"]):
        if not is_in_city(row["lat"], row["lon"], row["speed"]):
            continue
        metres = [
            (METRES_PER_DEGREE * distance(row["lat"], row["lon"], *roads.lines[road]), road)
            for road in roads.cells.get((round(10 * row["lat"]), round(10 * row["lon"])), ())
        ]
        hits = [road for away, road in metres if away < HIT_M]
        near = [road for _, road in sorted(pair for pair in metres if pair[0] < REACH_M)]
        if hits or near:
            road = (hits or near)[0]
            last = by_road[road]
            tried = [*last, row["speed"]]
            mean = sum(tried) / len(tried)
            squares = sum((speed - mean) ** 2 for speed in tried) + forgotten[road]
            deviation = math.sqrt(squares / len(tried))
            is_taken = len(tried) <= 2 or abs(row["speed"] - mean) <= 2 * deviation
            if is_taken:
                by_road[road] = last = tried[-options.n_speeds :]
                if not options.forget_squares:
                    forgotten[road] += sum(speed**2 for speed in tried[: -options.n_speeds])
            speeds.append({"road": road, "speed": sum(last) / len(last) if is_taken else 0.0})
    return speeds


TRAFFIC_MONITORING = Application(
    name="traffic-monitoring",
    label="TM",
    paper="WindFlow",
    summary="the mean speed on every road, from the positions of taxis",
    reads="time, vehicle, lat, lon, speed; or a file of taxi traces",
    forms=("rows", "columns"),
    options=TrafficOptions,
    generate=generate,
    build=build,
    recount=recount,
    load=load,
)
