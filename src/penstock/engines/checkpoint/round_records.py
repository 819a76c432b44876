"""What the clock decides of rounds in process, recorded first, so that a repetition is equal.

    {"check": "…", "body": {"run": …, "lines": 7, "head": "…", "rounds": […], "ends": {"rows": 12}}}
    {"check": "…", "body": ["rows", 11, 1700000000000000, false, 1699999990000000]}
    {"check": "…", "body": {"ends": {"rows": 12}}}

A line per round of a source that gives its rows again says when it was, and whether it had a batch. After a
crash, rounds are done again under the same numbers, and sinks do not write what they have committed of them.
So a round must have the same rows, and close the same windows, as before. Where rows get their time from the
clock, where a silent source stops to hold others back, or where the clock makes rounds of its own, that is
known here only. A source whose rows cannot be had again needs no records. A run on Spark has
`planned_rounds.json` instead, which says more: what each round is made of.

The end of a source is recorded too, because it closes windows: whether it ended by itself, or because the run
was stopped with `drain=True`. A record counts if some sink has committed the round; else nothing has come of
it, and the run goes on as if it had not ended.

The file is a chained log (`sealed_files.py`); steps are named as when the checkpoint began.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.connect.protocol import Delivery, may_wait
from penstock.engines.checkpoint.checkpoint import Checkpoint
from penstock.engines.checkpoint.sealed_files import ChainedLog, damage_error
from penstock.operators.ends import Source

FILE = "rounds.jsonl"
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


class RoundRecords(ChainedLog):
    """The records of a run, and those of the run before it that may have to be repeated.

    ends  source -> the round in which it ends, as recorded

    Invariant: `_lock` guards the file; whoever records a round goes on when that survives a crash.
    """

    def __init__(
        self,
        path: Path,
        run: str,
        *,
        done: int = 0,
        known: Sequence[Any] = (),
        names: Mapping[str, str] | None = None,
        is_new: bool = False,
    ) -> None:
        """Read the records.

        run     the identity of the checkpoint
        done    the number of rounds that are done
        known   the head that the newest manifest recorded
        names   the name of a step in the file -> in the graph
        is_new  the checkpoint is new, so a file that is there is left of a run that never began
        """
        super().__init__(path, run=run)
        self._lock, self._done, self._names = threading.Lock(), done, dict(names or {})
        self._rounds: dict[tuple[str, int], RoundRecord] = {}
        self.ends: dict[str, int] = {}
        self._n_lines = 0
        if is_new:
            return
        if path.exists():
            self._read_chain(self._read_file())
        elif known:
            detail = (
                f"{int(known[0]):,} lines had been written, and only they said what the clock had decided"
            )
            raise damage_error(path, "is gone", detail)
        if known:
            self.require(known, "the newest manifest")
        self._remove_done()

    def find(self, source: str, number: int) -> RoundRecord | None:
        """Return what an earlier run has recorded of a round."""
        return self._rounds.get((source, number))

    def record(self, source: str, number: int, record: RoundRecord) -> None:
        """Record a round before it is processed; once this returns, that survives a crash."""
        with self._lock:
            if self._n_lines >= MAX_LINES:
                self._remove_done()
                self._is_written = False
            self._append_lines([[self._first_name(source), number, *record]])
            self._rounds[source, number] = record
            self._n_lines += 1

    def complete(self, rounds: int) -> None:
        """Take note that a manifest says that rounds are done: nobody will ask for them again."""
        self._done = rounds

    def record_end(self, sources: Collection[str], number: int) -> None:
        """Record that sources end in a round, before they do."""
        with self._lock:
            self._set_ends({**self.ends, **dict.fromkeys(sources, number)})

    def replace_ends(self, ends: Mapping[str, int]) -> None:
        """Record that these sources end, and no others."""
        with self._lock:
            self._set_ends(ends)

    def _set_ends(self, ends: Mapping[str, int]) -> None:
        if ends != self.ends:
            self._append_lines([{"ends": self._with_first_names(ends)}])
            self.ends = dict(ends)

    def keep(self) -> None:
        """Implement `ChainedLog.keep`."""
        with self._lock:
            if self.path.exists():
                self._rewrite()

    def _remove_done(self) -> None:
        self._rounds = {key: record for key, record in self._rounds.items() if key[1] >= self._done}
        self._n_lines = len(self._rounds)

    def _snapshot(self) -> Mapping[str, Any]:
        rounds = [[self._first_name(source), number, *one] for (source, number), one in self._rounds.items()]
        return {"rounds": rounds, "ends": self._with_first_names(self.ends)}

    def _take_snapshot(self, saved: Mapping[str, Any]) -> None:
        for line in saved["rounds"]:
            self._take_line(line)
        self._take_line({"ends": saved["ends"]})

    def _take_line(self, body: Any) -> None:
        if isinstance(body, Mapping):
            ends = {str(source): int(number) for source, number in body["ends"].items()}
            self.ends = {self._names.get(source, source): number for source, number in ends.items()}
            return
        source, number, now, took, rows_at = body
        key = self._names.get(str(source), str(source)), int(number)
        self._rounds[key] = RoundRecord(int(now), bool(took), int(rows_at))

    def _first_name(self, source: str) -> str:
        return next((first for first, now in self._names.items() if now == source), source)

    def _with_first_names(self, ends: Mapping[str, int]) -> dict[str, int]:
        return {self._first_name(source): number for source, number in ends.items()}


def open_records(checkpoint: Checkpoint, rounds: int) -> RoundRecords:
    """Return the records of a checkpoint of which so many rounds are done; its outputs will refer to them."""
    refuse_ends_file(checkpoint.folder)
    checkpoint.records = records = RoundRecords(
        checkpoint.folder / FILE,
        checkpoint.run,
        done=rounds,
        known=checkpoint.latest_manifest().records,
        names=checkpoint.first_names,
        is_new=checkpoint.saved_graph is None,
    )
    return records


def refuse_ends_file(folder: Path) -> None:
    """Raise CheckpointError if the ends of sources are in a file of their own, as in no version released."""
    path = folder / "ends.json"
    if path.exists():
        detail = f"since then, {FILE} says in which rounds sources have ended"
        hint = "finish the run with the Penstock that wrote it"
        raise damage_error(path, "is of an unreleased Penstock", detail, hint)


def resume_ends(
    records: RoundRecords, checkpoint: Checkpoint, sources: Collection[str], done: int, committed: int
) -> Mapping[str, int]:
    """Return the rounds in which sources must end, since sinks have committed up to this round.

    done  the number of rounds that are done

    Records of ends that nothing has come of are removed. A run on Spark has recorded its last round.
    """
    planned = checkpoint.planned_rounds()
    ends = dict(records.ends)
    for number in (number for number, record in planned.items() if record["last"]):
        ends |= dict.fromkeys(sources, number)
    counts = {source: number for source, number in ends.items() if done <= number <= committed}
    records.replace_ends(counts)
    if planned:
        checkpoint.save_planned_rounds({})
    return counts
