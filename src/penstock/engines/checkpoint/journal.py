"""The journal of a source: which files made which batch.

    {"check": "…", "body": {"run": …, "source": …, "done": 12, "lines": 40, "head": "…", "entries": […]}}
    {"check": "…", "body": [13, [["events/0007.parquet", …]]]}

The order in which files appeared is recorded nowhere else. An entry per batch is appended and synced before
the batch is handed out, so a resumed run produces the same batches under the same numbers.

It is a chained log (`sealed_files.py`). A last line that a crash cut short belongs to a batch that was never
handed out.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from penstock.connect.protocol import SourcePosition
from penstock.connect.readers.file_journal import JournalEntry, count_entries, prune_entries
from penstock.connect.writers.staged_files import unseal
from penstock.crash_points import JOURNALED, pass_crash_point
from penstock.engines.checkpoint.graph import former_names, present_names
from penstock.engines.checkpoint.manifest import Manifest, is_old_run
from penstock.engines.checkpoint.sealed_files import ChainedLog, damage_error
from penstock.errors import CheckpointError, describe_cause


def journal_path(folder: Path, source: str) -> Path:
    """Return where the journal of a source is.

    source  its name when the checkpoint began
    """
    return folder / "files" / f"{quote(source, safe='')}.jsonl"


def list_journals(folder: Path, graph: Mapping[str, Any]) -> dict[str, str]:
    """Return the sources of which a checkpoint has a journal: the name now -> the one when it began."""
    names = present_names(graph)
    first_names = sorted(unquote(path.stem) for path in (folder / "files").glob("*.jsonl"))
    return {names.get(first, first): first for first in first_names}


def open_journal(folder: Path, graph: Mapping[str, Any], newest: Manifest, source: str) -> Journal:
    """Return the journal of a source for those that run no program; raise CheckpointError if it is damaged.

    graph   as it is saved
    newest  the newest manifest, by the present names of steps
    source  its name now
    """
    first_name = (*former_names(graph["steps"].get(source, {})), source)[0]
    return Journal(
        journal_path(folder, first_name),
        first_name,
        graph["run"],
        done=count_entries(newest.positions.get(source, SourcePosition())),
        known=newest.journals.get(source),
        is_old=is_old_run(graph["run"]),
    )


class Journal(ChainedLog):
    """A journal as it was read, to which entries are appended.

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
        super().__init__(path, run=run, source=source)
        self._done = done
        self._lock = threading.Lock()
        self.refusal: CheckpointError | None = None
        self._all: list[JournalEntry] = []
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
        lines = self._read_file()
        # An empty file, too, is an old one; the first line of a new one is written together with its name.
        if is_old and not (lines and '"body": {' in lines[0][:40]):
            self._read_old(lines)
        else:
            self._read_chain(lines)

    def _read_old(self, lines: Sequence[str]) -> None:
        """Take in the lines of a journal of format 3, which are no chain."""
        for number, line in enumerate(lines):
            try:
                self._take_line(unseal(line)[0])
            except (ValueError, KeyError, TypeError) as cause:
                if number == len(lines) - 1 and not line.endswith("\n"):
                    return
                why = f"line {number + 1}: {describe_cause(cause)}"
                raise damage_error(self.path, "cannot be read", why) from cause

    def _take_snapshot(self, saved: Mapping[str, Any]) -> None:
        done = int(saved["done"])
        if done > self._done:
            detail = (
                f"{done:,} batches were done when it was written, and by the newest manifest {self._done:,}"
            )
            raise damage_error(self.path, "is newer than the manifests in commits/", detail)
        self._all = [JournalEntry.of(*entry) for entry in saved["entries"]]

    def _take_line(self, body: Any) -> None:
        self._all.append(JournalEntry.of(*body))

    def _snapshot(self) -> Mapping[str, Any]:
        return {"done": self._done, "entries": [entry.to_list() for entry in self.entries()]}

    def entries(self) -> Iterable[JournalEntry]:
        """Return the entries of earlier runs, in order, without what nobody can ask for again."""
        return prune_entries(self._all, self._done)

    def append(self, *entries: JournalEntry) -> None:
        """Write entries; once this returns, they survive a crash."""
        if self.refusal is not None:
            raise self.refusal
        with self._lock:
            self._append_lines([entry.to_list() for entry in entries])
            self._all += entries
        pass_crash_point(JOURNALED)

    def keep(self) -> None:
        """Implement `ChainedLog.keep`."""
        with self._lock:
            self._rewrite()
