"""Programs that are run while processes are killed; `rows.py` writes what they read.

All of them have state or several sinks, so that rows of several steps are under way at every moment.
Functions pause for a moment per batch or per some rows, without using a core: the run is then long enough to
be killed in the middle, also on a machine with two cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps
from bench.faults.rows import SCHEMA, write_files
from penstock import col

ROWS_PER_PAUSE = 500


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program reads and writes, and how slow its functions are.

    pause_s   how long a function sleeps for every batch, or every 500 rows; 0 for the expected answer
    markers   folder in which attempts leave marks, for the program that waits for a second attempt
    follow    whether a program that follows its folder does so; not for the expected answer
    """

    input: Path
    output: Path
    pause_s: float = 0.0
    markers: Path | None = None
    follow: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """A program: its graph, its sinks with their format, the format of its input, and what a run is.

    rounds   rounds after which a run stops, to be continued by the next: more than one run per program
    follows  whether it watches its folder and is stopped when all rows are read, without closing windows
    """

    name: str
    build: Callable[[Place], ps.PipeGraph]
    sinks: Mapping[str, str]
    format: str
    n_files: int
    n_rows: int
    rounds: int | None = None
    follows: bool = False

    def write_input(self, folder: Path, seed: int) -> None:
        """Draw the rows of the program and write its files; those of errors are damaged."""
        name = f"{self.name} {seed}"
        write_files(folder, self.format, name, self.n_files, self.n_rows, damaged=self.build is errors)


def windows(place: Place) -> ps.PipeGraph:
    """Build tumbling and sliding windows per key, in one step, from parquet; late rows as well."""
    graph = ps.PipeGraph("windows")
    rows = graph.source(ps.read.parquet(place.input), time="ts", time_unit="us", delay="2 s", name="rows")
    checked = rows.filter(col("n") % 10 != 3, name="most").with_columns(
        double=col("value") * 2.0, name="doubles"
    )
    slow = checked.map(ps.batch(Pause(place.pause_s), schema=checked.schema), name="pause")
    kinds = slow.key_by("key").window(
        short=ps.tumbling("5 s"), long=ps.sliding("20 s", every="5 s"), name="windows"
    )
    sums = kinds.aggregate(total=ps.sum("double"), rows=ps.count(), high=ps.max("n"))
    sums.sink(ps.write.parquet(place.output / "sums"), name="sums")
    sums.late.sink(ps.write.jsonl(place.output / "late"), name="late rows")
    return graph


def sessions(place: Place) -> ps.PipeGraph:
    """Build sessions per key, with the rows of each in order, from csv; then windows of sessions."""
    graph = ps.PipeGraph("sessions")
    reader = ps.read.csv(place.input, schema=SCHEMA)
    rows = graph.source(reader, time="ts", time_unit="us", delay="2 s", name="rows")
    slow = rows.map(ps.batch(Pause(place.pause_s), schema=rows.schema), name="pause")
    windows = slow.key_by("key").window(ps.session("400 ms"), name="sessions")
    visits = windows.aggregate(total=ps.sum("value"), rows=ps.count(), first=ps.first("n"), last=ps.last("n"))
    visits.sink(ps.write.csv(place.output / "visits"), name="visits")
    visits.late.sink(ps.write.jsonl(place.output / "late"), name="late rows")
    totals = visits.key_by(odd=col("rows") % 2 == 1).window(ps.tumbling("30 s"), name="of sessions")
    totals.aggregate(visits=ps.count(), rows=ps.sum("rows")).sink(
        ps.write.jsonl(place.output / "totals"), name="totals"
    )
    return graph


