"""The journal of a source: which files made which batch.

    {"check": "…", "body": {"run": …, "source": …, "done": 12, "lines": 40, "head": "…", "entries": […]}}
    {"check": "…", "body": [13, [["events/0007.parquet", …]]]}

The order in which files appeared is recorded nowhere else. An entry per batch is appended and synced before
the batch is handed out, so a resumed run produces the same batches under the same numbers.

The first line is what a run has kept of the journals of earlier runs. Each further line is chained to the one
before it by its checksum, and the chain goes on over the runs of a checkpoint. Manifests, and the outputs of
sinks, record how many lines there were, and the checksum of the last: a journal that is older than what was
done by it, or of which a line is missing, is refused. A last line that a crash cut short belongs to a batch
that was never handed out, unless one of them knows it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from penstock.connect.readers.file_journal import JournalEntry, prune_entries
from penstock.connect.writers.staged_files import replace_file, seal, unseal
from penstock.crash_points import JOURNALED, pass_crash_point
from penstock.engines.checkpoint.sealed_files import damage_error, write_error
from penstock.errors import CheckpointError, describe_cause


class Journal:
    """A journal as it was read, to which entries are appended.

    head     the number of lines that were ever appended, and the checksum of the last
    refusal  raised for another batch, if there may be none
    """

    def __init__(
        self,
        path: Path,
        source: str,
        run: str,
        *,
        done: int = 0,
        known: Sequence[Any] | None = None,
        is_new: bool = False,
        is_old: bool = False,
    ) -> None:
        """Read the journal.

        run     the identity of the checkpoint
        done    the number of batches that are done
        known   the head that the newest manifest recorded
        is_new  the checkpoint is new, so a journal that is there is left of a run that never began
        is_old  the journal may be of format 3, whose lines are no chain
        """
        self.path, self._source, self._run, self._done = path, source, run, done
        self._lock = threading.Lock()
        self.refusal: CheckpointError | None = None
        self._heads: dict[int, str] = {}
        self._all: list[JournalEntry] = []
        self.head: tuple[int, str] = (0, "")
        self._is_written = False  # the file holds exactly what was read, under the name of this run
        if is_new:
            return
        if not path.exists():
            if done or known:
                detail = f"{self._done:,} batches are done, and only that said which files they were of"
                raise damage_error(path, "is gone", detail)
            return
        self._read(is_old)
        if known is not None:
            self.require(known, "the newest manifest")

    def _read(self, is_old: bool) -> None:
        """Take in all lines; raise CheckpointError if one is damaged or missing."""
        try:
            lines = self.path.read_text("utf-8", errors="replace").splitlines(keepends=True)
        except OSError as cause:
            raise damage_error(self.path, "cannot be read", describe_cause(cause)) from cause
        # An empty file, too, is an old one; the first line of a new one is written together with its name.
        if is_old and not (lines and '"body": {' in lines[0][:40]):
            self._read_lines(lines, 0, chained=False)
            return
        try:
            snapshot, _ = unseal(lines[0] if lines else "")
            self.head = int(snapshot["lines"]), str(snapshot["head"])
            self._all = [JournalEntry.of(*entry) for entry in snapshot["entries"]]
            run, source, done = str(snapshot["run"]), str(snapshot["source"]), int(snapshot["done"])
        except (ValueError, KeyError, TypeError) as cause:
            raise damage_error(self.path, "cannot be read", f"line 1: {describe_cause(cause)}") from cause
        if (run, source) != (self._run, self._source):
            detail = f'it is of source "{source}" of the checkpoint {run}, and this is {self._run}'
            raise damage_error(self.path, "belongs to another run or source", detail)
        if done > self._done:
            detail = (
                f"{done:,} batches were done when it was written, and by the newest manifest {self._done:,}"
            )
            raise damage_error(self.path, "is newer than the manifests in commits/", detail)
        self._heads[self.head[0]] = self.head[1]
        self._read_lines(lines, 1, chained=True)

    def _read_lines(self, lines: Sequence[str], first: int, *, chained: bool) -> None:
        for number, line in enumerate(lines[first:], first):
            n_lines, before = self.head
            try:
                entry, check = unseal(line, before if chained else "")
                self._all.append(JournalEntry.of(*entry))
            except (ValueError, KeyError, TypeError) as cause:
                if number == len(lines) - 1 and not line.endswith("\n"):
                    return
                why = f"line {number + 1}, or the one before it: {describe_cause(cause)}"
                raise damage_error(self.path, "cannot be read", why) from cause
            if chained:
                self.head = n_lines + 1, check
                self._heads[n_lines + 1] = check

    def require(self, head: Sequence[Any], owner: str) -> None:
        """Raise CheckpointError unless the journal has the lines that somebody recorded."""
        n_lines, check = int(head[0]), str(head[1])
        if n_lines > self.head[0]:
            detail = f"{n_lines:,} lines had been written, as {owner} says, and there are {self.head[0]:,}"
            raise damage_error(self.path, "is older than what was done by it, or cut", detail)
        if self._heads.get(n_lines, check) != check:
            raise damage_error(self.path, "has other lines than it had", f"line {n_lines:,}, as {owner} says")

    def entries(self) -> Iterable[JournalEntry]:
        """Return the entries of earlier runs, in order, without what nobody can ask for again."""
        return prune_entries(self._all, self._done)

    def append(self, *entries: JournalEntry) -> None:
        """Write entries; once this returns, they survive a crash."""
        if self.refusal is not None:
            raise self.refusal
        with self._lock:
            self._append([entry.to_list() for entry in entries])
            self._all += entries
        pass_crash_point(JOURNALED)

    def _append(self, bodies: Sequence[object]) -> None:
        self._rewrite()
        n_lines, before = self.head
        lines = []
        for body in bodies:
            lines.append(seal(body, before) + "\n")
            before = lines[-1][11:27]
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as cause:
            self._is_written = False  # it may have a part of the lines
            raise write_error(self.path, cause) from cause
        self.head = n_lines + len(lines), before

    def keep(self) -> None:
        """Rewrite the journal as the first line of this run, once it is sure that the run may go on."""
        with self._lock:
            self._rewrite()

    def _rewrite(self) -> None:
        if self._is_written:
            return
        n_lines, head = self.head
        body = {
            "run": self._run,
            "source": self._source,
            "done": self._done,
            "lines": n_lines,
            "head": head,
            "entries": [entry.to_list() for entry in self.entries()],
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, seal(body) + "\n")
        except OSError as cause:
            raise write_error(self.path, cause) from cause
        self._is_written = True
