"""The checkpoint folder: the state that a run can resume from.

    penstock.json        the graph by step name: everything that saved state depends on
    commits/             one manifest per checkpoint; the newest counts, and each is complete or absent
    state/               the pieces of state that manifests refer to
    files/               per source, which files made which batch
    planned_rounds.json  the contents of the rounds after the newest manifest, where the clock influences them
    rounds.jsonl         the same of runs in process, and the rounds in which sources end (`round_records.py`)
    spark/               Spark's own log of the query; manifests say what is done
    lock                 held while a run writes

A manifest says which rounds are done. It is written after the sinks have committed them, so rounds may be
repeated after a crash; sinks recognise their numbers and do not publish them twice.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import IO, Any

import xxhash

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.file_journal import JournalEntry, Mark
from penstock.connect.writers.staged_files import lock_file
from penstock.crash_points import CLEANED, pass_crash_point
from penstock.engines.checkpoint.graph import (
    FORMAT,
    find_histories,
    keeps_state,
    present_names,
    record_histories,
    refuse_incompatible,
    upgrade_graph,
    with_histories,
)
from penstock.engines.checkpoint.input_files import read_input_files
from penstock.engines.checkpoint.journal import Journal, journal_path, list_journals
from penstock.engines.checkpoint.manifest import (
    OLD,
    Manifest,
    check_planned,
    is_old_run,
    manifest_name,
    read_manifest,
    read_newest,
    read_planned,
)
from penstock.engines.checkpoint.output_links import SinkLink
from penstock.engines.checkpoint.sealed_files import ChainedLog, damage_error, read_sealed, write_sealed
from penstock.engines.checkpoint.state_files import StateFiles, StateHandle
from penstock.errors import CheckpointError, describe_cause, nearest_first
from penstock.operators.op import StepHistory
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from penstock.stages.stage import StageContext

_N_MANIFESTS = 2
"""The number of manifests that are kept; state that only older ones refer to is removed."""


class Checkpoint:
    """A checkpoint folder, written by one run at a time.

    Without a folder it is a temporary one, removed when the run ends.

    run          its identity, for as long as it exists and wherever it is moved
    records      what is recorded of rounds in process (`round_records.py`); None before that was read
    saved_graph  the graph that the folder belongs to (`describe_graph`); None when the folder is new
    renamed      the name of a step in the folder -> in the graph
    names        the same, as far as it is in the folder
    """

    def __init__(
        self,
        folder: str | None,
        graph: Mapping[str, Any],
        engine: str = "local",
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self.durable = folder is not None
        self.folder = (
            Path(tempfile.mkdtemp(prefix="penstock-state-")) if folder is None else _local_path(folder)
        )
        self._graph, self._engine = graph, engine
        self._lock_file: IO[str] | None = None
        self._newest, self._has_manifest = Manifest(), False
        self._journals: dict[str, Journal] = {}
        self.records: ChainedLog | None = None
        self._links: dict[str, SinkLink] = {}
        self._drained_error: CheckpointError | None = None
        self._histories: Mapping[str, StepHistory] = {}
        self.names: Mapping[str, str] = {}
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
            self.saved_graph = read_graph(self.folder)
            self.run = uuid.uuid4().hex if self.saved_graph is None else self.saved_graph["run"]
            if self.saved_graph is not None:
                self._compare_graph(self.saved_graph, renamed or {})
                self._learn_histories(self.saved_graph, renamed or {})
        except BaseException as cause:
            self.close()
            if not isinstance(cause, OSError):
                raise
            raise CheckpointError(
                f"the checkpoint folder cannot be used: {describe_cause(cause)}",
                detail=str(self.folder),
                hint="give a folder that can be written",
            ) from cause

    def _learn_histories(self, saved: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
        """Find out what the steps of this graph were before."""
        saved = upgrade_graph(saved, self._graph)
        done = self.latest_manifest()
        # A manifest may be older than the last renaming.
        done = done.rename(present_names(saved))
        renamed = {before: now for before, now in renamed.items() if before in saved["steps"]}
        self._histories = find_histories(saved, self._graph, renamed, done.state, done.step_watermarks)
        self._graph = record_histories(self._graph, self._histories)
        self.names = {name: now for now, history in self._histories.items() for name in history.former}

    @property
    def first_names(self) -> Mapping[str, str]:
        """Return the names of steps when the checkpoint began, which files keep -> their names now."""
        return {(*history.former, now)[0]: now for now, history in self._histories.items()}

    def knows(self, step: str) -> bool:
        """Return whether the folder knows a step of this graph, under whatever name."""
        return step in self._histories

    def adapt(self, plan: Plan) -> Plan:
        """Return the plan of this graph, whose steps know what they were in earlier runs."""
        return with_histories(plan, self._histories)

    def adopt(self) -> None:
        """Record that the folder belongs to this graph; call it once all sinks are open.

        Until then the folder must stay as it was, or a sink that was refused would be taken for one that
        this checkpoint knows. The first manifest is written here too, before any row is read: so it is
        noticed if later either of the two is gone.
        """
        if not self.durable:
            return
        outputs = {
            sink: os.path.relpath(link.file, self.folder)
            for sink, link in self._links.items()
            if link.file is not None
        }
        contents = {
            "format": FORMAT,
            "run": self.run,
            "engine": self._engine,
            "outputs": outputs,
            **self._graph,
        }
        if self.saved_graph != contents:
            write_sealed(self.folder / "penstock.json", contents)
        for log in (*self._journals.values(), *([] if self.records is None else [self.records])):
            log.keep()
        if not self._has_manifest:
            self.commit(self._newest)

    @property
    def files(self) -> StateFiles:
        """Return the folder in which workers write state."""
        return StateFiles(str(self.folder / "state"), self.durable)

    def latest_manifest(self) -> Manifest:
        """Return the newest manifest, or an empty one when there is none."""
        paths = sorted((self.folder / "commits").glob("*.json"))
        self._has_manifest = bool(paths)
        if paths:
            newest = read_manifest(paths[-1], self.run, *([""] if is_old_run(self.run) else []))
            self._newest = newest.rename(self.names)
        return self._newest

    def journal(self, source: str, done: int) -> Journal | None:
        """Return the journal of the files that a source read; None if no run will resume from it."""
        if not self.durable:
            return None
        first_name = next((one for one, now in self.first_names.items() if now == source), source)
        journal = self._journals[source] = Journal(
            journal_path(self.folder, first_name),
            first_name,
            self.run,
            done=done,
            known=self._newest.journals.get(source),
            is_new=self.saved_graph is None,
            is_old=is_old_run(self.run),
        )
        journal.refusal = self._drained_error
        return journal

    def link(self, sink: str) -> SinkLink | None:
        """Return what ties the output of a sink to this checkpoint; None if no run will resume from it."""
        if not self.durable:
            return None
        self._links[sink] = SinkLink(
            sink,
            self.folder,
            self.run,
            known=self.knows(sink),
            is_old=is_old_run(self.run),
            committed=self._newest.outputs.get(sink),
            rounds=self._newest.rounds if self._has_manifest else None,
            journals=self._journals,
            records=self.records,
            read_head=self._read_head,
        )
        return self._links[sink]

    def _read_head(self) -> dict[str, Any]:
        """Return how far the checkpoint is: all of it is durable."""
        journals = {source: journal.head for source, journal in self._journals.items()}
        head = {"rounds": self._newest.rounds, "journals": journals}
        return head if self.records is None else {**head, "records": self.records.head}

    def refuse_input(self, plan: Plan) -> CheckpointError | None:
        """Return the error for more input of a run whose windows have been closed; None if it may go on.

        Where no step keeps state, nothing was closed.
        """
        if not self._newest.drained or not any(map(keeps_state, plan)):
            return None
        path = self.folder / "commits" / manifest_name(self._newest)
        self._drained_error = CheckpointError(
            "the run of this checkpoint has been drained: its windows are closed, and there is new input",
            detail=f"{path}: rows of the new input may belong to windows that were written",
            hint="give this input an empty checkpoint folder and an empty output folder; "
            "next time, leave drain=True out until the last input is there",
        )
        return self._drained_error

    def commit(self, manifest: Manifest, pending: Collection[str] = ()) -> int:
        """Make a manifest the newest, remove what is no longer needed, and return the new bytes of state.

        pending  state files that a later manifest will refer to
        """
        if self.durable:
            manifest = replace(
                manifest,
                run=self.run,
                engine=self._engine,
                outputs={sink: link.committed for sink, link in self._links.items()},
                journals={source: journal.head for source, journal in self._journals.items()},
                records=self._newest.records
                if self.records is None or not self.records.head[0]
                else self.records.head,
            )
            # Why not asdict(): it copies every handle.
            contents = {one.name: getattr(manifest, one.name) for one in fields(manifest)}
            write_sealed(self.folder / "commits" / manifest_name(manifest), contents)
        self._newest = manifest
        return self._remove_unused(manifest, pending)

    def save_planned_rounds(self, rounds: Mapping[int, Mapping[str, Any]]) -> None:
        """Save the contents of the next rounds before they are processed, so that a repetition is equal."""
        contents = {str(number): contents for number, contents in rounds.items()}
        write_sealed(self.folder / "planned_rounds.json", {"run": self.run, "rounds": contents})

    def planned_rounds(self) -> dict[int, dict[str, Any]]:
        """Return the saved contents of rounds that may not have been completed.

        Raise CheckpointError if they are not those of the last run on Spark.
        """
        # Another engine has left no record, and needs none.
        last_engine = (self.saved_graph or {}).get("engine")
        newest = self._newest if last_engine == self._engine else Manifest()
        rounds = read_planned(self.folder / "planned_rounds.json", self.run, newest, self._engine)
        for record in rounds.values():
            for names in (record["took"], record["idle"]):
                names[:] = [self.names.get(name, name) for name in names]
        return rounds

    def check_planned(self, rounds: Mapping[int, object]) -> None:
        """Raise CheckpointError if an output is ahead by a round, and nobody knows what was in that."""
        if (self.saved_graph or {}).get("engine") != self._engine:
            return  # another engine needs no record
        check_planned(self.folder / "planned_rounds.json", rounds, self._newest, self._links)

    def close(self) -> None:
        """Release the folder and remove a temporary one."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None
        if not self.durable:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _compare_graph(self, saved: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
        """Raise CheckpointError, which names the file, unless this graph may resume from the saved one."""
        try:
            refuse_incompatible(saved, self._graph, renamed)
        except CheckpointError as refusal:
            path = self.folder / "penstock.json"
            refusal.detail = str(path) if refusal.detail is None else f"{refusal.detail}; in {path}"
            raise

    def _remove_unused(self, manifest: Manifest, pending: Collection[str]) -> int:
        """Remove old manifests and unreferenced state; return the bytes that belong to this manifest."""
        handles = [handle for by_bucket in manifest.state.values() for handle in by_bucket.values()]
        commits = sorted((self.folder / "commits").glob("*.json"))
        for path in commits[:-_N_MANIFESTS]:
            path.unlink(missing_ok=True)
        for path in commits[-_N_MANIFESTS:-1]:
            with suppress(CheckpointError, AttributeError, TypeError):  # it is older, so nobody needs it
                state = read_sealed(path).get("state", {})
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


def read_graph(folder: Path) -> dict[str, Any] | None:
    """Return what a checkpoint folder is of, with its identity; None if it is new."""
    path = folder / "penstock.json"
    if path.exists():
        contents = read_sealed(path)
        if not isinstance(contents.get("format"), int):
            raise damage_error(path, "is not what it was", f"it holds {', '.join(contents):.80}")
        if "run" not in contents:
            # Why of its contents: a run that dies before it writes the identity finds the same again.
            contents["run"] = OLD + xxhash.xxh3_64_hexdigest(path.read_bytes())
        return contents
    commits = sorted((folder / "commits").glob("*.json"))
    if commits:
        raise damage_error(
            path, "is gone", f"only that said of which run {commits[-1].relative_to(folder)} is"
        )
    return None


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
    site = StageContext(step.name, step.where, Accounts(), WallClock(), history=step.history)
    pieces = convert_state(files.read(handles, step.name), form, step.op, step.up, site)
    return files.write(manifest.rounds, "converted", {step.name: pieces})[step.name]


def skip_file(folder: str | Path, source: str, path: str | Path) -> tuple[str, str, bool]:
    """Leave an input file out for good: runs that resume from the checkpoint read no more rows of it.

    Rows that were read of it before stay. It is known by its path. Return the name of the source, the path of
    the file, and whether a run has listed it.

    folder  the checkpoint
    source  the name of the source step that reads the file, or one that it had before
    """
    folder = Path(folder)
    graph = read_graph(folder)
    sources = {} if graph is None else list_journals(folder, graph)
    now = source if graph is None else present_names(graph).get(source, source)
    if graph is None or now not in sources:
        names = ", ".join(nearest_first(source, sources))
        raise CheckpointError(
            f'the checkpoint knows no files of a source "{source}"',
            detail=f"{folder}: its sources with files are {names}"
            if names
            else f"{folder}: no source of it reads files",
            hint="name the source as the program does: graph.source(…, name=…)",
        )
    lock = lock_file(folder / "lock")
    if lock is None:
        raise CheckpointError(
            "another run is using this checkpoint",
            detail=str(folder),
            hint="stop it first, then leave the file out",
        )
    with lock:
        journal, files = read_input_files(folder, graph, read_newest(folder, graph), now)
        names_of, is_known = files.find(Path(path))
        if tuple(names_of) not in files.skipped:
            journal.append(JournalEntry(0, tuple(FileRange(name, 0, 0) for name in names_of), Mark.SKIPPED))
    return now, names_of[0], is_known


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
