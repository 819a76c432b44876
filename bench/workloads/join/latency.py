"""The latency of results in process: single rows at a rate, both windows full (DP-Join, 5.3).

Two sources fill the windows, batch after batch, and wait until a pair of marked rows, that only join with
each other, has come out: then all that came before is stored. The same once more with warm-up rows, so that
both windows have been searched when they are full, as in a long run. From then on each source gives the rows
that are due, or one at a time. A result's latency is Definition 4.2's: from the moment at which the later of
its rows was due until the sink has it. Sources sleep while they wait, and poll the clock for the last 0.2 ms.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Case, Cell, Claim, Outcome, Way, outcome_notes
from bench.workloads.join.stage import LEAD_BATCHES
from bench.workloads.join.streams import (
    LEFT_SCHEMA,
    RIGHT_SCHEMA,
    SECOND,
    WIDTH,
    Ints,
    Shape,
    Side,
    Streams,
    draw_streams,
    encode_pairs,
    spans_of,
)

DUE, SINGLE = "in process, the rows that are due", "in process, single rows"
COLUMNS = "in process, the rows that are due, as columns"
MEAN, P50, P99 = "average latency (s)", "p50 (s)", "p99 (s)"
MARKS = (-1_000, -2_000)
"""The values of the marked rows: near to no others."""
POLLED_NS = 200_000
PATIENCE_S = 120


def case_name(shape: Shape) -> str:
    """Return the name of the case."""
    return f"latency: {shape.rates[0]:,} rows/s per stream, {shape.window_s} s"


def build_case(shape: Shape) -> Case:
    """Build the case of one rate and window; the probes are what is sent at the rate."""
    return Case(case_name(shape), partial(draw_streams, shape), {"rows": shape.n_probes}, group="latency")


def build_ways(cases: Sequence[str]) -> list[Way]:
    """Build the ways: the whole engine, whose sources give all rows that are due at once, or one by one.

    Columns of a few rows cost more to make than the rows do, so there is no claim about them.
    """
    return [
        Way(form, partial(run, form=form), notes=outcome_notes, only=tuple(cases))
        for form in (DUE, SINGLE, COLUMNS)
    ]


def build_claims(case: str, at_most: float) -> list[Claim]:
    """Build the claims about the average latency."""
    says = "average latency at 2,500 rows/s per stream below 0.95 ms: {}"
    return [Claim(says.format(way), Cell(case, way), at_most, note=MEAN) for way in (DUE, SINGLE)]


def run(streams: Streams, *, form: str) -> Outcome:
    """Run both sources, the join and a sink that reads the clock; `form` is how the sources give rows."""
    graph, out = ps.PipeGraph("join-latency"), ResultSink()
    pipes = [
        graph.source(
            ps.read.generator(
                partial(generate_rows, streams, port, out, form),
                schema=_with_due(schema),
                bounded=False,
                batch=1 if form == SINGLE else None,
            ),
            time="ts",
            time_unit="us",
            delay="0 s",
            name=port,
        )
        for port, schema in (("left", LEFT_SCHEMA), ("right", RIGHT_SCHEMA))
    ]
    on = [ps.band("x", "a", WIDTH, strict=True), ps.band("y", "b", WIDTH, strict=True)]
    pipes[0].join(pipes[1], on=on, within=f"{streams.shape.window_s} s", suffix="_right").sink(out)
    graph.run(engine="local", options=ps.LocalOptions(scheduler="latency"))
    return Outcome(lambda: out.pairs_of_probes(streams), out.notes())


def _with_due(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("due", pa.int64()))


def generate_rows(streams: Streams, port: str, out: ResultSink, form: str) -> Iterator[Any]:
    """Yield what fills the window, the marked row, and then rows when they are due."""
    side = streams.left if port == "left" else streams.right
    schema = _with_due(LEFT_SCHEMA if port == "left" else RIGHT_SCHEMA)
    begin = 0
    for at, (part, n_batches) in enumerate((("lead", LEAD_BATCHES), ("warm", 2))):
        for batches, _ in streams.rounds(part, n_batches):
            rows = batches[port].rows
            zeros = pa.array(np.zeros(rows.num_rows, np.int64))
            yield pa.RecordBatch.from_arrays([*rows.columns, zeros], schema=schema)
        begin += spans_of(streams.shape)[at]
        yield [dict(zip(schema.names, (begin, MARKS[at], float(MARKS[at]), MARKS[at], 0), strict=True))]
        if not out.passed[at].wait(PATIENCE_S):
            raise TimeoutError(f"the windows were not full after {PATIENCE_S} s")
    yield from _pace_rows(side, schema, begin, out.began_at, form)


def _pace_rows(side: Side, schema: pa.Schema, begin: int, began_at: int, form: str) -> Iterator[Any]:
    """Yield rows when they are due: one as a row, or all of them as a list or as columns."""
    most = 1 if form == SINGLE else 1 << 10
    at = side.cuts[1]
    dues = began_at + (side.times - begin) * 1_000
    columns = (side.times, side.first, side.second.astype(np.float64), np.arange(len(dues)), dues)
    moments = dues.tolist()
    while at < len(dues):
        due = moments[at]
        while (left := due - time.perf_counter_ns()) > 0:
            time.sleep((left - POLLED_NS) / 1e9 if left > POLLED_NS else 0)
        end = min(at + most, bisect_right(moments, time.perf_counter_ns(), at))
        if form == SINGLE:
            yield {name: column[at].item() for name, column in zip(schema.names, columns, strict=True)}
        elif form == DUE:
            values = zip(*[column[at:end].tolist() for column in columns], strict=True)
            yield [dict(zip(schema.names, row, strict=True)) for row in values]
        else:
            yield pa.RecordBatch.from_arrays([pa.array(column[at:end]) for column in columns], schema=schema)
        at = end


class ResultSink:
    """A sink that reads the clock when a result arrives.

    passed    set when the marked pairs have come, one after the other
    began_at  when rows are sent from then on, on the clock of `perf_counter_ns`
    """

    def __init__(self) -> None:
        self.passed = (Event(), Event())
        self.began_at = 0
        self._pairs: list[tuple[int, int]] = []
        self._delays: list[int] = []

    @property
    def delivery(self) -> Any:
        """Return the delivery guarantee of rows in memory."""
        return ps.write.memory().delivery

    @property
    def accepts_updates(self) -> bool:
        """Return True: updates are rows like any others."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> ResultSink:
        """Return itself: there is nothing to open."""
        return self

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Write results from columns and record how late they are."""
        now = time.perf_counter_ns()
        if not self.passed[-1].is_set():
            ids = rows.column("id").to_numpy()
            self.began_at = time.perf_counter_ns() + SECOND * 100
            for mark, passed in zip(MARKS, self.passed, strict=True):
                if mark in ids:
                    passed.set()
            return
        due = np.maximum(rows.column("due").to_numpy(), rows.column("due_right").to_numpy())
        self._delays += (now - due).tolist()
        ids = (rows.column(name).to_pylist() for name in ("id", "other"))
        self._pairs += zip(*ids, strict=True)

    def write_plain(self, batch: int, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
        """Write results from plain rows."""
        now = time.perf_counter_ns()
        if not self.passed[-1].is_set():
            self.write(batch, pa.RecordBatch.from_pylist([dict(row) for row in rows], schema=schema))
            return
        self._delays += [now - max(row["due"], row["due_right"]) for row in rows]
        self._pairs += [(row["id"], row["other"]) for row in rows]

    def commit_row(self, batch: int, row: Mapping[str, Any]) -> None:
        """Write a result that is all of a round."""
        self.write_plain(batch, [row], pa.schema([]))

    def commit(self, batch: int) -> None:
        """Do nothing: latency is recorded on arrival."""

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def describe(self) -> str:
        """Return the text for `explain()`."""
        return "a stop-watch"

    def pairs_of_probes(self, streams: Streams) -> Ints:
        """Return the pairs that came after the windows were full, in order."""
        left, right = (np.array(column, np.int64) for column in zip(*self._pairs, strict=True))
        return np.sort(encode_pairs(left, right))

    def notes(self) -> dict[str, float]:
        """Return the average latency and percentiles, without the first tenth of the results."""
        counted = np.array(self._delays[len(self._delays) // 10 :]) / 1e9
        p50, p99 = (float(percentile) for percentile in np.percentile(counted, (50, 99)))
        return {MEAN: float(counted.mean()), P50: p50, P99: p99}
