"""The whole workload: the experiments in both sizes, what is claimed, and the charts."""

from __future__ import annotations

from bench.cell import Cell
from bench.chart import Chart, Line, Point
from bench.workload import Case, Claim, Size, Way, Workload
from bench.workloads.runtime import by_row, campaigns, chain, first_result, latency, slow_sink
from bench.workloads.runtime.told import right, wrong

MOST_GROWTH = 32 << 20
"""Bytes by which the second half of a run may hold more than the first: what an allocator may keep."""


def workload(size: Size) -> Workload:
    """Return what the in-process engine costs: per step, per row, from the first import, and in memory."""
    quick = size == "quick"
    n_rows = (8_000_000, 4_000_000) if quick else (16_000_000, 8_000_000)
    cases = [
        chain.case(2_000 if quick else 10_000),
        *campaigns.cases(*n_rows),
        by_row.case(20_000 if quick else 100_000),
        latency.case(1 if quick else 10),
        *first_result.cases(),
        slow_sink.case(*((3, 3) if quick else (600, 10))),
    ]
    return Workload(
        name="runtime",
        about=_about(),
        cases=tuple(cases),
        ways=tuple(_ways()),
        oracle=right,
        wrong=wrong,
        claims=tuple(_claims(cases)),
        charts=tuple(_charts()),
        rounds=5,
    )


def _about() -> str:
    about = "the in-process engine: steps, YSB, a row at a time, latency, the first result, flat memory"
    missing = "; Bytewax is not installed, so it is left out: pip install bytewax==0.21.1"
    return about if by_row.has_bytewax() else about + missing


def _ways() -> list[Way]:
    found = [chain.ways(), campaigns.ways(), by_row.ways(), latency.ways(), first_result.ways()]
    return [way for ways in (*found, slow_sink.ways()) for way in ways]


def _claims(cases: list[Case]) -> list[Claim]:
    units = {case.name: case.units for case in cases}
    at_least = "{}: at least {} million rows/s"
    claims = [
        Claim(
            "a chained step costs less than 1 us per batch",
            Cell(chain.CASE, chain.CHAINED),
            1e-6,
            note=chain.PER_STEP,
        ),
        *(
            Claim(
                at_least.format(name, rate),
                Cell(name, campaigns.POOL),
                units[name]["rows"] / rate / 1e6,
                speed="rows",
            )
            for name, rate in ((campaigns.INTEGERS, 50), (campaigns.UUIDS, 20))
        ),
        *_latency_claims(),
        _first("100 rows from import to result in under 0.4 s", first_result.SMALL, 0.4),
        _first("compiled kernels from import to result in under 1 s", first_result.COMPILED, 1),
        Claim("memory stays flat", Cell(slow_sink.CASE, slow_sink.WAY), MOST_GROWTH, note=slow_sink.GROWTH),
    ]
    if by_row.has_bytewax():
        ours, theirs = Cell(by_row.CASE, by_row.OURS), Cell(by_row.CASE, by_row.BYTEWAX)
        claims.append(
            Claim("a row at a time, batches of 1: at least 3x Bytewax", ours, 1 / 3, theirs, "rows")
        )
    return claims


def _latency_claims() -> list[Claim]:
    cell = Cell(latency.CASE, latency.CHAINED)
    return [
        Claim("latency at 10,000 rows/s: p50 under 100 us", cell, 100e-6, note=latency.P50),
        Claim("latency at 10,000 rows/s: p99 under 1 ms", cell, 1e-3, note=latency.P99),
    ]


def _first(says: str, case: str, at_most: float) -> Claim:
    return Claim(says, Cell(case, first_result.WAY), at_most, note=first_result.TAKEN)


def _charts() -> list[Chart]:
    """Bars: none of these is a sweep."""
    theirs = [by_row.BYTEWAX, by_row.BYTEWAX_LARGER] if by_row.has_bytewax() else []
    rows = [by_row.OURS, by_row.LARGER, *theirs]
    delays = (latency.P50, latency.P99, latency.USER, latency.SYSTEM)
    return [
        _bars(
            "YSB", "rows/s", [Cell(case, way) for case in _YSB for way in (campaigns.POOL, campaigns.ALONE)]
        ),
        _bars("A row at a time", "rows/s", [Cell(by_row.CASE, way) for way in rows]),
        _bars(
            "What a step costs",
            chain.PER_STEP,
            [Cell(chain.CASE, way) for way in (chain.CHAINED, chain.APART)],
        ),
        *(
            _bars(
                f"Latency: {name}",
                name,
                [Cell(latency.CASE, way) for way in (latency.CHAINED, latency.APART)],
            )
            for name in delays
        ),
        _bars("From import to result", first_result.TAKEN, [Cell(case, first_result.WAY) for case in _FIRST]),
    ]


_YSB = (campaigns.INTEGERS, campaigns.UUIDS)
_FIRST = (first_result.SMALL, first_result.COMPILED, first_result.PANDAS)


def _bars(title: str, up: str, cells: list[Cell]) -> Chart:
    points = tuple(Point(at, _label(cell, cells), cell) for at, cell in enumerate(cells))
    return Chart(title, _CAPTIONS[title.partition(":")[0]], "", (Line(title, points),), up, "even", "bars")


def _label(cell: Cell, cells: list[Cell]) -> str:
    """Return what tells a cell from the others."""
    parts = [cell.case] if len({each.case for each in cells}) > 1 else []
    parts += [cell.way] if len({each.way for each in cells}) > 1 else []
    return ", ".join(parts)


_CAPTIONS = {
    "YSB": "filter, table join and a count per campaign and ten seconds, from columns in memory",
    "A row at a time": "map, filter and a count per key in plain Python",
    "What a step costs": "a function that hands on the batch it gets, one thread",
    "Latency": "10,000 rows/s through five steps, a row at a time",
    "From import to result": "a new process; pandas is loaded by pyarrow where it is installed",
}