def state(place: Place) -> ps.PipeGraph:
    """Build state per key: an accumulated one, and one that a map changes, from JSON lines."""
    graph = ps.PipeGraph("state")
    reader = ps.read.jsonl(place.input, schema=SCHEMA)
    rows = graph.source(reader, time="ts", time_unit="us", delay="2 s", name="rows")
    keyed = rows.key_by("key")
    balance = keyed.accumulate(AddToBalance(place.pause_s), Balance(), name="balance")
    balance.sink(ps.write.parquet(place.output / "balance"), name="balances")
    ranks = keyed.map(rank, schema={"key": str, "n": int, "rank": int}, state=list, name="ranks")
    ranks.filter(col("rank") % 3 == 0, name="thirds").sink(
        ps.write.jsonl(place.output / "ranks"), name="ranked"
    )
    balance.late.sink(ps.write.jsonl(place.output / "late"), name="late rows")
    return graph


def bands(place: Place) -> ps.PipeGraph:
    """Build pairs of rows that are near in time and in value, from parquet; late rows of both sides."""
    graph = ps.PipeGraph("bands")
    left, right = _sides(graph, place)
    right = right.select(w=col("value"), m=col("n"))
    near = left.join(right, on=ps.band("value", "w", 8.0), within="500 ms", name="near")
    near.sink(ps.write.parquet(place.output / "near"), name="near rows")
    near.late.sink(ps.write.jsonl(place.output / "late"), name="late rows")
    near.late_right.sink(ps.write.jsonl(place.output / "late right"), name="late right rows")
    return graph


def partners(place: Place) -> ps.PipeGraph:
    """Build left rows with all partners of their key, or alone, from parquet; and counts of those per key."""
    graph = ps.PipeGraph("partners")
    left, right = _sides(graph, place)
    right = right.filter(col("n") % 3 == 0).select("key", w=col("value"), m=col("n"))
    pairs = left.join(right, on="key", within=("1 s", "300 ms"), how="left", name="partners")
    pairs.sink(ps.write.jsonl(place.output / "pairs"), name="pairs")
    counts = pairs.key_by("key").window(ps.tumbling("10 s"), name="counts")
    counts.aggregate(rows=ps.count(), partners=ps.count("m")).sink(
        ps.write.parquet(place.output / "counts"), name="counts out"
    )
    return graph


def alone(place: Place) -> ps.PipeGraph:
    """Build joins without an equality: full with failing pairs, anti, with the last rows; from parquet."""
    graph = ps.PipeGraph("alone")
    left, right = _sides(graph, place)
    right = right.select(w=col("value"), m=col("n"))
    ratios = left.join(
        right,
        on=ps.left("n") // (ps.right("m") % 7) > 900,
        within="20 ms",
        how="full",
        on_error="dead_letter",
        name="ratios",
    )
    ratios.sink(ps.write.parquet(place.output / "ratios"), name="ratios out")
    ratios.errors.sink(ps.write.jsonl(place.output / "failed"), name="failed out")
    greatest = left.join(
        right, on=ps.left("value") < ps.right("w"), within="30 ms", how="anti", name="none is greater"
    )
    greatest.sink(ps.write.jsonl(place.output / "greatest"), name="greatest out")
    last = left.join(right, on=ps.left("value") > ps.right("w"), last_rows=(2, 3), name="last rows")
    last.sink(ps.write.parquet(place.output / "last"), name="last out")
    return graph


def _sides(graph: ps.PipeGraph, place: Place) -> tuple[ps.MultiPipe, ps.MultiPipe]:
    """Read the input twice, as the two sides of a join."""
    left, right = (
        graph.source(ps.read.parquet(place.input), time="ts", time_unit="us", delay="2 s", name=name)
        for name in ("rows", "others")
    )
    return left.map(ps.batch(Pause(place.pause_s), schema=left.schema), name="pause"), right


def sinks(place: Place) -> ps.PipeGraph:
    """Build a split into sinks of three formats, after a row function and expressions, without state."""
    graph = ps.PipeGraph("sinks")
    rows = graph.source(ps.read.parquet(place.input), name="rows")
    named = rows.map(
        Name(place.pause_s), schema={"key": str, "n": int, "value": float, "label": str}, name="names"
    )
    low, middle, high = named.split(
        low=col("value") < 300.0,
        middle=(col("value") >= 300.0) & (col("value") < 600.0),
        high=col("value") >= 600.0,
    )
    low.sink(ps.write.parquet(place.output / "low"), name="low rows")
    middle.with_columns(half=col("value") / 2.0).sink(
        ps.write.csv(place.output / "middle"), name="middle rows"
    )
    high.filter(col("n") % 2 == 0).sink(ps.write.jsonl(place.output / "high"), name="high rows")
    return graph


