"""The band join of CellJoin, handshake join and DP-Join: two streams whose rows are close in two columns.

R(x, y, z) and S(a, b, c, d) pair within a window of time where x is close to a and y to b. Values are whole
numbers below 10,000, so that about 3.6 of a million pairs match where the distance is less than 10, as in the
code of handshake join. Its text says at most 10, which is 4.4 of a million. DP-Join, 4; Gedik et al.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.apps.application import Application, Options, Rows, Tables, draw_times, duration, let_arrive


@dataclass(frozen=True, slots=True, kw_only=True)
class BandOptions(Options):
    """Options of the band join; `keys` is the number of values, 10,000 by default.

    width      how close values must be
    strict     whether they must be closer than that
    within_us  how far apart in time rows may be, in microseconds
    """

    rate: float = 2_000.0
    width: int = 10
    strict: bool = True
    within_us: int = 300_000_000


def generate(options: BandOptions) -> Tables:
    """Make two streams of the same rate, half of the rows each."""
    chance = np.random.default_rng(options.seed)
    n_values, n = options.keys or 10_000, options.rows // 2

    def draw() -> Any:
        return chance.integers(0, n_values, n)

    def draw_stream_times() -> Any:
        return draw_times(chance, n, options.rate / 2)

    left = pa.table({"time": draw_stream_times(), "id": np.arange(n), "x": draw(), "y": draw().astype(float)})
    right = pa.table(
        {
            "time": draw_stream_times(),
            "number": np.arange(n),
            "a": draw(),
            "b": draw().astype(float),
            "c": chance.random(n),
            "d": chance.random(n) < 0.5,
        }
    )
    return {"r": let_arrive(left, chance, options), "s": let_arrive(right, chance, options)}


def build(readers: Mapping[str, Any], writer: Any, options: BandOptions) -> ps.PipeGraph:
    """Build the graph: two sources, one join."""
    graph = ps.PipeGraph("band-join", chaining=options.chaining)
    left, right = (
        graph.source(readers[name], time="time", time_unit="us", delay=options.delay, name=name)
        for name in ("r", "s")
    )
    bands = [ps.band(x, a, options.width, strict=options.strict) for x, a in (("x", "a"), ("y", "b"))]
    pairs = left.join(
        right.select("number", "a", "b", name="columns"),
        on=bands,
        within=duration(options.within_us),
        parallelism=options.parallelism,
        name="join",
    )
    pairs.select("id", "number", "x", "a", name="pairs").sink(writer, name="sink")
    return graph


def recount(tables: Tables, options: BandOptions) -> Rows:
    """Compare every row with every other."""
    right = tables["s"].to_pylist()
    width = options.width - 1 if options.strict else options.width  # values are whole numbers
    return [
        {"id": r["id"], "number": s["number"], "x": r["x"], "a": s["a"]}
        for r in tables["r"].to_pylist()
        for s in right
        if abs(r["x"] - s["a"]) <= width
        and abs(r["y"] - s["b"]) <= width
        and abs(r["time"] - s["time"]) <= options.within_us
    ]


BAND_JOIN = Application(
    name="band-join",
    label="BJ",
    paper="DP-Join",
    summary="pairs of two streams that are close in two columns, within five minutes",
    reads="time, id, x, y; time, number, a, b, c, d",
    forms=("columns",),
    options=BandOptions,
    generate=generate,
    build=build,
    recount=recount,
)
