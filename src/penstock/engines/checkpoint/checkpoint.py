"""The checkpoint folder: the state that a run can resume from.

    penstock.json        the graph by step name: everything that saved state depends on
    commits/             one manifest per checkpoint; the newest counts, and each is complete or absent
    state/               the pieces of state that manifests refer to
    files/               per source, which files made which batch
    planned_rounds.json  the contents of the rounds after the newest manifest, where the clock influences them
    spark/               Spark's own log of the query; manifests say what is done
    lock                 held while a run writes

A manifest says which rounds are done. It is written after the sinks have committed them, so rounds may be
repeated after a crash; sinks recognise their numbers and do not publish them twice.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import xxhash

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.connect.readers.files import JournalEntry
from penstock.connect.writers.staged_files import lock_file, replace_file
from penstock.crash_points import CLEANED, JOURNALED, pass_crash_point
from penstock.engines.checkpoint.graph import FORMAT, refuse_incompatible
from penstock.engines.checkpoint.state_files import StateFiles, StateHandle, StateHandles
from penstock.errors import CheckpointError, describe_cause
from penstock.frozen import Frozen
from penstock.operators.windows import Windows
from penstock.plan.plan import Step
from penstock.stages.stage import StageContext

_N_MANIFESTS = 2
"""The number of manifests that are kept; state that only older ones refer to is removed."""


class Manifest(Frozen):
    """How far a run has come.

    rounds             number of rounds of source batches that are done
    positions          source -> batches and rows read
    source_watermarks  source -> its watermark, in microseconds
    step_watermarks    step -> the watermark of its input
    accounts           step -> what became of its rows
    state              step -> bucket -> where its piece of state is
    early_fired_at     step -> clock time of the last early firing of its open windows
    drained            all windows have been closed: there is nothing to resume
    """

    rounds: int = 0
    positions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    source_watermarks: Mapping[str, float] = field(default_factory=dict)
    step_watermarks: Mapping[str, float] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state: StateHandles = field(default_factory=dict)
    early_fired_at: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False


class Checkpoint:
    """A checkpoint folder, written by one run at a time.

    Without a folder it is a temporary one, removed when the run ends.

    saved_graph  the graph that the folder belongs to (`describe_graph`); None when the folder is new
    """

    def __init__(self, folder: str | None, graph: Mapping[str, Any]) -> None:
        self.durable = folder is not None
        self.folder = (
            Path(tempfile.mkdtemp(prefix="penstock-state-")) if folder is None else _local_path(folder)
        )
        self._graph = {"format": FORMAT, **graph}
        self._lock_file: IO[str] | None = None
        try:
            for name in ("commits", "state"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self._lock_file = lock_file(self.folder / "lock")
            if self._lock_file is None:
                raise CheckpointError(
                    "another run is using this checkpoint",
                    detail=str(self.folder),
                    hint="wait for it to end, or give this run a folder of its own",
                )
            path = self.folder / "penstock.json"
            self.saved_graph = self._read(path) if path.exists() else None
            if self.saved_graph is not None:
                refuse_incompatible(self.saved_graph, graph)
        except BaseException as cause:
            self.close()
            if not isinstance(cause, OSError):
                raise
            raise CheckpointError(
                f"the checkpoint folder cannot be used: {describe_cause(cause)}",
                detail=str(self.folder),
                hint="give a folder that can be written",
            ) from cause

    def adopt(self) -> None:
        """Record that the folder belongs to this graph; call it once all sinks are open.

        Until then the folder must stay as it was, or a sink that was refused would be taken for one that
        this checkpoint knows.
        """
        if self.saved_graph != self._graph:
            self._write("penstock.json", self._graph)

    @property
    def files(self) -> StateFiles:
        """Return the folder in which workers write state."""
        return StateFiles(str(self.folder / "state"), self.durable)

    def latest_manifest(self) -> Manifest:
        """Return the newest manifest, or an empty one when there is none."""
        paths = sorted((self.folder / "commits").glob("*.json"))
        if not paths:
            return Manifest()
        fields = self._read(paths[-1])
        state = {
            step: {int(bucket): StateHandle.of(handle) for bucket, handle in handles.items()}
            for step, handles in fields["state"].items()
        }
        positions = {source: (batches, rows) for source, (batches, rows) in fields["positions"].items()}
        return Manifest(**{**fields, "state": state, "positions": positions})

    def journal(self, source: str, done: int) -> Journal | None:
        """Return the journal of the files that a source read; None if no run will resume from it."""
        if not self.durable:
            return None
        return Journal(self.folder / "files" / f"{quote(source, safe='')}.jsonl", done)

    def drained_error(self) -> CheckpointError:
        """Return the error for resuming a run that was drained."""
        return CheckpointError(
            "the run of this checkpoint has ended: all windows are closed, and it takes no more input",
            detail=str(self.folder),
            hint="start with an empty folder; next time drain=False keeps windows open",
        )

    def commit(self, manifest: Manifest, pending: Collection[str] = ()) -> int:
        """Make a manifest the newest, remove what is no longer needed, and return the new bytes of state.

        pending  state files that a later manifest will refer to
        """
        if self.durable:
            self._write(f"commits/{manifest.rounds:010d}{'-end' * manifest.drained}.json", asdict(manifest))
        return self._remove_unused(manifest, pending)

    def save_planned_rounds(self, rounds: Mapping[int, Mapping[str, Any]]) -> None:
        """Save the contents of the next rounds before they are processed, so that a repetition is equal."""
        self._write("planned_rounds.json", {str(number): contents for number, contents in rounds.items()})

    def planned_rounds(self) -> dict[int, dict[str, Any]]:
        """Return the saved contents of rounds that may not have been completed."""
        path = self.folder / "planned_rounds.json"
        if not path.exists():
            return {}
        return {int(number): contents for number, contents in self._read(path).items()}

    def close(self) -> None:
        """Release the folder and remove a temporary one."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
        if not self.durable:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _write(self, name: str, contents: Mapping[str, Any]) -> None:
        """Write a file completely or not at all."""
        path = self.folder / name
        try:
            replace_file(path, _seal(json.dumps(contents, sort_keys=True)), pass_crash_point)
        except OSError as cause:
            raise _cannot_write(path, cause) from cause

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            contents: dict[str, Any] = _unseal(path.read_text())
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise _damage_error(path, "cannot be read", f"{path}: {describe_cause(cause)}") from cause
        return contents

    def _remove_unused(self, manifest: Manifest, pending: Collection[str]) -> int:
        """Remove old manifests and unreferenced state; return the bytes that belong to this manifest."""
        handles = [handle for by_bucket in manifest.state.values() for handle in by_bucket.values()]
        commits = sorted((self.folder / "commits").glob("*.json"))
        for path in commits[:-_N_MANIFESTS]:
            path.unlink(missing_ok=True)
        for path in commits[-_N_MANIFESTS:-1]:
            state = self._read(path)["state"]
            handles += [StateHandle.of(handle) for saved in state.values() for handle in saved.values()]
        used = {piece.file for handle in handles for piece in handle.pieces} | {*pending}
        for path in (self.folder / "commits").glob("*.tmp"):
            path.unlink(missing_ok=True)
        nbytes = 0
        for path in (self.folder / "state").iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)
            elif path.name.startswith(f"{manifest.rounds:010d}-"):
                nbytes += path.stat().st_size
        pass_crash_point(CLEANED)
        return nbytes