def errors(place: Place) -> ps.PipeGraph:
    """Build dead letters of a reader, a function and an expression, and windows of what did not fail."""
    graph = ps.PipeGraph("errors")
    reader = ps.read.csv(place.input, schema=SCHEMA)
    rows = graph.source(reader, time="ts", time_unit="us", delay="2 s", name="rows", on_error="dead_letter")
    risky = rows.map(
        Invert(place.pause_s),
        schema={"key": str, "n": int, "inverse": float},
        name="inverses",
        on_error="dead_letter",
    )
    shares = risky.with_columns(share=col("n") % (col("n") % 50), name="shares", on_error="dead_letter")
    counts = shares.key_by("key").window(ps.tumbling("5 s"), name="counts").aggregate(rows=ps.count())
    counts.sink(ps.write.parquet(place.output / "counts"), name="good rows")
    rows.errors.sink(ps.write.jsonl(place.output / "unreadable"), name="unreadable rows")
    risky.errors.sink(ps.write.jsonl(place.output / "failed"), name="failed rows")
    shares.errors.sink(ps.write.parquet(place.output / "shares"), name="failed shares")
    return graph


def follow(place: Place) -> ps.PipeGraph:
    """Build windows of a folder that is watched: a query that is stopped, and closes nothing at the end."""
    graph = ps.PipeGraph("follow")
    reader = ps.read.parquet(place.input, follow=place.follow)
    rows = graph.source(reader, time="ts", time_unit="us", delay="2 s", name="rows")
    named = rows.map(
        Name(place.pause_s), schema={"key": str, "n": int, "value": float, "label": str}, name="names"
    )
    sums = named.key_by("label").window(ps.sliding("10 s", every="5 s"), name="sums")
    sums.aggregate(total=ps.sum("value"), rows=ps.count()).sink(
        ps.write.jsonl(place.output / "sums"), name="sums out"
    )
    named.filter(col("n") % 5 == 0).sink(ps.write.parquet(place.output / "fifth"), name="fifth rows")
    return graph


def attempts(place: Place) -> ps.PipeGraph:
    """Build a batch function whose first attempt waits for a second one, to be run with speculation."""
    graph = ps.PipeGraph("attempts")
    rows = graph.source(ps.read.parquet(place.input), time="ts", time_unit="us", delay="2 s", name="rows")
    function = FirstAttemptWaits(str(place.markers)) if place.markers else Pause(0.0)
    same = rows.map(ps.batch(function, schema=rows.schema), name="attempts")
    same.sink(ps.write.parquet(place.output / "rows"), name="all rows")
    counts = same.key_by("key").window(ps.tumbling("5 s"), name="counts").aggregate(rows=ps.count())
    counts.sink(ps.write.jsonl(place.output / "counts"), name="counts out")
    return graph


class Pause:
    """A function of a batch."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch after a pause."""
        time.sleep(self.seconds)
        return batch


