"""The whole workload: the experiments of each size, the claims, and the charts."""

from __future__ import annotations

from bench.workload import (
    Case,
    Cell,
    Chart,
    Claim,
    Line,
    Point,
    Size,
    Way,
    Workload,
    check_outcome,
    expected_of,
)
from bench.workloads.runtime import (
    backpressure,
    busy_stops,
    latency,
    live,
    row_at_a_time,
    startup,
    step_cost,
    ysb,
)

N_STOPS = 8
"""Stops of a run in every round, warm-up among them: with seven rounds, every reader is stopped 56 times."""
MOST_GROWTH = 32 << 20
"""Bytes by which memory may grow from the first half of a run to the second: what an allocator retains."""


def workload(size: Size) -> Workload:
    """Build the workload: costs per step and per row, startup, latency and memory of the local engine."""
    quick = size == "quick"
    n_rows = (8_000_000, 4_000_000) if quick else (256_000_000, 128_000_000)
    cases = [
        step_cost.build_case(2_000 if quick else 10_000),
        *ysb.build_cases(*n_rows),
        row_at_a_time.build_case(20_000 if quick else 100_000),
        latency.build_case(1 if quick else 10),
        *startup.build_cases(),
        *live.build_cases(*((2, 2) if quick else (3, N_STOPS))),
        busy_stops.build_case(2 if quick else N_STOPS),
        backpressure.build_case(*((3, 3) if quick else (600, 10))),
    ]
    return Workload(
        name="runtime",
        about=_about(),
        cases=tuple(cases),
        ways=tuple(_ways()),
        oracle=expected_of,
        check=check_outcome,
        claims=tuple(_claims(cases)),
        charts=tuple(_charts()),
        rounds=5,
    )


def _about() -> str:
    about = "the in-process engine: steps, YSB, a row at a time, latency, the first result, flat memory"
    missing = "; Bytewax is not installed, so it is left out: pip install bytewax==0.21.1"
    return about if row_at_a_time.has_bytewax() else about + missing


def _ways() -> list[Way]:
    experiments = [
        step_cost.build_ways(),
        ysb.build_ways(),
        row_at_a_time.build_ways(),
        latency.build_ways(),
        startup.build_ways(),
        live.build_ways(),
        busy_stops.build_ways(),
    ]
    return [way for ways in (*experiments, backpressure.build_ways()) for way in ways]


def _claims(cases: list[Case]) -> list[Claim]:
    units = {case.name: case.units for case in cases}
    at_least = "{}: at least {} million rows/s"
    claims = [
        Claim(
            "a chained step costs less than 1 us per batch",
            Cell(step_cost.CASE, step_cost.CHAINED),
            1e-6,
            note=step_cost.PER_STEP,
        ),
        *(
            Claim(
                at_least.format(name, rate),
                Cell(name, ysb.POOL),
                units[name]["rows"] / rate / 1e6,
                speed="rows",
            )
            for name, rate in ((ysb.INTEGERS, 50), (ysb.UUIDS, 20))
        ),
        *(
            Claim(
                f"{name} with checkpoint= and events=: at least 0.9 of the speed without",
                Cell(name, ysb.SAVED),
                1 / 0.9,
                Cell(name, ysb.POOL),
                speed="rows",
            )
            for name in (ysb.INTEGERS, ysb.UUIDS)
        ),
        *_latency_claims(),
        *_live_claims(),
        _startup_claim("100 rows from import to result in under 0.4 s", startup.SMALL, 0.4),
        _startup_claim("compiled kernels from import to result in under 1 s", startup.COMPILED, 1),
        Claim(
            "memory stays flat",
            Cell(backpressure.CASE, backpressure.WAY),
            MOST_GROWTH,
            note=backpressure.GROWTH,
        ),
    ]
    if row_at_a_time.has_bytewax():
        ours, theirs = (
            Cell(row_at_a_time.CASE, row_at_a_time.OURS),
            Cell(row_at_a_time.CASE, row_at_a_time.BYTEWAX),
        )
        larger, theirs_larger = (
            Cell(row_at_a_time.CASE, row_at_a_time.LARGER),
            Cell(row_at_a_time.CASE, row_at_a_time.BYTEWAX_LARGER),
        )
        claims += [
            Claim("a row at a time, batches of 1: at least 3x Bytewax", ours, 1 / 3, theirs, "rows"),
            Claim("batches of 1,000: at least 1.3x Bytewax", larger, 1 / 1.3, theirs_larger, "rows"),
        ]
    return claims


