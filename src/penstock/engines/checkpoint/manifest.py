"""Manifests: how far a run has come, and what is refused as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from penstock.connect.protocol import SourcePosition
from penstock.engines.checkpoint.graph import present_names
from penstock.engines.checkpoint.output_links import SinkLink
from penstock.engines.checkpoint.sealed_files import damage_error, read_sealed
from penstock.engines.checkpoint.state_files import StateHandle, StateHandles
from penstock.errors import describe_cause
from penstock.frozen import Frozen

_BY_STEP = (
    "positions",
    "source_watermarks",
    "step_watermarks",
    "accounts",
    "state",
    "early_fired_at",
    "outputs",
    "journals",
    "streams",
)
"""What a manifest says by the name of a step."""
OLD = "format-3-"
"""How the identity of a checkpoint begins that was begun in that format, whose files had none."""


class Manifest(Frozen):
    """How far a run has come.

    rounds             number of rounds of source batches that are done
    positions          source -> batches and rows read, and the reader's own position behind them
    source_watermarks  source -> its watermark, in microseconds
    step_watermarks    step -> the watermark of its input
    accounts           step -> what became of its rows
    state              step -> bucket -> where its piece of state is
    early_fired_at     step -> clock time of the last early firing of its open windows
    drained            all windows have been closed: there is nothing to resume
    run                the identity of the checkpoint
    engine             which engine wrote it
    outputs            sink -> the last round that its output had committed
    journals           source -> how many lines its journal had, and the checksum of the last
    records            the same of the records of rounds in process; () if there are none
    streams            stream of Spark's -> the checksum of what Spark's log says of its last batch
    """

    def rename(self, names: Mapping[str, str]) -> Manifest:
        """Return the manifest with other names of steps: name -> name now."""
        by_step: Any = {
            topic: {names.get(step, step): of for step, of in getattr(self, topic).items()}
            for topic in _BY_STEP
        }
        return replace(self, **by_step) if names else self

    rounds: int = 0
    positions: Mapping[str, SourcePosition] = field(default_factory=dict)
    source_watermarks: Mapping[str, float] = field(default_factory=dict)
    step_watermarks: Mapping[str, float] = field(default_factory=dict)
    accounts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    state: StateHandles = field(default_factory=dict)
    early_fired_at: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    run: str = ""
    engine: str = ""
    outputs: Mapping[str, int | None] = field(default_factory=dict)
    journals: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    records: Sequence[Any] = ()
    streams: Mapping[str, str] = field(default_factory=dict)


def is_old_run(run: str) -> bool:
    """Return whether a checkpoint was begun in format 3, whose files had no identity."""
    return run.startswith(OLD)


def read_planned(path: Path, run: str, newest: Manifest, engine: str) -> dict[int, dict[str, Any]]:
    """Return the saved contents of rounds; raise CheckpointError if they are of another run, or too old."""
    rounds = {}
    if path.exists():
        contents = read_sealed(path)
        is_old = is_old_run(run) and "run" not in contents
        if not is_old and contents.get("run") != run:
            raise damage_error(path, "belongs to another run", f"this is {run}")
        try:
            saved = contents if is_old else contents["rounds"]
            rounds = {int(number): record for number, record in saved.items()}
        except (KeyError, ValueError, AttributeError) as cause:
            raise damage_error(path, "cannot be read", describe_cause(cause)) from cause
    if (
        newest.engine == engine == "spark"
        and not newest.drained
        and max(rounds, default=-1) < newest.rounds - 1
    ):
        why = "is older than the newest manifest" if path.exists() else "is gone"
        raise damage_error(
            path, why, f"it says what round {newest.rounds - 1:,} and those after it are made of"
        )
    return rounds


def check_planned(
    path: Path, rounds: Mapping[int, object], newest: Manifest, links: Mapping[str, SinkLink]
) -> None:
    """Raise CheckpointError if an output has a round, after the newest manifest, that is not among these."""
    for sink, link in links.items():
        last = -1 if link.committed is None else link.committed
        if last >= newest.rounds and last not in rounds:
            raise damage_error(
                path,
                "is older than the output, or gone",
                f'sink "{sink}" has round {last:,}, the newest manifest ends before round '
                f"{newest.rounds:,}, and only that file said what is in the rounds between",
            )


def manifest_name(manifest: Manifest) -> str:
    """Return the name of the file of a manifest."""
    return f"{manifest.rounds:010d}{'-end' * manifest.drained}.json"


def read_newest(folder: Path, graph: Mapping[str, Any]) -> Manifest:
    """Return the newest manifest of a checkpoint, by the present names of steps; an empty one if it has none.

    graph  as it is saved
    """
    newest, run = Manifest(), graph["run"]
    for path in sorted((folder / "commits").glob("*.json"))[-1:]:
        newest = read_manifest(path, run, *([""] if is_old_run(run) else []))
    # Why: it may be older than the last renaming.
    return newest.rename(present_names(graph))


def read_manifest(path: Path, *runs: str | None) -> Manifest:
    """Return a manifest; raise CheckpointError if it is damaged, or not of one of the runs."""
    fields = read_sealed(path)
    try:
        state = {
            step: {int(bucket): StateHandle.of(handle) for bucket, handle in handles.items()}
            for step, handles in fields["state"].items()
        }
        positions = {source: SourcePosition(*saved) for source, saved in fields["positions"].items()}
        manifest = Manifest(**{**fields, "state": state, "positions": positions})
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise damage_error(path, "cannot be read", describe_cause(cause)) from cause
    if manifest_name(manifest) != path.name:
        raise damage_error(path, "holds another manifest", f"that of round {manifest.rounds:,}")
    if manifest.run not in runs:
        raise damage_error(path, "belongs to another run", f"the checkpoint with identity {manifest.run}")
    return manifest
