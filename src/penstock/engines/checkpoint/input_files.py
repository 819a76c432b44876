"""The input files of a checkpoint: to leave one out that cannot be read."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from penstock.connect.protocol import SourcePosition
from penstock.connect.readers.file_identity import FileRange
from penstock.connect.readers.file_journal import JournalEntry, Mark, count_entries
from penstock.connect.writers.staged_files import lock_file
from penstock.engines.checkpoint.checkpoint import read_graph
from penstock.engines.checkpoint.journal import Journal
from penstock.engines.checkpoint.manifest import Manifest, is_old_run, read_manifest
from penstock.errors import CheckpointError


def skip_file(folder: str | Path, source: str, path: str | Path) -> None:
    """Leave an input file out for good: runs that resume from the checkpoint read no more rows of it.

    Rows that were read of it before stay. It is known by its path.

    folder  the checkpoint
    source  the name of the source step that reads the file
    """
    folder = Path(folder)
    place = folder / "files" / f"{quote(source, safe='')}.jsonl"
    graph = read_graph(folder)
    if graph is None or not place.exists():
        known = sorted(unquote(file.stem) for file in place.parent.glob("*.jsonl"))
        names = f"its sources with files are {', '.join(known)}" if known else "no source of it reads files"
        raise CheckpointError(
            f'the checkpoint knows no files of a source "{source}"',
            detail=f"{folder}: {names}",
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
        run, newest = graph["run"], Manifest()
        for manifest in sorted((folder / "commits").glob("*.json"))[-1:]:
            newest = read_manifest(manifest, run, *([""] if is_old_run(run) else []))
        journal = Journal(
            place,
            source,
            run,
            done=count_entries(newest.positions.get(source, SourcePosition())),
            known=newest.journals.get(source),
            is_old=is_old_run(run),
        )
        left_out = FileRange(str(Path(path).absolute()), 0, 0)
        journal.append(JournalEntry(0, (left_out,), Mark.SKIPPED))