class PausePerRows:
    """Something that pauses once per some rows; the base of row functions."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def pause(self) -> None:
        """Count a row, and sleep if it is time."""
        self.calls += 1
        if self.calls % ROWS_PER_PAUSE == 0:
            time.sleep(self.seconds)


@dataclass
class Balance:
    """The number of rows of a key and their total so far."""

    rows: int = 0
    total: float = 0.0


class AddToBalance(PausePerRows):
    """A function that adds a row to the balance of its key."""

    def __call__(self, row: Any, balance: Balance) -> Balance:
        """Return the new balance."""
        self.pause()
        return Balance(balance.rows + 1, balance.total + row.value)


class Name(PausePerRows):
    """A function that names a row by its key."""

    def __call__(self, row: Any) -> dict[str, object]:
        """Return the row with a label."""
        self.pause()
        return {"key": row.key, "n": row.n, "value": row.value, "label": f"label {int(row.key[1:]) % 7}"}


class Invert(PausePerRows):
    """A function that fails on some rows."""

    def __call__(self, row: Any) -> dict[str, object]:
        """Return one by a number that is 0 in some rows."""
        self.pause()
        return {"key": row.key, "n": row.n, "inverse": 1.0 / (row.n % 40)}


def rank(row: Any, seen: list[int]) -> dict[str, object]:
    """Return how many of the last ten numbers of a key are smaller, and remember this one."""
    smaller = sum(n < row.n for n in seen)
    seen.append(row.n)
    del seen[:-10]
    return {"key": row.key, "n": row.n, "rank": smaller}


class FirstAttemptWaits:
    """A function of a batch: the first attempt of one task waits until a second attempt is at the same place.

    Marks in a folder tell them apart. Both then finish at about the same time, and both have written.
    """

    LIMIT_S = 20.0

    def __init__(self, folder: str) -> None:
        self.first, self.second = Path(folder) / "first", Path(folder) / "second"

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch, at once or when the other attempt is there."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None or not batch.num_rows:
            return batch
        place, attempt = f"{task.stageId()} {task.partitionId()}", task.taskAttemptId()
        if _create(self.first, f"{place} {attempt}"):
            end = time.monotonic() + self.LIMIT_S
            while time.monotonic() < end and not self.second.exists():
                time.sleep(0.02)
        elif (
            self.first.read_text().startswith(f"{place} ") and self.first.read_text() != f"{place} {attempt}"
        ):
            _create(self.second, str(attempt))
        return batch


def _create(file: Path, text: str) -> bool:
    """Write a file that nobody has written, whole; return whether it was this call."""
    draft = file.with_name(f".{file.name}-{os.getpid()}")
    draft.write_text(text)
    try:
        os.link(draft, file)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


PROGRAMS = {
    program.name: program
    for program in (
        Program("windows", windows, {"sums": "parquet", "late": "jsonl"}, "parquet", 24, 24_000, 6),
        Program(
            "sessions", sessions, {"visits": "csv", "late": "jsonl", "totals": "jsonl"}, "csv", 16, 12_000, 4
        ),
        Program(
            "state", state, {"balance": "parquet", "ranks": "jsonl", "late": "jsonl"}, "jsonl", 12, 12_000, 4
        ),
        Program(
            "bands",
            bands,
            {"near": "parquet", "late": "jsonl", "late right": "jsonl"},
            "parquet",
            16,
            8_000,
            5,
        ),
        Program("partners", partners, {"pairs": "jsonl", "counts": "parquet"}, "parquet", 16, 8_000, 6),
        Program(
            "alone",
            alone,
            {"ratios": "parquet", "failed": "jsonl", "greatest": "jsonl", "last": "parquet"},
            "parquet",
            12,
            6_000,
            5,
        ),
        Program(
            "sinks", sinks, {"low": "parquet", "middle": "csv", "high": "jsonl"}, "parquet", 30, 30_000, 8
        ),
        Program(
            "errors",
            errors,
            {"counts": "parquet", "unreadable": "jsonl", "failed": "jsonl", "shares": "parquet"},
            "csv",
            20,
            12_000,
            7,
        ),
        Program("follow", follow, {"sums": "jsonl", "fifth": "parquet"}, "parquet", 8, 12_000, follows=True),
    )
}
ATTEMPTS = Program("attempts", attempts, {"rows": "parquet", "counts": "jsonl"}, "parquet", 12, 24_000)
"""The program that is run with speculation."""


def find_program(name: str) -> Program:
    """Return the program of that name."""
    return ATTEMPTS if name == ATTEMPTS.name else PROGRAMS[name]
