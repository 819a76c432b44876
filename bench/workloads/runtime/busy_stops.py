"""Stops in the middle of a job, with a checkpoint: how soon the run is over, and that nothing is lost by it.

A step takes its time for every row, so that a run is at work whenever it is stopped. It is started on its
checkpoint and stopped again, several times in a round, at different moments of its work; then it runs to its
end. Every row of the input must have left once, and every window must have its count, as if nothing had
stopped it. What is noted is the time until a stopped run is over; the claims are about the most over all
rounds.

Rows of a generator cannot be had again, so that only its stops are looked at.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import penstock as ps
from bench.workload import Case, Outcome, Way, outcome_notes
from bench.workloads.runtime.live import MEDIAN, PATIENCE_S, SLOWEST, TRIES

CASE = "a run is stopped in the middle of a job, with a checkpoint"
SCHEMA = {"t": "int64", "k": "string"}
N_FILES, ROWS_EACH = 40, 20
WORK_S = 0.003
"""Seconds that the step takes for a row: a file keeps it busy for 60 ms, and all of them for 2.4 s."""
N_PAUSES, PAUSE_S = 5, 0.07
"""A run is stopped after none, one, two... of these pauses since its step has begun to work."""
POLL_S = 0.002


@dataclass(slots=True)
class Stops:
    """How often a run is stopped in a round, and how long it took so far, by way."""

    n_tries: int
    took: dict[str, list[float]] = field(default_factory=dict)

    def expected_answer(self) -> bool:
        """Return that all runs must have ended as they were stopped, and that all rows must be there once."""
        return True


def build_case(n_tries: int) -> Case:
    """Build the case: runs that are stopped so many times in a round."""
    return Case(CASE, lambda seed: Stops(n_tries), group="live")


def build_ways() -> list[Way]:
    """Build the ways: every reader on both engines."""
    return [
        Way(
            name,
            partial(stop_often, name=name, reader=reader, engine=engine),
            notes=outcome_notes,
            only=(CASE,),
        )
        for name, (reader, engine) in STOPS.items()
    ]


def stop_often(data: Stops, *, name: str, reader: str, engine: str) -> Outcome:
    """Start a run and stop it while it works, again and again on one checkpoint; then let it end."""
    took = data.took.setdefault(name, [])
    # Why: a task of a job that was given up may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        (folder / "in").mkdir()
        for number, rows in enumerate(_batches()):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "in" / f"{number:03}.jsonl").write_text(text)
        ends = [stop_once(folder, reader, engine, number, took) for number in range(data.n_tries)]
        is_right = all(ends)
        if READERS[reader].repeats:
            is_right = finish(folder, reader, engine) and is_right
    notes = {SLOWEST: max(took), MEDIAN: statistics.median(took), TRIES: len(took)}
    return Outcome(lambda: is_right, notes)


def stop_once(folder: Path, reader: str, engine: str, number: int, took: list[float]) -> bool:
    """Start a run and stop it while its step works; return whether it ended as it was asked to.

    Where rows can be had again, it goes on on the checkpoint of the try before.
    """
    begun, place = folder / f"begun-{number}", folder if READERS[reader].repeats else folder / str(number)
    run = _build(folder / "in", place, reader, begun=begun).start(engine, checkpoint=place / "checkpoint")
    deadline = time.monotonic() + PATIENCE_S
    while not begun.exists() and run.status().state == "running" and time.monotonic() < deadline:
        time.sleep(POLL_S)
    time.sleep(number % N_PAUSES * PAUSE_S)
    began = time.perf_counter()
    run.stop()
    outcome = run.wait(PATIENCE_S).outcome
    took.append(time.perf_counter() - began)
    return outcome == "stopped"


def finish(folder: Path, reader: str, engine: str) -> bool:
    """Run to the end, without work; return whether all rows and counts are there, each once."""
    run = _build(folder / "in", folder, reader).start(engine, checkpoint=folder / "checkpoint", drain=True)
    if READERS[reader].follows:
        while run.metrics()["rows"].rows_in < N_FILES * ROWS_EACH:
            time.sleep(POLL_S)
        run.stop(drain=True)
    outcome = run.wait(PATIENCE_S).outcome
    rows = [tuple(row.values()) for batch in _batches() for row in batch]
    counts = Counter((k, t // 10 * 10) for t, k in rows)
    written = _read_rows(folder / "counts")
    return (
        outcome == "drained"
        and _read_rows(folder / "rows") == Counter(rows)
        and written == Counter((k, start, n) for (k, start), n in counts.items())
    )


def _build(files: Path, place: Path, reader: str, begun: Path | None = None) -> ps.PipeGraph:
    """Build the program: a step that works, rows as they are, and their number by key and window."""

    def work(row: Any) -> dict[str, Any]:
        if begun is not None:
            if not begun.exists():
                begun.touch()
            time.sleep(WORK_S)
        return {"t": row.t, "k": row.k}

    graph = ps.PipeGraph("busy")
    source = READERS[reader].open(files)
    rows = graph.source(source, time="t", time_unit="s", delay="5 s", name="rows")
    worked = rows.map(work, schema=SCHEMA, name="work")
    worked.sink(ps.write.jsonl(place / "rows"), name="as-they-are")
    counts = worked.key_by("k").window(ps.tumbling("10 s"), name="counts").aggregate(n=ps.count())
    counts.select("k", "window_start", "n").sink(ps.write.jsonl(place / "counts"), name="counted")
    return graph


def _batches() -> list[list[dict[str, Any]]]:
    """Return the rows, a list for every file: some a little behind others, none late."""
    rows = [{"t": n // 4 - n % 3, "k": "abc"[n % 7 % 3]} for n in range(N_FILES * ROWS_EACH)]
    return [rows[at : at + ROWS_EACH] for at in range(0, len(rows), ROWS_EACH)]


def _read_rows(folder: Path) -> Counter[tuple[Any, ...]]:
    lines = (line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())
    return Counter(tuple(json.loads(line).values()) for line in lines)


def _generate() -> Iterator[dict[str, Any]]:
    """Yield rows without end."""
    for n in itertools.count():
        yield {"t": n // 4, "k": "abc"[n % 3]}


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of the rows in a folder.

    repeats  its rows can be had again
    follows  it waits for more of them
    """

    open: Callable[[Path], Any]
    repeats: bool = True
    follows: bool = False


READERS = {
    "files": Reader(lambda folder: ps.read.jsonl(str(folder), schema=SCHEMA)),
    "a watched folder": Reader(
        lambda folder: ps.read.jsonl(str(folder), schema=SCHEMA, follow=True), follows=True
    ),
    "batches in memory": Reader(lambda folder: ps.read.batches(_batches(), schema=SCHEMA)),
    "a generator": Reader(
        lambda folder: ps.read.generator(_generate, schema=SCHEMA, batch=ROWS_EACH, bounded=False),
        repeats=False,
    ),
}
STOPS = {
    f"stop {where}, {reader} at work": (reader, engine)
    for engine, where in (("local", "in process"), ("spark", "on Spark"))
    for reader in READERS
}
"""Way -> the reader of a run that is stopped while it works, and the engine."""