class Journal:
    """Which files made which batch of a source, written before their rows are processed.

    The order in which files appeared is recorded nowhere else. An entry per batch is appended and synced
    before the batch is handed out, so a resumed run produces the same batches under the same numbers. A line
    that a crash cut short belongs to a batch that was never handed out. Every run starts by rewriting the
    journal without what nobody can ask for again: batches that are done, of files that are gone.

    done  the number of batches that are done
    """

    def __init__(self, path: Path, done: int) -> None:
        self._path = path
        if done and not path.exists():
            detail = f"{done:,} batches are done, and only that said which files they were of: {path}"
            raise _damage_error(path, "is gone", detail)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._entries = []
            for entry in self._read():
                if entry.until > done:
                    self._entries.append(entry)
                # Of a batch that is done, only files that could still be taken for new ones.
                elif files := tuple(status for status in entry.files if Path(status.path).exists()):
                    self._entries.append(JournalEntry(entry.until, files))
            replace_file(path, "".join(map(_format_entry, self._entries)))
        except OSError as cause:
            raise _cannot_write(path, cause) from cause

    def entries(self) -> Iterable[JournalEntry]:
        """Return the entries of earlier runs, in order."""
        return self._entries

    def append(self, *entries: JournalEntry) -> None:
        """Write entries; once this returns, they survive a crash."""
        try:
            with self._path.open("a") as file:
                file.writelines(map(_format_entry, entries))
                file.flush()
                os.fsync(file.fileno())
        except OSError as cause:
            raise _cannot_write(self._path, cause) from cause
        pass_crash_point(JOURNALED)

    def _read(self) -> list[JournalEntry]:
        if not self._path.exists():
            return []
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        entries = []
        for number, line in enumerate(lines):
            try:
                entries.append(JournalEntry.of(*_unseal(line)))
            except (ValueError, KeyError, TypeError) as cause:
                if number == len(lines) - 1 and not line.endswith("\n"):
                    break
                detail = f"{self._path}, line {number + 1}: {describe_cause(cause)}"
                raise _damage_error(self._path, "cannot be read", detail) from cause
        return entries


