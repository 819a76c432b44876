"""Files of a checkpoint, refused by name if they are not what was written.

Most are written whole or not at all, with a checksum. A `ChainedLog` grows:

    {"check": "…", "body": {"run": …, "lines": 40, "head": "…", …}}
    {"check": "…", "body": …}

Its first line is what a run has kept of what earlier runs appended. Each further line is chained to the one
before it by its checksum, and the chain goes on over the runs of a checkpoint. Manifests, and the outputs of
sinks, record how many lines there were, and the checksum of the last: a log that is older than what was done
by it, or of which a line is missing, is refused. A last line that a crash cut short belongs to something that
was never done, unless one of them knows it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.connect.writers.staged_files import replace_file, seal, unseal
from penstock.crash_points import pass_crash_point
from penstock.errors import CheckpointError, describe_cause

START_ANEW = (
    "start anew with an empty checkpoint folder and an empty output folder, which reads all input again"
)
RESTORE = f"bring it back from a backup; or {START_ANEW}"


def write_sealed(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a file with its checksum, completely or not at all."""
    try:
        replace_file(path, seal(contents), pass_crash_point)
    except OSError as cause:
        raise write_error(path, cause) from cause


def read_sealed(path: Path) -> dict[str, Any]:
    """Return what a file holds; raise CheckpointError if it is damaged."""
    try:
        contents, _ = unseal(path.read_text("utf-8"))
        if not isinstance(contents, dict):
            raise TypeError(f"it holds a {type(contents).__name__}")
    except (OSError, ValueError, TypeError) as cause:
        raise damage_error(path, "cannot be read", describe_cause(cause)) from cause
    return contents


def damage_error(path: Path, why: str, detail: str, hint: str = RESTORE) -> CheckpointError:
    """Return the error for a file that is missing, damaged, older than others, or of another run."""
    return CheckpointError(
        f"the checkpoint is damaged: {path.name} {why}", detail=f"{path}: {detail}", hint=hint
    )


def write_error(path: Path, cause: OSError) -> CheckpointError:
    """Return the error for a file that cannot be written."""
    return CheckpointError(
        f"the checkpoint cannot be written: {describe_cause(cause)}",
        detail=str(path),
        hint="make room, or see that it can be written, and start again; what was saved is still there",
    )


class ChainedLog(ABC):
    """A log as it was read, to which lines are appended.

    head  the number of lines that were ever appended, and the checksum of the last

    Invariant: whoever appends or rewrites holds a lock of the subclass.
    """

    def __init__(self, path: Path, **identity: str) -> None:
        """Begin without lines; `identity` is what all first lines of this log say."""
        self.path, self._identity = path, identity
        self.head: tuple[int, str] = (0, "")
        self._heads: dict[int, str] = {}
        self._is_written = False  # the file holds exactly what was read, under the name of this run

    @abstractmethod
    def _snapshot(self) -> Mapping[str, Any]:
        """Return what the first line keeps, beside the identity and the head."""

    @abstractmethod
    def _take_snapshot(self, saved: Mapping[str, Any]) -> None:
        """Take in a first line; may raise ValueError, KeyError, TypeError or CheckpointError."""

    @abstractmethod
    def _take_line(self, body: Any) -> None:
        """Take in a further line; may raise ValueError, KeyError or TypeError."""

    @abstractmethod
    def keep(self) -> None:
        """Rewrite what was read as the first line of this run, once it is sure that the run may go on."""

    def _read_file(self) -> list[str]:
        try:
            return self.path.read_text("utf-8", errors="replace").splitlines(keepends=True)
        except OSError as cause:
            raise damage_error(self.path, "cannot be read", describe_cause(cause)) from cause

    def _read_chain(self, lines: Sequence[str]) -> None:
        """Take in all lines; raise CheckpointError if one is damaged, missing, or of another run."""
        try:
            saved, _ = unseal(lines[0] if lines else "")
            self.head = int(saved["lines"]), str(saved["head"])
            identity = {name: str(saved[name]) for name in self._identity}
            if identity == self._identity:
                self._take_snapshot(saved)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            raise damage_error(self.path, "cannot be read", f"line 1: {describe_cause(cause)}") from cause
        if identity != self._identity:
            owner, this = (_describe_identity(one) for one in (identity, self._identity))
            raise damage_error(
                self.path, "belongs to another run or source", f"it is of {owner}; this is {this}"
            )
        self._heads[self.head[0]] = self.head[1]
        for number, line in enumerate(lines[1:], 1):
            n_lines, before = self.head
            try:
                body, check = unseal(line, before)
                self._take_line(body)
            except (ValueError, KeyError, TypeError, AttributeError) as cause:
                if number == len(lines) - 1 and not line.endswith("\n"):
                    return
                why = f"line {number + 1}, or the one before it: {describe_cause(cause)}"
                raise damage_error(self.path, "cannot be read", why) from cause
            self.head = n_lines + 1, check
            self._heads[n_lines + 1] = check

    def require(self, head: Sequence[Any], owner: str) -> None:
        """Raise CheckpointError unless the log has the lines that somebody recorded."""
        n_lines, check = int(head[0]), str(head[1])
        if n_lines > self.head[0]:
            detail = f"{n_lines:,} lines had been written, as {owner} says, and there are {self.head[0]:,}"
            raise damage_error(self.path, "is older than what was done by it, or cut", detail)
        if self._heads.get(n_lines, check) != check:
            raise damage_error(self.path, "has other lines than it had", f"line {n_lines:,}, as {owner} says")

    def _append_lines(self, bodies: Sequence[object]) -> None:
        """Write lines; once this returns, they survive a crash."""
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

    def _rewrite(self) -> None:
        """Write the first line of this run, unless that is done."""
        if self._is_written:
            return
        n_lines, head = self.head
        body = {**self._identity, "lines": n_lines, "head": head, **self._snapshot()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, seal(body) + "\n")
        except OSError as cause:
            raise write_error(self.path, cause) from cause
        self._is_written = True


def _describe_identity(identity: Mapping[str, str]) -> str:
    source = f'source "{identity["source"]}" of ' if "source" in identity else ""
    return f"{source}the checkpoint {identity['run']}"
