"""Runs of an application on rows that come one by one: in process, and in Flink over connections.

A row is due at a fixed moment, whether or not the system is ready for it, so one that falls behind is late.
The first tenth of the results is not counted: threads start and caches are cold.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.peers.peer import FLINK_LIVE, PeerProcess, open_environment
from bench.workload import PERCENTILES, Outcome
from bench.workloads.latency.rows import RATE, Stream
from penstock.apps import APPLICATIONS

GAP_NS = 1_000_000_000 // RATE
BEFORE_NS = 2_000_000
POLLED_NS = 200_000
MOST = 1_000
"""Rows that are given to the engine at once, at most."""
UNCOUNTED = 0.1
PATIENCE_S = 120.0


def run_in_process(stream: Stream) -> Outcome:
    """Run the application of Penstock on the rows that are due."""
    sink = LatencySink(stream)
    reader = ps.read.generator(partial(pace_rows, stream, sink), schema=stream.schema, bounded=False)
    application = APPLICATIONS[stream.subject.name]
    (name,) = application.generate(application.make_options(rows=1, form=stream.subject.form))
    graph = application.build({name: reader}, sink, stream.options)
    graph.run(engine="local", options=ps.LocalOptions(scheduler="latency"))
    return Outcome(lambda: len(sink.delays), note_percentiles(sink.delays))


def pace_rows(stream: Stream, sink: LatencySink) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows that are due, one as long as the engine keeps up with them."""
    sink.started = time.perf_counter_ns() + BEFORE_NS
    sent = 0
    while sent < len(stream.rows):
        await_moment(sink.started + sent * GAP_NS)
        n_due = (time.perf_counter_ns() - sink.started) // GAP_NS + 1
        end = max(sent + 1, min(n_due, sent + MOST))
        yield stream.rows[sent:end]
        sent = end


def await_moment(due: int) -> None:
    """Sleep, and poll the clock for the last 0.2 ms: sleeping takes 50 us and more."""
    while (left := due - time.perf_counter_ns()) > 0:
        if left > POLLED_NS:
            time.sleep((left - POLLED_NS) / 1e9)
        elif hasattr(os, "sched_yield"):
            os.sched_yield()


class LatencySink:
    """A sink that reads the clock when a result arrives."""

    def __init__(self, stream: Stream) -> None:
        self._numbers, self._name = stream.numbers, stream.subject.name_result
        self.started = 0
        self.delays: list[int] = []

    @property
    def delivery(self) -> Any:
        """Return the delivery guarantee of rows in memory."""
        return ps.write.memory().delivery

    @property
    def accepts_updates(self) -> bool:
        """Return True: updates are rows like any others."""
        return True

    def open(self, schema: pa.Schema, sink: str, *, resume: bool = False) -> LatencySink:
        """Return itself: there is nothing to open."""
        return self

    def write(self, batch: int, rows: pa.RecordBatch) -> None:
        """Write results from columns."""
        self.write_plain(batch, rows.to_pylist(), rows.schema)

    def write_plain(self, batch: int, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
        """Write results and record how late they are."""
        now = time.perf_counter_ns() - self.started
        self.delays += [now - self._numbers[self._name(row)] * GAP_NS for row in rows]

    def commit_row(self, batch: int, row: Mapping[str, Any]) -> None:
        """Write the only result of a round."""
        self.write_plain(batch, (row,), pa.schema([]))

    def commit(self, batch: int) -> None:
        """Do nothing: latency is recorded on arrival."""

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def describe(self) -> str:
        """Return the text for `explain()`."""
        return "a stop-watch"


def note_percentiles(delays: Sequence[int]) -> dict[str, float]:
    """Return the percentiles of latencies in nanoseconds, without the first of them."""
    counted = np.array(delays[int(len(delays) * UNCOUNTED) :] or [0]) / 1e9
    values = np.percentile(counted, PERCENTILES)
    return {f"p{share} (s)": float(value) for share, value in zip(PERCENTILES, values, strict=True)}


class FlinkRun:
    """Flink SQL, whose rows come over one connection and whose results leave by another."""

    def __init__(self) -> None:
        self._process = PeerProcess(FLINK_LIVE)

    def __call__(self, stream: Stream) -> Outcome:
        """Run the query from the first row to the last result."""
        exchange = Exchange(stream)
        with tempfile.TemporaryDirectory(prefix="penstock-live-") as name:
            settings = {
                "source_port": exchange.ports[0],
                "sink_port": exchange.ports[1],
                **stream.subject.settings(stream.options),
            }
            (Path(name) / "live.json").write_text(json.dumps(settings))
            open_environment(FLINK_LIVE)  # which may take longer than connections are waited for
            exchange.start()
            self._process.prepare(stream.subject.name, Path(name))
            self._process.run()
        exchange.wait()
        return Outcome(lambda: len(exchange.delays), note_percentiles(exchange.delays))


class Exchange:
    """Two sockets on the loopback address: one sends rows when they are due, one takes results."""

    def __init__(self, stream: Stream) -> None:
        assert stream.subject.write_line is not None, "the subject is one that Flink can run"
        self._lines = [
            f"{number},{stream.subject.write_line(row)}\n".encode() for number, row in enumerate(stream.rows)
        ]
        self._servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for server in self._servers:
            server.settimeout(PATIENCE_S)
        self.ports = [server.getsockname()[1] for server in self._servers]
        self._started = 0
        self.delays: list[int] = []
        self._threads = [Thread(target=run, daemon=True) for run in (self._send, self._take)]

    def start(self) -> None:
        """Begin to wait for both connections."""
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until the results have ended."""
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for server in self._servers:
            server.close()

    def _send(self) -> None:
        connection, _ = self._servers[0].accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            time.sleep(1.0)  # Why: the job is up when its source is connected, its other tasks a little later
            self._started = time.perf_counter_ns() + BEFORE_NS
            for number, line in enumerate(self._lines):
                await_moment(self._started + number * GAP_NS)
                connection.sendall(line)

    def _take(self) -> None:
        connection, _ = self._servers[1].accept()
        rest = b""
        with connection:
            while part := connection.recv(1 << 16):
                now = time.perf_counter_ns() - self._started
                *lines, rest = (rest + part).split(b"\n")
                self.delays += [now - int(line.split(b",", 1)[0]) * GAP_NS for line in lines]
