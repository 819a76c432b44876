"""Which files a path means.

A path is a file, a folder (its own files), or a glob; or a list of these, each file once. Files come by
modification time, then by name. In folders and globs, names that begin with `.` or `_` are not data:
half-written files and manifests have such names.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from functools import cache
from os import PathLike, fspath
from pathlib import Path

from penstock.errors import ConnectorError

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def list_files(paths: Paths) -> list[Path]:
    """Return the files that exist now; raise ConnectorError for a path that means none."""
    all_paths = [*paths] if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    for path in all_paths:
        if not isinstance(path, str | PathLike):
            raise ConnectorError(
                f"{paths!r:.80} is not a path", hint='name a file, a folder or a glob: "events/*.parquet"'
            )
    if not all_paths:
        raise ConnectorError("the list of paths is empty", hint='name at least one: ["events/"]')
    resolve = cache(Path.resolve)  # Why: many files are in the same folder
    try:
        unique = {
            file.resolve() if file.is_symlink() else resolve(file.parent) / file.name: file
            for path in all_paths
            for file in _files(fspath(path))
        }
        return sorted(unique.values(), key=lambda file: (file.stat().st_mtime_ns, str(file)))
    except OSError as problem:
        raise ConnectorError(
            f'"{problem.filename}" vanished while it was listed',
            hint="let writers rename finished files into the folder",
        ) from problem


def format_paths(paths: Paths) -> str:
    """Return the path as the user wrote it."""
    return fspath(paths) if isinstance(paths, str | PathLike) else ", ".join(fspath(path) for path in paths)


def _files(text: str) -> list[Path]:
    path = Path(text)
    try:
        if path.is_file():
            return [path]
        is_folder = path.is_dir()
    except OSError as problem:
        raise ConnectorError(
            f'"{text:.80}" cannot be looked at: {problem.strerror}', hint="check its name and its permissions"
        ) from problem
    if is_folder:
        try:
            with os.scandir(path) as listed:
                entries = [entry for entry in listed if not entry.name.startswith((".", "_"))]
        except OSError as problem:
            raise ConnectorError(
                f'"{path}" cannot be listed: {problem.strerror}', hint="check its permissions"
            ) from problem
        if folder := next((entry.name for entry in entries if entry.is_dir()), None):
            raise ConnectorError(  # skipping it would lose rows silently
                f'"{path}" holds the folder "{folder}", and a folder is read without its subfolders',
                hint=f'say which files are meant: "{path}/*" or "{path}/**"',
            )
        return [path / entry.name for entry in entries]
    if glob.has_magic(text):
        matches = [Path(match) for match in glob.glob(text, recursive=True)]  # noqa: PTH207  # absolute patterns
        files = [match for match in matches if match.is_file() and not _is_hidden(match, path.parts)]
        if files:
            return files
        raise ConnectorError(
            f'no file matches "{text}"', hint="a glob takes files, not folders: events/*.parquet"
        )
    raise ConnectorError(f'"{text}" does not exist', hint=_list_neighbours(path))


def _is_hidden(path: Path, pattern: Sequence[str] | None = None) -> bool:
    """Return whether a file is hidden, or of a pattern's match anything that the pattern does not name."""
    names = [path.name] if pattern is None else [name for name in path.parts if name not in pattern]
    return any(name.startswith((".", "_")) for name in names)


def _list_neighbours(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if not _is_hidden(entry))[:8]
    except OSError:
        return f'create it, or check the path from "{Path.cwd().name}/", the working folder'
    return f"{path.parent}/ holds {', '.join(names)}" if names else f"{path.parent}/ is empty"
