"""The building blocks of an experiment: ways by name, places along an axis, lines through them, their cases.

A sweep varies one thing. Ways that could not process all rows of a case in reasonable time, and those that
only work on bounded input, get a case of their own with fewer rows; its name says how many, and rates are per
row. No way gets another window, key or delay than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bench.workload import Cell, Chart, Line, Point, Way
from bench.workloads.windows import breakdown, peers, stage
from bench.workloads.windows.shape import Shape

OURS, TRACED = "penstock", "penstock, watched"
READING, BUCKETS, PANDAS, POLARS = "reading", "bucket per window", "pandas", "Polars"
CHOICE, NO_TREE, TREE = "store, own choice", "store, no tree", "store, tree"
N_W = (1, 10, 100, 1_000)
STYLES = {OURS: 0, READING: 4, BUCKETS: 5, PANDAS: 6, POLARS: 7}
"""The styles of lines that are in many charts."""
PARTS = (
    "part: slots",
    "part: values",
    "part: rows into counts",
    "part: rows into sums",
    "part: leaving",
)


def tree_way_name(n_w: int) -> str:
    """Return the name of the way that always uses the tree, at most n_w windows per pass."""
    return f"store, tree, n_w {n_w:,}"


def build_ways() -> list[Way]:
    """Return every way; the first is the one that the others are measured against."""
    return [
        Way(OURS, stage.run_stage, stage.prime_stage),
        Way(TRACED, stage.trace_stage, stage.prime_stage, notes=stage.trace_notes),
        Way(READING, peers.read_columns, oracle=peers.sum_columns_by_parts),
        Way(BUCKETS, peers.fill_buckets),
        Way(PANDAS, peers.run_pandas, peers.build_pandas_frame),
        Way(POLARS, peers.run_polars, peers.build_polars_frame),
        *_build_part_ways(),
        Way(CHOICE, stage.run_store, stage.prime_store),
        Way(NO_TREE, stage.run_store, partial(stage.prime_store, way="sweep")),
        Way(TREE, stage.run_store, partial(stage.prime_store, way="tree")),
        *(
            Way(tree_way_name(n_w), stage.run_store, partial(stage.prime_store, way="tree", most=n_w))
            for n_w in N_W
        ),
        *stage.build_threads_ways(),
    ]


def _build_part_ways() -> list[Way]:
    slots, values, counts, sums, leaving = PARTS
    return [
        Way(slots, breakdown.assign_slots, oracle=breakdown.count_rows_and_keys),
        Way(values, breakdown.evaluate_expressions, breakdown.build_expressions, breakdown.count_rows),
        Way(counts, breakdown.add_to_slices, breakdown.build_count_slices, breakdown.count_rows),
        Way(sums, breakdown.add_to_slices, breakdown.build_sum_slices, breakdown.count_rows),
        Way(leaving, breakdown.close_windows, breakdown.fill_store, breakdown.count_windows),
    ]


MOST_COPIES = {BUCKETS: 1 << 23, POLARS: 1 << 25}
"""The limit on copies of rows for ways that copy a row into each window; at least one slice of rows."""
MOST_ROWS = {PANDAS: 1 << 21}


class Place(NamedTuple):
    """A position on the axis, and the shape of the case there."""

    at: float
    shape: Shape


Places = Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Trial:
    """One way on some cases, and the line they form."""

    way: str
    shapes: Mapping[str, Shape]
    line: Line


@dataclass(frozen=True, slots=True)
class Experiment:
    """Cases that are measured together, the ways tried on each, and their charts."""

    group: str
    trials: tuple[Trial, ...]
    charts: tuple[Chart, ...]


def try_way(
    group: str, way: str, places: Places, *, name: str = "", variant: str = "", style: int | None = None
) -> Trial:
    """Return the trial of a way at all places; cases are named by group, variant and place."""
    shapes, points = {}, []
    for label, (at, shape) in places.items():
        fitting = fit_shape(way, shape)
        case = f"{group}: {f'{variant}, ' if variant else ''}{label}"
        if fitting != shape:
            case += f", {fitting.n_rows:,} rows drained"
        shapes[case] = fitting
        points.append(Point(at, label, Cell(case, way)))
    look = STYLES.get(way) if style is None else style
    return Trial(way, shapes, Line(name or way, tuple(points), look))


def fit_shape(way: str, shape: Shape) -> Shape:
    """Return the shape with no more rows than the way can process in reasonable time."""
    if way not in MOST_COPIES and way not in MOST_ROWS:
        return shape
    least = min(shape.per_slice, shape.n_rows)
    if shape.counted:
        least = min(2 * shape.size, shape.n_rows)
    by_copies = MOST_COPIES.get(way, shape.n_rows * shape.per_window) // shape.per_window
    return shape.limit_rows(max(min(by_copies, MOST_ROWS.get(way, shape.n_rows)), least))


def try_with_peers(group: str, places: Places, *, variant: str = "") -> tuple[Trial, ...]:
    """Return the trials of ours, reading, a bucket per window, pandas and Polars."""
    ways = (OURS, READING, BUCKETS, PANDAS, POLARS)
    return tuple(try_way(group, way, places, variant=variant) for way in ways)


def lines_of(trials: Sequence[Trial]) -> tuple[Line, ...]:
    """Return the lines of trials."""
    return tuple(one.line for one in trials)
