"""Which files made which batch, noted before their rows go on.

The order in which files appeared is nowhere else to be found. A line a batch is appended and synced before
the batch is given, so a run that goes on gives the same batches under the same numbers. A line that a crash
cut short is of a batch that was never given. Every run begins by writing the journal anew, without what
nobody can ask for again: batches that are done, of files that are gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash

from penstock.connect.readers.file_batches import JournalEntry
from penstock.connect.writers.folder import sync_folder
from penstock.crash_points import JOURNALED, pass_crash_point
from penstock.errors import CheckpointError, describe_cause


class Journal:
    """One source's file of notes; `done` batches are never asked for again."""

    def __init__(self, path: Path, done: int) -> None:
        self._path = path
        if done and not path.exists():
            raise self._gone(done)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._notes = [kept for each in self._read() if (kept := _still_needed(each, done)) is not None]
            self._rewrite()
        except OSError as cause:
            raise self._unwritable(cause) from cause

    def entries(self) -> Iterable[JournalEntry]:
        """What earlier runs noted, in order."""
        return self._notes

    def append(self, *entries: JournalEntry) -> None:
        """Remember batches; once this is back, they outlive a crash."""
        try:
            with self._path.open("a") as file:
                file.writelines(map(_line, entries))
                file.flush()
                os.fsync(file.fileno())
        except OSError as cause:
            raise self._unwritable(cause) from cause
        pass_crash_point(JOURNALED)

    def _read(self) -> list[JournalEntry]:
        if not self._path.exists():
            return []
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        found = []
        for number, line in enumerate(lines):
            try:
                found.append(_parsed(line))
            except (ValueError, KeyError, TypeError) as cause:
                if number == len(lines) - 1 and not line.endswith("\n"):
                    break
                raise CheckpointError(
                    f"the checkpoint is damaged: {self._path.name} cannot be read",
                    detail=f"{self._path}, line {number + 1}: {describe_cause(cause)}",
                    hint="bring the file back, or start with an empty checkpoint folder",
                ) from cause
        return found

    def _rewrite(self) -> None:
        waiting = self._path.with_suffix(".tmp")
        with waiting.open("w") as file:
            file.writelines(map(_line, self._notes))
            file.flush()
            os.fsync(file.fileno())
        waiting.replace(self._path)
        sync_folder(self._path.parent)

    def _gone(self, done: int) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint is damaged: {self._path.name} is gone",
            detail=f"{done:,} batches are done, and only that said which files they were of: {self._path}",
            hint="bring the file back, or start with an empty checkpoint folder",
        )

    def _unwritable(self, cause: OSError) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint cannot be written: {describe_cause(cause)}",
            detail=str(self._path),
            hint="make room, or give another folder; what was saved before is still there",
        )


def _still_needed(noted: JournalEntry, done: int) -> JournalEntry | None:
    """The note, of a batch that is done only with the files that could still be taken for new ones."""
    if noted.until > done:
        return noted
    files = tuple(each for each in noted.files if Path(each.path).exists())
    return JournalEntry(noted.until, files) if files else None


def _line(noted: JournalEntry) -> str:
    body = json.dumps([noted.until, [list(each) for each in noted.files]])
    return json.dumps({"check": xxhash.xxh3_64_hexdigest(body.encode()), "body": body}) + "\n"


def _parsed(line: str) -> JournalEntry:
    whole: dict[str, Any] = json.loads(line)
    body = whole["body"]
    if xxhash.xxh3_64_hexdigest(body.encode()) != whole["check"]:
        raise ValueError("its checksum does not fit")
    until, files = json.loads(body)
    return JournalEntry.of(until, files)