def _latency_claims() -> list[Claim]:
    cell = Cell(latency.CASE, latency.CHAINED)
    return [
        Claim("latency at 10,000 rows/s: p50 under 100 us", cell, 100e-6, note=latency.P50),
        Claim("latency at 10,000 rows/s: p99 under 1 ms", cell, 1e-3, note=latency.P99),
        Claim(
            "latency at 10,000 rows/s with checkpoint= and events=: p99 under 1 ms",
            Cell(latency.CASE, latency.SAVED),
            1e-3,
            note=latency.P99,
        ),
    ]


def _live_claims() -> list[Claim]:
    windows = Claim(
        "windows of 1 s leave within 200 ms of their end plus delay in a silence, in process",
        Cell(live.SILENCE, live.LOCAL),
        0.2,
        note=live.BEHIND,
    )
    stops = [
        Claim(f"{name}: under 0.5 s", Cell(case, name), 0.5, note=live.SLOWEST)
        for case, names in ((live.STOP, live.STOPS), (busy_stops.CASE, busy_stops.STOPS))
        for name in names
    ]
    return [windows, *stops]


def _startup_claim(says: str, case: str, at_most: float) -> Claim:
    return Claim(says, Cell(case, startup.WAY), at_most, note=startup.IMPORT_TO_RESULT)


def _charts() -> list[Chart]:
    """Build the charts; all are bars, since none is a sweep."""
    theirs = [row_at_a_time.BYTEWAX, row_at_a_time.BYTEWAX_LARGER] if row_at_a_time.has_bytewax() else []
    rows = [row_at_a_time.OURS, row_at_a_time.LARGER, *theirs]
    delays = (latency.P50, latency.P99, latency.USER, latency.SYSTEM)
    return [
        _bar_chart("YSB", "rows/s", [Cell(case, way) for case in _YSB for way in (ysb.POOL, ysb.ALONE)]),
        _bar_chart("A row at a time", "rows/s", [Cell(row_at_a_time.CASE, way) for way in rows]),
        _bar_chart(
            "What a step costs",
            step_cost.PER_STEP,
            [Cell(step_cost.CASE, way) for way in (step_cost.CHAINED, step_cost.APART)],
        ),
        *(
            _bar_chart(
                f"Latency: {name}",
                name,
                [Cell(latency.CASE, way) for way in (latency.CHAINED, latency.APART)],
            )
            for name in delays
        ),
        _bar_chart(
            "From import to result", startup.IMPORT_TO_RESULT, [Cell(case, startup.WAY) for case in _FIRST]
        ),
    ]


_YSB = (ysb.INTEGERS, ysb.UUIDS)
_FIRST = (startup.SMALL, startup.COMPILED, startup.PANDAS)


def _bar_chart(title: str, up: str, cells: list[Cell]) -> Chart:
    points = tuple(Point(at, _label(cell, cells), cell) for at, cell in enumerate(cells))
    return Chart(title, _CAPTIONS[title.partition(":")[0]], "", (Line(title, points),), up, "even", "bars")


def _label(cell: Cell, cells: list[Cell]) -> str:
    """Return the part of a cell's name that differs among the cells."""
    parts = [cell.case] if len({other.case for other in cells}) > 1 else []
    parts += [cell.way] if len({other.way for other in cells}) > 1 else []
    return ", ".join(parts)


_CAPTIONS = {
    "YSB": "filter, table join and a count per campaign and ten seconds, from columns in memory",
    "A row at a time": "map, filter and a count per key in plain Python",
    "What a step costs": "a function that hands on the batch it gets, one thread",
    "Latency": "10,000 rows/s through five steps, a row at a time",
    "From import to result": "a new process; pandas is loaded by pyarrow where it is installed",
}
