"""The band join of the paper on one core: scans, the index, and what else could find the pairs.

A scan of a window of 750,000 rows is sampled: fewer rows are new, as many are stored. The index gets the
batches of ten seconds, so that it pays for all that a long run does: storing, the index, expiry.
"""

from __future__ import annotations

from functools import partial

from bench.workload import Case, Cell, Chart, Claim, Line, Point, Way
from bench.workloads.join import kang, peers
from bench.workloads.join.stage import (
    OFF,
    PER_PAIR,
    PER_ROW,
    TIME,
    fill_by_feeding,
    fill_for_scans,
    hit_notes,
    run_probes,
    run_scans,
)
from bench.workloads.join.streams import Shape, draw_streams

INDEX, SCAN, TWO_SCANS = "penstock", "penstock, scans only", "penstock, two scans"
COUNTING, NUMPY, POLARS = "counting loop", "NumPy, row by row", "Polars join_where"
RATES = (2_500, 2_500)
SAMPLED, STEADY = "band: 2,500 rows/s, 300 s, sampled", "band: 2,500 rows/s, 300 s"
PER_SECOND = 2e9


def shapes_of(*, full: bool) -> dict[str, Shape]:
    """Return the two cases: fewer new rows for scans, and seconds of them for the index."""
    seconds = 10 if full else 4
    return {
        SAMPLED: Shape(RATES, 300, 2_000, 4),
        STEADY: Shape(RATES, 300, seconds * sum(RATES), 10 * seconds),
    }


def build_cases(*, full: bool) -> list[Case]:
    """Build the cases; they are measured together, so that their rates can be compared."""
    return [
        Case(
            name,
            partial(draw_streams, shape),
            {"rows": shape.n_probes, "comparisons": shape.n_compared},
            group="band",
        )
        for name, shape in shapes_of(full=full).items()
    ]


def build_ways() -> list[Way]:
    """Build the ways; the first is the stage as it is."""
    return [
        Way(INDEX, run_probes, fill_by_feeding, notes=hit_notes, only=(STEADY, SAMPLED)),
        Way(SCAN, run_scans, fill_for_scans, notes=hit_notes, only=(SAMPLED,)),
        Way(TWO_SCANS, kang.run_two_scans, kang.fill_for_two_scans, notes=kang.scan_notes, only=(SAMPLED,)),
        Way(COUNTING, peers.count_in_loop, peers.build_columns, oracle=peers.count_in_order, only=(SAMPLED,)),
        Way(NUMPY, peers.join_by_numpy, only=(SAMPLED,)),
        Way(POLARS, peers.join_by_polars, peers.build_frames, only=(SAMPLED,)),
    ]


def build_claims(*, full: bool) -> list[Claim]:
    """Build the claims about scans and the index."""
    index, scan, two = Cell(STEADY, INDEX), Cell(SAMPLED, SCAN), Cell(SAMPLED, TWO_SCANS)
    n_compared = shapes_of(full=full)[SAMPLED].n_compared
    return [
        Claim("the hit rate is 3.6e-6, within 1 %", index, 0.01, note=OFF),
        Claim(
            "a scan makes at least 2 billion comparisons/s on one core, results emitted",
            scan,
            n_compared / PER_SECOND,
            speed="comparisons",
        ),
        Claim(
            "the same by its time on the core, whatever else runs there",
            scan,
            1e9 / PER_SECOND,
            note=PER_PAIR,
        ),
        Claim("a row by the index takes at most 1/50 of the time by a scan", index, 1 / 50, scan, note=TIME),
        Claim("the same by their time on the core", index, 1 / 50, scan, note=PER_ROW),
        Claim("one scan takes less time than two", scan, 1, two, note=TIME),
        Claim("one scan takes less time on the core than two", scan, 1, two, note=PER_ROW),
        Claim("Polars is beaten", Cell(SAMPLED, INDEX), 1, Cell(SAMPLED, POLARS), "rows"),
    ]


def build_chart() -> Chart:
    """Build the chart of the rows per second of each way."""
    cells = [
        Cell(STEADY, INDEX),
        *(Cell(SAMPLED, way) for way in (SCAN, TWO_SCANS, COUNTING, NUMPY, POLARS)),
    ]
    points = tuple(Point(at, cell.way, cell) for at, cell in enumerate(cells))
    return Chart(
        "The band join on one core",
        "Two attributes, windows of 750,000 rows; the counting loop emits nothing. Polars uses all cores.",
        "",
        (Line("band", points),),
        spacing="even",
        form="bars",
    )