def _format_entry(entry: JournalEntry) -> str:
    return _seal(json.dumps([entry.until, [list(status) for status in entry.files]])) + "\n"


def convert_state(step: Step, manifest: Manifest, files: StateFiles, form: str) -> Mapping[int, StateHandle]:
    """Return where the state of a step is, once its windows have the form that this run uses.

    Another pattern, or another engine, may have saved windows in another form (`patterns/parallel.py`).
    Such pieces are converted before anything runs and written beside the old ones; the next manifest refers
    to the new ones.
    """
    handles = manifest.state[step.name]
    if not isinstance(step.op, Windows) or not handles:
        return handles
    from penstock.stages.patterns.parallel import convert_state, form_of

    bucket, handle = next(iter(handles.items()))
    (piece,) = files.read({bucket: handle}, step.name).values()
    if form_of(piece, step.name) == form:
        return handles
    site = StageContext(step.name, step.where, Accounts(), WallClock())
    pieces = convert_state(files.read(handles, step.name), form, step.op, step.up, site)
    return files.write(manifest.rounds, "converted", {step.name: pieces})[step.name]


def _seal(body: str) -> str:
    """Return a JSON text with its checksum, in one line."""
    return json.dumps({"check": xxhash.xxh3_64_hexdigest(body.encode()), "body": body})


def _unseal(text: str) -> Any:
    """Return what was sealed; raise ValueError, KeyError or TypeError if it is damaged."""
    envelope = json.loads(text)
    if xxhash.xxh3_64_hexdigest(envelope["body"].encode()) != envelope["check"]:
        raise ValueError("its checksum does not fit")
    return json.loads(envelope["body"])


def _damage_error(path: Path, why: str, detail: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint is damaged: {path.name} {why}",
        detail=detail,
        hint="bring the file back, or start with an empty checkpoint folder",
    )


def _cannot_write(path: Path, cause: OSError) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint cannot be written: {describe_cause(cause)}",
        detail=str(path),
        hint="make room, or give another folder; what was saved before is still there",
    )


def _local_path(folder: str) -> Path:
    """Return the folder as an absolute path, which every process can use."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", folder)
    if scheme is not None and scheme[1].lower() != "file":
        raise CheckpointError(
            f'checkpoint="{folder}" is not a folder of a file system',
            detail="state is written to files that the driver and all workers reach under one path",
            hint='give a folder that all of them mount, e.g. checkpoint="/mnt/shared/checkpoint"',
        )
    return Path(re.sub(r"^file:(//)?(?=/)", "", folder, flags=re.IGNORECASE)).absolute()
