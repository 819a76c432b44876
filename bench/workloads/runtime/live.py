"""Live sources: how soon windows leave in a silence, and how soon a run stops while its source waits.

The clock is real. Rows come in bursts; in the silence behind a burst its windows must leave by the clock.
What is noted is how far behind the window's end plus the delay its result reached the sink, at most. A run is
stopped after its source has begun to wait, at once or a little later, for every kind of reader and on both
engines; what is noted is the time until it is over. Both are the most over all rounds, since that is what
somebody who waits sees; but for windows on Spark, whose first run starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from bench.workload import Case, Outcome, Way, outcome_notes

SILENCE, STOP = "windows of 1 s in a silence", "a run is stopped while its source waits"
LOCAL, SPARK = "silence, in process", "silence, on Spark"
BEHIND, SLOWEST = "behind the end plus delay (s)", "slowest stop (s)"
MEDIAN, TRIES = "median stop (s)", "stops"
DRAINED = "slowest stop that closes windows first (s)"
DELAY_S, GAP_S, BURST = 0.2, 2.2, 25
SCHEMA = {"v": "int64"}
PATIENCE_S = 60
N_PAUSES, PAUSE_S = 5, {"local": 0.04, "spark": 0.12}
"""A run is stopped after none, one, two... of these pauses."""


@dataclass(slots=True)
class Bursts:
    """The number of bursts, and how far behind results were at most, by engine."""

    n_bursts: int
    behind: dict[str, float] = field(default_factory=dict)

    def expected_answer(self) -> int:
        """Return the number of rows that windows must have counted."""
        return self.n_bursts * BURST


@dataclass(slots=True)
class Tries:
    """How often a run is stopped, and how slow stops have been so far, by reader."""

    n_tries: int
    took: dict[str, list[float]] = field(default_factory=dict)

    def expected_answer(self) -> bool:
        """Return that all runs must have ended as they were stopped."""
        return True


def build_cases(n_bursts: int, n_tries: int) -> list[Case]:
    """Build the cases: bursts with silences between them, and tries to stop a run."""
    return [
        Case(SILENCE, lambda seed: Bursts(n_bursts), group="live"),
        Case(STOP, lambda seed: Tries(n_tries), group="live"),
    ]


def build_ways() -> list[Way]:
    """Build the ways: both engines for the windows, and every reader that waits for the stop."""
    windows = [
        Way(LOCAL, partial(run_bursts, engine="local"), notes=outcome_notes, only=(SILENCE,)),
        Way(SPARK, partial(run_bursts, engine="spark"), notes=outcome_notes, only=(SILENCE,)),
    ]
    stops = [
        Way(
            name,
            partial(stop_often, name=name, open_reader=READERS[reader], engine=engine),
            notes=outcome_notes,
            only=(STOP,),
        )
        for name, (reader, engine) in STOPS.items()
    ]
    return [*windows, *stops]


def run_bursts(data: Bursts, *, engine: str) -> Outcome:
    """Count rows in windows of a second of ingest time; note how late the results are."""
    counted, behind, over = [0], [0.0], threading.Event()

    def take(batch: pa.RecordBatch) -> None:
        now = time.time()
        for row in batch.to_pylist():
            end: datetime = row["window_end"]
            behind.append(now - end.replace(tzinfo=UTC).timestamp() - DELAY_S)
            counted[0] += row["n"]
        if counted[0] >= data.expected_answer():
            over.set()

    graph = ps.PipeGraph("bursts")
    reader = ps.read.generator(partial(generate_bursts, data.n_bursts, over), schema=SCHEMA, bounded=False)
    rows = graph.source(reader, time=ps.ingest_time(), delay=f"{int(DELAY_S * 1000)} ms")
    rows.window(ps.tumbling("1 s")).aggregate(n=ps.count()).sink(ps.write.callback(take))
    run = graph.start(engine)
    over.wait(PATIENCE_S)
    run.stop()
    run.wait(PATIENCE_S)
    # Why: the first run on Spark starts it, while its source is read already; that run is a warm-up.
    before = data.behind.get(engine, 0.0) if engine == "local" else 0.0
    data.behind[engine] = max(before, *behind)
    return Outcome(lambda: counted[0], {BEHIND: data.behind[engine]})


def generate_bursts(n_bursts: int, over: threading.Event) -> Iterator[dict[str, int]]:
    """Yield some rows at once, again and again, and then nothing until all is over."""
    for _ in range(n_bursts):
        yield from ({"v": v} for v in range(BURST))
        over.wait(GAP_S)
    over.wait(PATIENCE_S)


OpenReader = Callable[[threading.Event, threading.Event], contextlib.AbstractContextManager[Any]]
"""Returns a reader that sets the first event when it waits, and waits until the second is set."""


def stop_often(data: Tries, *, name: str, open_reader: OpenReader, engine: str) -> Outcome:
    """Start a run, stop it while its source waits, and note the slowest stop; once with windows closed first.

    A run is stopped at different moments: at once, and in the midst of what the clock makes it do.
    """
    took, drained = data.took.setdefault(name, []), data.took.setdefault(f"{name}, drained", [])
    as_asked = [
        stop_once(open_reader, engine, took, pause_s=number % N_PAUSES * PAUSE_S[engine])
        for number in range(data.n_tries)
    ]
    as_asked.append(stop_once(open_reader, engine, drained, drain=True))
    notes = {SLOWEST: max(took), MEDIAN: statistics.median(took), TRIES: len(took), DRAINED: max(drained)}
    return Outcome(lambda: all(as_asked), notes)


def stop_once(
    open_reader: OpenReader, engine: str, took: list[float], *, pause_s: float = 0.0, drain: bool = False
) -> bool:
    """Start a run and stop it while its source waits; return whether it ended as it was asked to."""
    waits, over = threading.Event(), threading.Event()
    with open_reader(waits, over) as reader:
        graph = ps.PipeGraph("silent")
        rows = graph.source(reader, time=ps.ingest_time(), name="rows")
        rows.window(ps.tumbling("1 s")).aggregate(n=ps.count()).sink(ps.write.memory())
        run = graph.start(engine)
        waits.wait(PATIENCE_S)
        time.sleep(pause_s)
        began = time.perf_counter()
        run.stop(drain=drain)
        outcome = run.wait(PATIENCE_S).outcome
        took.append(time.perf_counter() - began)
        over.set()
    return outcome == ("drained" if drain else "stopped")


def _wait(waits: threading.Event, over: threading.Event) -> Iterator[dict[str, int]]:
    """Yield a row, then nothing."""
    yield {"v": 1}
    waits.set()
    over.wait(PATIENCE_S)


def _trickle(waits: threading.Event, over: threading.Event) -> Iterator[dict[str, int]]:
    """Yield ten rows a second."""
    while not over.wait(0.1):
        yield {"v": 1}
        waits.set()


async def _wait_in_loop(waits: threading.Event, over: threading.Event) -> AsyncIterator[dict[str, int]]:
    """Yield a row, then nothing, in an event loop."""
    yield {"v": 1}
    waits.set()
    while not over.is_set():
        await asyncio.sleep(1.0)


@contextlib.contextmanager
def _open_generator(
    waits: threading.Event, over: threading.Event, *, function: Any = _wait, **options: Any
) -> Iterator[Any]:
    yield ps.read.generator(partial(function, waits, over), schema=SCHEMA, **options)


@contextlib.contextmanager
def _open_iterable(waits: threading.Event, over: threading.Event) -> Iterator[Any]:
    yield ps.read.iterable(partial(_wait, waits, over), schema=SCHEMA)


@contextlib.contextmanager
def _open_folder(waits: threading.Event, over: threading.Event) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "first.jsonl").write_text(json.dumps({"v": 1}) + "\n")
        waits.set()
        yield ps.read.jsonl(folder, schema=SCHEMA, follow=True)


@contextlib.contextmanager
def _open_connection(waits: threading.Event, over: threading.Event) -> Iterator[Any]:
    """Give a reader of a connection whose other side sends a row, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(b'{"v": 1}\n')
                    waits.set()
                    over.wait(PATIENCE_S)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        yield ps.read.tcp("127.0.0.1", server.getsockname()[1], schema=SCHEMA)
    sender.join(PATIENCE_S)


@contextlib.contextmanager
def _open_listener(waits: threading.Event, over: threading.Event) -> Iterator[Any]:
    """Give a reader that listens, and to which nobody connects."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    waits.set()
    yield ps.read.tcp("127.0.0.1", port, schema=SCHEMA, listen=True, token=secrets.token_urlsafe())


READERS: dict[str, OpenReader] = {
    "a silent generator": _open_generator,
    "a generator that fills a batch": partial(_open_generator, function=_trickle, batch=60),
    "a generator of single rows": partial(_open_generator, batch=1),
    "an asynchronous generator": partial(_open_generator, function=_wait_in_loop),
    "an iterable": _open_iterable,
    "a watched folder": _open_folder,
    "a connection": _open_connection,
    "a listener": _open_listener,
}
STOPS = {
    f"stop {where}, {reader}": (reader, engine)
    for engine, where in (("local", "in process"), ("spark", "on Spark"))
    for reader in READERS
}
"""Way -> the reader of a run that is stopped, and the engine."""
