"""What the clock decides of rounds, recorded before they are processed, so that a repetition is equal.

    rounds.jsonl   a line per round of a source that gives its rows again: when it was, and whether it had a
                   batch
    ends.json      the rounds in which sources have ended

After a crash, rounds are done again under the same numbers, and sinks do not write what they have committed
of them. So a round must have the same rows, and close the same windows, as before. Where rows get their time
from the clock, where a silent source stops to hold others back, or where the clock makes rounds of its own,
that is known here only. A source whose rows cannot be had again needs no records.

The end of a source is recorded too, because it closes windows: whether it ended by itself, or because the run
was stopped with `drain=True`. A record counts if some sink has committed the round; else nothing has come of
it, and the run goes on as if it had not ended.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import xxhash

from penstock.connect.protocol import Delivery, may_wait
from penstock.connect.writers.staged_files import replace_file
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.sealed_files import damage_error, read_sealed, write_error, write_sealed
from penstock.errors import describe_cause
from penstock.operators.ends import Source

MAX_LINES = 10_000
"""Lines after which records of rounds that are done are removed."""


class RoundRecord(NamedTuple):
    """A round of a source.

    now      what the clock said
    took     whether the reader gave a batch to it
    rows_at  when rows had come last, before it
    """

    now: int
    took: bool
    rows_at: int


def needs_records(source: Source) -> bool:
    """Return whether a source gives its rows again, and the clock has a say in its rounds."""
    return source.reader.delivery is Delivery.EXACTLY_ONCE and (
        may_wait(source.reader) or follows_clock(source)
    )


def follows_clock(source: Source) -> bool:
    """Return whether what a source does with a batch depends on the clock."""
    time = source.resolve()
    return time is not None and (time.follows_clock or time.idle is not None or time.max_future is not None)


class RoundRecords:
    """The records of a run, and those of the run before it that may have to be repeated.

    Invariant: `_lock` guards the file; whoever records a round goes on when that survives a crash.
    """

    def __init__(self, checkpoint: Checkpoint, rounds: int) -> None:
        self._checkpoint, self._path = checkpoint, checkpoint.folder / "rounds.jsonl"
        self._lock, self._done = threading.Lock(), rounds
        self._rounds = {key: one for key, one in read_records(self._path).items() if key[1] >= rounds}
        self._ends = load_ends(checkpoint)
        self._n_lines = len(self._rounds)
        if self._path.exists():
            self._rewrite()

    def find(self, source: str, number: int) -> RoundRecord | None:
        """Return what an earlier run has recorded of a round."""
        return self._rounds.get((source, number))

    def record(self, source: str, number: int, record: RoundRecord) -> None:
        """Record a round before it is processed; once this returns, that survives a crash."""
        line = _format_line(source, number, record)
        with self._lock:
            try:
                if self._n_lines >= MAX_LINES:
                    self._rounds = {key: one for key, one in self._rounds.items() if key[1] >= self._done}
                    self._n_lines = len(self._rounds)
                    self._rewrite()
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as cause:
                raise write_error(self._path, cause) from cause
            self._rounds[source, number] = record
            self._n_lines += 1

    def complete(self, rounds: int) -> None:
        """Take note that a manifest says that rounds are done: nobody will ask for them again."""
        self._done = rounds

    def record_end(self, sources: Collection[str], number: int) -> None:
        """Record that sources end in a round, before they do."""
        with self._lock:
            ends = {**self._ends, **dict.fromkeys(sources, number)}
            if ends != self._ends:
                self._save_ends(ends)
                self._ends = ends

    def resume_ends(self, sources: Collection[str], committed: int) -> Mapping[str, int]:
        """Return the rounds in which sources must end, since sinks have committed up to this round.

        Records of ends that nothing has come of are removed. A run on Spark has recorded its last round.
        """
        planned = self._checkpoint.planned_rounds()
        ends = dict(self._ends)
        for number in (number for number, record in planned.items() if record["last"]):
            ends |= dict.fromkeys(sources, number)
        counts = {source: number for source, number in ends.items() if self._done <= number <= committed}
        if counts != self._ends:
            self._save_ends(counts)
            self._ends = counts
        if planned:
            self._checkpoint.save_planned_rounds({})
        return counts

    def _save_ends(self, ends: Mapping[str, int]) -> None:
        contents = {"run": self._checkpoint.run, "ends": ends}
        write_sealed(self._checkpoint.folder / "ends.json", contents)
        self._checkpoint.ends = ends

    def _rewrite(self) -> None:
        replace_file(self._path, "".join(_format_line(*key, one) for key, one in self._rounds.items()))


def load_ends(checkpoint: Checkpoint) -> dict[str, int]:
    """Return in which rounds sources have ended, by the records of runs that may have crashed."""
    ends = read_ends(checkpoint.folder / "ends.json", checkpoint.run)
    checkpoint.ends = {checkpoint.names.get(source, source): number for source, number in ends.items()}
    return dict(checkpoint.ends)


def read_ends(path: Path, run: str) -> dict[str, int]:
    """Return the saved ends of sources; raise CheckpointError if they are damaged, or of another run."""
    if not path.exists():
        return {}
    contents = read_sealed(path)
    if contents.get("run") != run:
        raise damage_error(path, "belongs to another run", f"this is {run}")
    try:
        return {source: int(number) for source, number in contents["ends"].items()}
    except (KeyError, ValueError, TypeError, AttributeError) as cause:
        raise damage_error(path, "holds something else", describe_cause(cause)) from cause


def read_records(path: Path) -> dict[tuple[str, int], RoundRecord]:
    """Return the records of rounds, by source and number; raise CheckpointError if they are damaged."""
    if not path.exists():
        return {}
    records = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    for place, line in enumerate(lines):
        try:
            source, number, record = _parse_line(line)
        except (ValueError, TypeError) as cause:
            if place == len(lines) - 1 and not line.endswith("\n"):
                break  # a crash has cut it short, so its round was not processed
            raise damage_error(
                path, "cannot be read", f"line {place + 1}: {describe_cause(cause)}"
            ) from cause
        records[source, number] = record
    return records


def _format_line(source: str, number: int, record: RoundRecord) -> str:
    body = json.dumps([source, number, *record])
    return f"{xxhash.xxh3_64_hexdigest(body.encode())} {body}\n"


def _parse_line(line: str) -> tuple[str, int, RoundRecord]:
    check, _, body = line.rstrip("\n").partition(" ")
    if xxhash.xxh3_64_hexdigest(body.encode()) != check:
        raise ValueError("its checksum does not fit")
    source, number, now, took, rows_at = json.loads(body)
    return str(source), int(number), RoundRecord(int(now), bool(took), int(rows_at))
