"""Whether a checkpoint, its journals and the outputs of its run are whole: what a restart checks, and more.

Nothing is written, and no program is needed. A folder that a run is using may look damaged in between.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from penstock.connect.protocol import OutputRecord
from penstock.connect.writers.staged_files import unseal
from penstock.engines.checkpoint.checkpoint import read_graph
from penstock.engines.checkpoint.graph import FORMAT, present_names
from penstock.engines.checkpoint.journal import Journal, journal_path, list_journals, open_journal
from penstock.engines.checkpoint.manifest import (
    Manifest,
    check_planned,
    is_old_run,
    read_manifest,
    read_planned,
)
from penstock.engines.checkpoint.output_links import SinkLink
from penstock.engines.checkpoint.round_records import FILE, RoundRecords, refuse_ends_file
from penstock.engines.checkpoint.sealed_files import RESTORE
from penstock.engines.checkpoint.state_files import StateFiles
from penstock.errors import PenstockError, describe_cause
from penstock.frozen import Frozen

T = TypeVar("T")


class Damage(Frozen):
    """Something that is not as a run has left it.

    file    the file or folder
    problem what is wrong with it
    remedy  what to do, so that nothing is lost
    """

    file: str
    problem: str
    remedy: str


def verify_checkpoint(folder: str | os.PathLike[str]) -> list[Damage]:
    """Return what is damaged, missing, older than the rest, or of another run; nothing if all is whole."""
    return _Verification(Path(folder).absolute()).run()


class _Verification:
    """One walk through a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._damages: list[Damage] = []
        self._journals: dict[str, Journal] = {}
        self._records: RoundRecords | None = None

    def run(self) -> list[Damage]:
        """Check everything."""
        graph = self._try(self._folder / "penstock.json", read_graph, self._folder)
        if graph is None:
            if not self._damages:
                self._note(self._folder / "penstock.json", "there is no checkpoint here", "name its folder")
            return self._damages
        if graph.get("format") not in (FORMAT - 1, FORMAT):
            problem = (
                f"it has format {graph.get('format')}, and this Penstock reads {FORMAT - 1} and {FORMAT}"
            )
            self._note(self._folder / "penstock.json", problem, "use the Penstock that wrote it")
            return self._damages
        newest = self._check_manifests(graph)
        self._check_journals(graph, newest)
        self._try(self._folder / "ends.json", refuse_ends_file, self._folder)
        path = self._folder / FILE
        self._records = self._try(path, RoundRecords, path, graph["run"], known=newest.records)
        links = self._check_outputs(graph, newest)
        if graph.get("engine") == "spark":
            path = self._folder / "planned_rounds.json"
            planned = self._try(path, read_planned, path, graph["run"], newest, "spark")
            if planned is not None:
                self._try(path, check_planned, path, planned, newest, links)
        return self._damages

    def _check_manifests(self, graph: dict[str, Any]) -> Manifest:
        """Check manifests and the state that they refer to; return the newest."""
        newest, run = Manifest(), graph["run"]
        runs = (run, "") if is_old_run(run) else (run,)
        for path in sorted((self._folder / "commits").glob("*.json")):
            newest = self._try(path, read_manifest, path, *runs) or newest
        files = StateFiles(str(self._folder / "state"), durable=True)
        for step, handles in newest.state.items():
            for bucket, handle in handles.items():
                known = len(self._damages)
                self._try(self._folder / "state" / handle.file, files.read, {bucket: handle}, step)
                if len(self._damages) > known:
                    break  # the other buckets of the step are in the same files
        return newest.rename(present_names(graph))

    def _check_journals(self, graph: dict[str, Any], newest: Manifest) -> None:
        first_names = {now: first for first, now in reversed(present_names(graph).items())}
        for source in dict.fromkeys([*newest.journals, *list_journals(self._folder, graph)]):
            path = journal_path(self._folder, first_names.get(source, source))
            journal = self._try(path, open_journal, self._folder, graph, newest, source)
            if journal is not None:
                self._journals[source] = journal

    def _check_outputs(self, graph: dict[str, Any], newest: Manifest) -> dict[str, SinkLink]:
        links = {}
        for sink, place in graph.get("outputs", {}).items():
            path = Path(os.path.normpath(self._folder / place))
            if not path.exists():
                remedy = "if it was moved, name its new place in the program; else bring it back"
                self._note(path, f'the output of sink "{sink}" is not there', remedy)
                continue
            link = links[sink] = SinkLink(
                sink,
                self._folder,
                graph["run"],
                known=True,
                is_old=is_old_run(graph["run"]),
                committed=newest.outputs.get(sink),
                rounds=newest.rounds if newest.run or is_old_run(graph["run"]) else None,
                journals=self._journals,
                records=self._records,
                read_head=dict,
            )
            self._try(path, _check_output, path, link)
        return links

    def _try(self, path: Path, check: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Return what a check returns; None, and a note of it, if it raises."""
        try:
            return check(*args, **kwargs)
        except PenstockError as problem:
            detail = "" if problem.detail is None else f": {problem.detail}"
            self._note(path, f"{problem.fact}{detail}", problem.hint or RESTORE)
        except (OSError, ValueError, TypeError, KeyError) as problem:
            self._note(path, f"it cannot be read: {describe_cause(problem)}", RESTORE)
        return None

    def _note(self, path: Path, problem: str, remedy: str) -> None:
        self._damages.append(Damage(str(path), problem, remedy))


def _check_output(path: Path, link: SinkLink) -> None:
    fields, _ = unseal(path.read_text("utf-8"))
    if "app_id" in fields:  # a Delta table knows by itself how far it is
        link.committed = None
    link.check(path, OutputRecord(fields["run"], fields.get("committed"), fields.get("head", {})))
