"""The whole workload: every query on inputs of two lengths, the claims, and the charts.

Systems that take rows one by one get the short input; those that run columns or compiled plans the long one,
in which the start of a job (about a second in Flink) weighs little. Ours runs on both, so that every claim is
about the same rows in the same round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from bench.peers.peer import BYTEWAX, DUCKDB, FLINK, PATHWAY, POLARS, PYSPARK, QUIX, Peer, PeerProcess
from bench.workload import (
    Case,
    Cell,
    Chart,
    Claim,
    Line,
    Outcome,
    Point,
    Size,
    Way,
    Workload,
    expected_of,
)
from bench.workloads.peers import last_rows, queries
from bench.workloads.peers.queries import Answer, Input

OURS = "penstock"


class Query(NamedTuple):
    """A query: its name for people and for peers, its data of n rows and a seed, our program, its unit."""

    title: str
    name: str
    build: Callable[[int, int], Input]
    run: Callable[[Input], Any]
    unit: str = "rows"

    def case(self, length: str) -> str:
        """Return the name of its case of that length."""
        return f"{self.title}, {length}"


QUERIES = (
    Query("SWA", "swa", lambda n, seed: queries.build_events(n, queries.count_rows), queries.run_swa),
    Query("YSB", "ysb", lambda n, seed: queries.build_events(n, queries.count_views), queries.run_ysb),
    Query(
        "YSB*",
        "ysb-star",
        lambda n, seed: queries.build_events(n, queries.divide_clicks),
        queries.run_ysb_star,
    ),
    Query("WordCount", "word-count", queries.build_lines, queries.run_word_count, "words"),
    Query("FraudDetection", "fraud-detection", last_rows.build_transactions, last_rows.run_frauds),
    Query("SpikeDetection", "spike-detection", last_rows.build_readings, last_rows.run_spikes),
)
OTHERS = (
    "TrafficMonitoring: positions are matched to roads by a function, which no peer has as columns",
    "LinearRoad: tolls need a state by vehicle and by segment; no peer has it as one query of columns",
    "VoipStream: filters that decay are functions of rows; ours has no form of columns either",
)
"""Applications that are not compared by columns, and why."""
SHORT, LONG = "short input", "long input"
PEERS = {SHORT: (BYTEWAX, PATHWAY, QUIX), LONG: (FLINK, PYSPARK, POLARS, DUCKDB)}
AT_LEAST = {BYTEWAX: 50.0, PATHWAY: 50.0, FLINK: 10.0}
"""How many times as fast ours should be."""


def workload(size: Size) -> Workload:
    """Build the workload."""
    lengths = {SHORT: 1_000_000, LONG: 8_000_000} if size == "quick" else {SHORT: 2_000_000, LONG: 32_000_000}
    cases = [
        Case(
            query.case(length),
            partial(_build, query, n),
            units={query.unit: n},
            group=f"{query.title}, {length}",
        )
        for query in QUERIES
        for length, n in lengths.items()
    ]
    return Workload(
        name="peers",
        about="applications by columns, in process, beside Flink, PySpark, Bytewax, Pathway, Polars, DuckDB",
        cases=tuple(cases),
        ways=(
            Way(OURS, _run_ours),
            *(
                Way(
                    peer.name,
                    PeerProcess.run,
                    setup=partial(_prepare, PeerProcess(peer)),
                    only=tuple(query.case(length) for query in QUERIES if query.name not in peer.cannot),
                )
                for length, peers in PEERS.items()
                for peer in peers
                if any(query.name not in peer.cannot for query in QUERIES)
            ),
        ),
        oracle=expected_of,
        check=explain_rows,
        claims=tuple(_claims()),
        charts=tuple(_charts()),
        rounds=3 if size == "quick" else 5,
        remarks=(*_tell_gaps(), *OTHERS),
    )


def _tell_gaps() -> list[str]:
    """Return what peers cannot do, with the reason, each reason once."""
    gaps: dict[tuple[str, str], list[str]] = {}
    for peer in (peer for peers in PEERS.values() for peer in peers):
        for query in QUERIES:
            if query.name in peer.cannot:
                gaps.setdefault((peer.name, peer.cannot[query.name]), []).append(query.title)
    return [f"{name}, {' and '.join(titles)}: {reason}" for (name, reason), titles in gaps.items()]


class _Case(NamedTuple):
    """The input of a case and its query."""

    query: Query
    input: Input

    def expected_answer(self) -> Answer:
        """Return the right answer."""
        return self.input.expected_answer()


def _build(query: Query, n: int, seed: int) -> _Case:
    return _Case(query, query.build(n, seed))


def _run_ours(case: _Case) -> Outcome:
    table = case.query.run(case.input)
    return Outcome(lambda: sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def _prepare(process: PeerProcess, case: _Case) -> PeerProcess:
    process.prepare(case.query.name, case.input.folder)
    return process


def explain_rows(expected: Answer, outcome: Outcome) -> str | None:
    """Return how the rows differ from the expected ones, or None; ratios may differ by rounding."""
    rows = outcome.answer()
    if len(rows) != len(expected):
        return f"expected {len(expected)} rows, got {len(rows)}"
    for right, row in zip(expected, rows, strict=True):
        if tuple(right[:-1]) != tuple(row[:-1]) or abs(right[-1] - row[-1]) > 1e-9 * abs(right[-1]):
            return f"expected {right}, got {row}"
    return None


def _claims() -> list[Claim]:
    claims = []
    for query in QUERIES:
        for length, peers in PEERS.items():
            ours = Cell(query.case(length), OURS)
            claims += [
                Claim(
                    f"{query.title}: at least {AT_LEAST[peer]:.0f}x {peer.name}",
                    ours,
                    1 / AT_LEAST[peer],
                    Cell(query.case(length), peer.name),
                    speed=query.unit,
                )
                for peer in peers
                if peer in AT_LEAST and query.name not in peer.cannot
            ]
    at_rest = Cell(QUERIES[1].case(LONG), POLARS.name)
    claims.append(
        Claim("YSB: at least as fast as Polars", Cell(QUERIES[1].case(LONG), OURS), 1, at_rest, "rows")
    )
    return claims


def _charts() -> list[Chart]:
    return [_chart(query, length, peers) for query in QUERIES for length, peers in PEERS.items()]


def _chart(query: Query, length: str, peers: tuple[Peer, ...]) -> Chart:
    names = [OURS, *(peer.name for peer in peers if query.name not in peer.cannot)]
    points = [Point(at, name, Cell(query.case(length), name)) for at, name in enumerate(names)]
    caption = f"{length}, two cores, data in memory before the clock starts"
    line = Line(query.title, tuple(points))
    return Chart(f"{query.title}, {length}", caption, "", (line,), f"{query.unit}/s", "even", "bars")
