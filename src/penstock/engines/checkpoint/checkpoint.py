"""The checkpoint folder: what a run may go on from, and what it may not.

    penstock.json   the graph by step name: what state depends on
    commits/        one manifest per job, the newest wins; complete or not there at all
    state/          the pieces of state that manifests name
    files/          which files of a source made which batch
    next.json       what the rounds behind the newest manifest are made of, where the clock has a say in it
    spark/          Spark's own, begun anew by every run: the query only ticks
    lock            held while a run writes

A manifest says which rounds are done. It is written after the sinks have committed them, so after a crash
rounds may be done again; sinks know their numbers and do not show them twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import asdict, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import xxhash

from penstock.accounts import Accounts
from penstock.clock import WallClock
from penstock.connect.protocol import Delivery
from penstock.connect.writers.folder import sync_folder
from penstock.crash_points import LET_GO, RENAMED, STAGED, reached
from penstock.engines.checkpoint.journal import Journal
from penstock.engines.checkpoint.state_files import Place, Places, StateFiles
from penstock.errors import CheckpointError
from penstock.expr.failure import reason_of
from penstock.frozen import dataclass
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from penstock.stages.snapshot import FORM, window_fingerprint
from penstock.stages.stage import Site

FORMAT = 2
_BEFORE = {1: "operator"}
"""A topic of window steps that an older format had here, and pieces of state have themselves."""
_KEPT = 2
"""Manifests that are kept; state that only older ones name is removed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where a run has come to.

    rounds      rounds of source batches that are done
    positions   source -> batches and rows read
    watermarks  source -> its watermark, in microseconds
    reached     step -> the watermark of its input
    accounts    step -> what became of its rows
    state       step -> bucket -> where its piece is
    shown       step -> when its open windows were last shown early, by the clock
    drained     everything has been closed: there is nothing to go on from
    """

    rounds: int = 0
    positions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    watermarks: Mapping[str, float] = field(default_factory=dict)
    reached: Mapping[str, float] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state: Places = field(default_factory=dict)
    shown: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False


class Checkpoint:
    """A folder that one run at a time writes; without one given, a temporary one that goes with the run."""

    def __init__(self, folder: str | None, described: Mapping[str, Any]) -> None:
        self.durable = folder is not None
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-state-")) if folder is None else _place(folder)
        self._described = {"format": FORMAT, **described}
        self._lock: IO[str] | None = None
        try:
            for name in ("commits", "state"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self._lock = self._locked()
            self.known = self._known()
            if self.known is not None:
                refuse_other(self.known, described)
        except OSError as cause:
            self.close()
            raise CheckpointError(
                f"the checkpoint folder cannot be used: {reason_of(cause)}",
                detail=str(self.folder),
                hint="give a folder that can be written",
            ) from cause
        except BaseException:
            self.close()
            raise

    def adopt(self) -> None:
        """Make the folder this graph's. Not before all sinks are open: until then it must be as it was, or
        a sink that was refused would be taken for one that this checkpoint knows.
        """
        if self.known != self._described:
            self._put("penstock.json", self._described)

    def ticks(self) -> str:
        """A folder for Spark's own, empty."""
        folder = self.folder / "spark"
        shutil.rmtree(folder, ignore_errors=True)
        return str(folder)

    @property
    def files(self) -> StateFiles:
        """Where workers put state."""
        return StateFiles(str(self.folder / "state"), self.durable)

    def latest(self) -> Manifest:
        """The newest manifest; one of nothing done when there is none."""
        found = sorted((self.folder / "commits").glob("*.json"))
        if not found:
            return Manifest()
        told = self._read(found[-1])
        state = {s: {int(b): Place(*place) for b, place in at.items()} for s, at in told["state"].items()}
        positions = {source: (batches, rows) for source, (batches, rows) in told["positions"].items()}
        return Manifest(**{**told, "state": state, "positions": positions})

    def journal(self, source: str, done: int) -> Journal | None:
        """Where a source notes which files it read; None where nobody goes on from it."""
        if not self.durable:
            return None
        return Journal(self.folder / "files" / f"{quote(source, safe='')}.jsonl", done)

    def is_drained(self) -> CheckpointError:
        """The error of a run that has nothing to go on from."""
        return CheckpointError(
            "the run of this checkpoint has ended: all windows are closed, and it takes no more input",
            detail=str(self.folder),
            hint="start with an empty folder; next time drain=False keeps windows open",
        )

    def commit(self, manifest: Manifest, waiting: Collection[str] = ()) -> int:
        """Make a manifest the newest; gives the bytes of state that are new. Older ones are let go.

        `waiting` are state files that a manifest to come will name.
        """
        if self.durable:
            self._put(f"commits/{manifest.rounds:010d}{'-end' * manifest.drained}.json", asdict(manifest))
        return self._let_go(manifest, waiting)

    def foresee(self, rounds: Mapping[int, Mapping[str, Any]]) -> None:
        """Say what the next rounds are made of, before they are carried: done again, they are the same."""
        self._put("next.json", {str(number): told for number, told in rounds.items()})

    def foreseen(self) -> dict[int, dict[str, Any]]:
        """What was said of rounds that may not have been done."""
        path = self.folder / "next.json"
        return {int(number): told for number, told in self._read(path).items()} if path.exists() else {}

    def close(self) -> None:
        """Let the folder go; a temporary one is removed."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if not self.durable:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _locked(self) -> IO[str]:
        lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise CheckpointError(
                "another run is using this checkpoint",
                detail=str(self.folder),
                hint="wait for it to end, or give this run a folder of its own",
            ) from None
        return lock

    def _known(self) -> dict[str, Any] | None:
        path = self.folder / "penstock.json"
        return self._read(path) if path.exists() else None

    def _put(self, name: str, what: Mapping[str, Any]) -> None:
        """Write a file whole or not at all."""
        body = json.dumps(what, sort_keys=True)
        path = self.folder / name
        waiting = path.with_suffix(".tmp")
        try:
            with waiting.open("w") as file:
                file.write(json.dumps({"check": _check(body), "body": body}))
                file.flush()
                os.fsync(file.fileno())
            reached(STAGED)
            waiting.replace(path)
            reached(RENAMED)
            sync_folder(path.parent)
        except OSError as cause:
            raise CheckpointError(
                f"the checkpoint cannot be written: {reason_of(cause)}",
                detail=str(path),
                hint="make room, or give another folder; what was saved before is still there",
            ) from cause

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            whole = json.loads(path.read_text())
            body = whole["body"]
            if _check(body) != whole["check"]:
                raise ValueError("its checksum does not fit")
            found: dict[str, Any] = json.loads(body)
        except (OSError, ValueError, KeyError, TypeError) as cause:
            raise CheckpointError(
                f"the checkpoint is damaged: {path.name} cannot be read",
                detail=f"{path}: {reason_of(cause)}",
                hint="bring the file back, or start with an empty checkpoint folder",
            ) from cause
        return found

    def _let_go(self, manifest: Manifest, waiting: Collection[str]) -> int:
        named = {place.file for places in manifest.state.values() for place in places.values()} | {*waiting}
        commits = sorted((self.folder / "commits").glob("*.json"))
        for path in commits[:-_KEPT]:
            path.unlink(missing_ok=True)
        for path in commits[-_KEPT:-1]:
            named |= {place[0] for at in self._read(path)["state"].values() for place in at.values()}
        for path in (self.folder / "commits").glob("*.tmp"):
            path.unlink(missing_ok=True)
        fresh = 0
        for path in (self.folder / "state").iterdir():
            if path.name not in named:
                path.unlink(missing_ok=True)
            elif path.name.startswith(f"{manifest.rounds:010d}-"):
                fresh += path.stat().st_size
        reached(LET_GO)
        return fresh


def refuse_other(known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise unless a graph may go on from the checkpoint of another one.

    Stateless code and parallelism may change and sinks may be added; what has state or is read may not.
    """
    hint = "bring it back as it was, or start with an empty checkpoint folder"
    if known.get("format", 0) > FORMAT:
        raise CheckpointError(
            f"the checkpoint has format {known['format']}, and this Penstock reads up to {FORMAT}",
            hint="run it with the Penstock that wrote it, or a newer one",
        )
    if known.get("graph") != now["graph"]:
        raise CheckpointError(
            f'the checkpoint is of graph "{known.get("graph")}", not of "{now["graph"]}"', hint=hint
        )
    for name, was in known["steps"].items():
        is_now = now["steps"].get(name)
        if is_now is None:
            raise CheckpointError(f'the checkpoint has step "{name}", and the graph has not', hint=hint)
        for topic in dict.fromkeys([*was, *is_now]):
            if topic == _BEFORE.get(known.get("format", 0)) and is_now["kind"] == "Windows":
                continue
            if was.get(topic) != is_now.get(topic):
                raise CheckpointError(
                    f'step "{name}" is not what it was: its {topic} differs',
                    step=name,
                    detail=f"saved: {was.get(topic)}; now: {is_now.get(topic)}",
                    hint=hint,
                )
    for name, is_now in now["steps"].items():
        if name not in known["steps"] and is_now["kind"] != "Sink":
            raise CheckpointError(
                f'step "{name}" is new, and keeps state or reads: the checkpoint knows nothing of it',
                step=name,
                hint=hint,
            )


