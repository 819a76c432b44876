"""Whose output a folder holds: a small file beside the data, and a lock while a run writes.

The manifest is replaced as a whole, so it is either the old one or the new one. The lock belongs to the open
file, so it ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, replace
from pathlib import Path

from penstock.errors import ConnectorError
from penstock.frozen import dataclass

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """The output of one sink; `committed` is the number of the last batch that has a file."""

    format: str
    sink: str
    columns: str
    committed: int | None = None
    version: int = _VERSION

    @classmethod
    def load(cls, folder: Path) -> Manifest | None:
        """The folder's manifest, or None when it has none."""
        file = _home(folder) / "manifest.json"
        if not file.exists():
            return None
        try:
            loaded = cls(**json.loads(file.read_bytes()))
        except (ValueError, TypeError) as problem:
            raise _damaged(file, str(problem)) from problem
        if loaded.version != _VERSION:
            raise _damaged(file, f"its version is {loaded.version}, and this build knows {_VERSION}")
        return loaded

    def save(self, folder: Path) -> None:
        """Replace the folder's manifest."""
        home = _home(folder)
        home.mkdir(exist_ok=True)
        fresh = home / ".manifest.json.tmp"
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(home / "manifest.json")
        sync_folder(home)

    def with_committed(self, batch: int) -> Manifest:
        """The same with one more batch done."""
        return replace(self, committed=batch)

    def same_output(self, other: Manifest) -> bool:
        """Whether the other goes on with this output."""
        return replace(self, committed=None) == replace(other, committed=None)

    def difference(self, other: Manifest) -> str:
        """How this output is not the other's, in words that follow the folder's name."""
        if self.sink != other.sink:
            return f'holds the output of sink "{self.sink}", not "{other.sink}"'
        return f"holds {self.format} files with the columns {self.columns}"


class FolderLock:
    """Held by the one output that may write into a folder."""

    def __init__(self, folder: Path) -> None:
        _home(folder).mkdir(exist_ok=True)
        self._file = (_home(folder) / "lock").open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            self._file.close()
            raise ConnectorError(
                f'"{folder}" is being written by another sink or run',
                hint="give each sink a folder of its own",
            ) from problem

    def release(self) -> None:
        """Let another output write."""
        self._file.close()


def sync_folder(folder: Path) -> None:
    """Make renames in the folder last through a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _home(folder: Path) -> Path:
    return folder / "_penstock"


def _damaged(file: Path, why: str) -> ConnectorError:
    return ConnectorError(f'"{file}" is damaged: {why}', hint="write to another folder, or empty this one")
