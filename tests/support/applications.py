"""WindFlow's seven applications as graphs: their operators, edges and routings, with trivial functions.

VS is the "reordering" graph of the benchmark suite. Chaining is off unless asked for, as in Table 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import penstock as ps
from penstock import col

FLOW = {"key": "string", "value": "float64"}


def same(row: Any) -> dict[str, Any]:
    """The row as it came."""
    return {"key": row.key, "value": row.value}


def rows(row: Any) -> list[dict[str, Any]]:
    """The row as it came, once."""
    return [same(row)]


def keep(row: Any, state: Any) -> bool:
    """Every row."""
    return True


def stay(row: Any, state: Any) -> dict[str, Any]:
    """The row as it came, beside a state."""
    return same(row)


def several(row: Any, state: Any) -> list[dict[str, Any]]:
    """The row as it came, once, beside a state."""
    return rows(row)


def start(name: str, chaining: bool) -> ps.MultiPipe:
    """A graph and its source, with no step behind it."""
    graph = ps.PipeGraph(name, chaining=chaining)
    return graph.source(ps.read.rows([], schema=FLOW))


def end(pipe: ps.MultiPipe) -> ps.PipeGraph:
    """The graph of a pipe, which ends here."""
    pipe.sink(ps.write.memory(), name="sink")
    return pipe.graph


def by_key(pipe: ps.MultiPipe) -> ps.MultiPipe:
    """Rows of one key together."""
    return pipe.key_by("key")


def fraud_detection(*, chaining: bool = False) -> ps.PipeGraph:
    return end(by_key(start("FD", chaining)).filter(keep, state=list, name="predictor"))


def spike_detection(*, chaining: bool = False) -> ps.PipeGraph:
    average = by_key(start("SD", chaining)).map(stay, schema=FLOW, state=list, name="average")
    return end(average.filter(col("value") > 0, name="spikes"))


def traffic_monitoring(*, chaining: bool = False) -> ps.PipeGraph:
    matched = start("TM", chaining).flat_map(rows, schema=FLOW, name="matcher")
    return end(by_key(matched).map(stay, schema=FLOW, state=list, name="speed"))


def word_count(*, chaining: bool = False) -> ps.PipeGraph:
    words = start("WC", chaining).flat_map(rows, schema=FLOW, name="splitter")
    return end(by_key(words).accumulate(lambda row, n: n + 1, 0, schema={"n": "int64"}, name="counter"))


def yahoo(*, chaining: bool = False) -> ps.PipeGraph:
    graph = ps.PipeGraph("YB", chaining=chaining)
    views = graph.source(ps.read.rows([], schema=FLOW), time=ps.ingest_time())
    joined = views.filter(col("value") > 0, name="filter").flat_map(rows, schema=FLOW, name="joiner")
    return end(by_key(joined).window(ps.tumbling("10 s"), name="window").aggregate(n=ps.count()))


def linear_road(*, chaining: bool = False) -> ps.PipeGraph:
    def then(pipe: ps.MultiPipe, name: str) -> ps.MultiPipe:
        return pipe.flat_map(rows, schema=FLOW, name=name)

    reports = then(start("LR", chaining), "dispatcher")
    positions = then(reports, "toll-pos")
    speeds = then(then(then(reports, "speed"), "last-speed"), "toll-las")
    vehicles = then(then(reports, "vehicles"), "toll-cv")
    return end(positions.merge(speeds, vehicles))


def voip_stream(*, chaining: bool = False) -> ps.PipeGraph:
    def keyed(pipe: ps.MultiPipe, name: str) -> ps.MultiPipe:
        return by_key(pipe).map(stay, schema=FLOW, state=list, name=name)

    def filter_rows(pipe: ps.MultiPipe, name: str) -> ps.MultiPipe:
        return by_key(pipe).filter(keep, state=list, name=name)

    def flat(pipe: ps.MultiPipe, name: str) -> ps.MultiPipe:
        # By name, because after ENCR the rows of a key are together already, and the suite shuffles again.
        return by_key(pipe).flat_map(several, schema=FLOW, state=list, name=name, routing="key_by")

    parsed = start("VS", chaining).map(same, schema=FLOW, name="parser")
    calls = keyed(keyed(parsed, "dispatcher"), "ECR")
    durations = filter_rows(calls, "CT24")
    average = calls.map(same, schema=FLOW, name="GlobalACD")
    rates = keyed(calls, "ECR24")
    ratio = flat(flat(calls.flat_map(rows, schema=FLOW, name="preRCR"), "RCR"), "FoFiR")
    url = flat(filter_rows(calls, "ENCR"), "URL")
    acd = flat(durations.merge(average, rates), "ACD")
    return end(keyed(acd.merge(ratio, url), "Score"))


APPLICATIONS: dict[str, Callable[..., ps.PipeGraph]] = {
    "FD": fraud_detection,
    "SD": spike_detection,
    "TM": traffic_monitoring,
    "WC": word_count,
    "YB": yahoo,
    "LR": linear_road,
    "VS": voip_stream,
}