def _check(body: str) -> str:
    return xxhash.xxh3_64_hexdigest(body.encode())


def _place(folder: str) -> Path:
    """The folder as every process knows it, wherever it was started."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", folder)
    if scheme is not None and scheme[1].lower() != "file":
        raise CheckpointError(
            f'checkpoint="{folder}" is not a folder of a file system',
            detail="state is written to files that the driver and all workers reach under one path",
            hint='give a folder that all of them mount, e.g. checkpoint="/mnt/shared/checkpoint"',
        )
    return Path(re.sub(r"^file:(//)?(?=/)", "", folder, flags=re.IGNORECASE)).absolute()


# A graph by step name, as a checkpoint remembers it: what may not change while there is state.


def described(plan: Plan) -> dict[str, Any]:
    """Sources, sinks and steps with state; stateless code may change as it likes."""
    return {"graph": plan.graph, "steps": {s.name: _step(s) for s in plan if _is_kept(s)}}


def _is_kept(step: Step) -> bool:
    return isinstance(step.op, Source | Sink | Windows) or step.op.stateful


def _step(step: Step) -> dict[str, str]:
    kind = {"kind": type(step.op).__name__}
    if isinstance(step.op, Source):
        time = step.op.resolved()
        told = "none" if time is None else f"{time.column} {time.type}, delay {time.delay} us"
        return kind | {"columns": str(step.op.reader.schema), "time": told}
    if isinstance(step.op, Sink):
        writer = step.op.writer
        # What outlives the run must stay where it is, or some of it would be missing in the new place.
        return kind | ({"place": writer.describe()} if writer.delivery == Delivery.EXACTLY_ONCE else {})
    if isinstance(step.op, Windows):
        # Another number of replicas may choose another pattern; pieces of state say what form they have.
        found = window_fingerprint(step.op, step.up, numbered=False)
        return {"kind": Windows.__name__, **{topic: words for topic, words in found.items() if topic != FORM}}
    return kind | {"key": ", ".join(step.up.key), "columns": str(step.up.schema)}


# Saved windows as this run keeps them: another pattern, or another engine, may have saved them otherwise.
#
# Pieces in another form (`stages/patterns/forms.py`) are cut anew before anything runs, and written beside
# those that there are: the next manifest names the new ones.


def in_form(step: Step, done: Manifest, files: StateFiles, form: str) -> Mapping[int, Place]:
    """Where the state of a step is, once its windows have the form asked for."""
    places = done.state[step.name]
    if not isinstance(step.op, Windows) or not places:
        return places
    from penstock.stages.patterns.forms import form_of, reformed

    one = next(iter(places))
    (piece,) = files.read({one: places[one]}, step.name).values()
    if form_of(piece, step.name) == form:
        return places
    site = Site(step.name, step.where, Accounts(), WallClock())
    pieces = reformed(files.read(places, step.name), form, step.op, step.up, site)
    return files.write(done.rounds, "again", {step.name: pieces})[step.name]
