"""Which files a path means, in the order they are read: by modification time, then by name.

A path is a file, a folder (its own files), or a glob; or a list of these, each file once. In folders and
globs, names that begin with `.` or `_` are not data: half-written files and manifests are called so.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from os import PathLike, fspath
from pathlib import Path

from penstock.errors import ConnectorError

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


def listed(paths: Paths) -> list[Path]:
    """The files that exist now; ConnectorError for a path that means none."""
    each = [paths] if isinstance(paths, str | PathLike) or not isinstance(paths, Iterable) else list(paths)
    for path in each:
        if not isinstance(path, str | PathLike):
            raise ConnectorError(
                f"{paths!r:.80} is not a path", hint='name a file, a folder or a glob: "events/*.parquet"'
            )
    if not each:
        raise ConnectorError("the list of paths is empty", hint='name at least one: ["events/"]')
    found = {file.resolve(): file for path in each for file in _files(fspath(path))}
    return sorted(found.values(), key=_read_order)


def lie_in(paths: Paths, folder: Path) -> bool:
    """Whether a path is the folder or lies in it; of a glob, what comes before its first wildcard."""
    each = [paths] if isinstance(paths, str | PathLike) else paths
    return any(_before_wildcards(fspath(path)).resolve().is_relative_to(folder.resolve()) for path in each)


def _before_wildcards(text: str) -> Path:
    path = Path(text)
    while glob.has_magic(str(path)):
        path = path.parent
    return path


def shown(paths: Paths) -> str:
    """The path as the user wrote it."""
    return fspath(paths) if isinstance(paths, str | PathLike) else ", ".join(fspath(path) for path in paths)


def _files(text: str) -> list[Path]:
    path = Path(text)
    try:
        if path.is_file():
            return [path]
        if path.is_dir():
            return _files_of_folder(path)
    except OSError as problem:
        raise ConnectorError(
            f'"{text:.80}" cannot be looked at: {problem.strerror}', hint="check its name and its permissions"
        ) from problem
    if glob.has_magic(text):
        matches = [Path(match) for match in glob.glob(text, recursive=True)]  # noqa: PTH207  # absolute patterns
        files = [match for match in matches if match.is_file() and not _hidden(match)]
        if files:
            return files
        raise ConnectorError(
            f'no file matches "{text}"', hint="a glob takes files, not folders: events/*.parquet"
        )
    raise ConnectorError(f'"{text}" does not exist', hint=_neighbours(path))


def _files_of_folder(folder: Path) -> list[Path]:
    try:
        entries = [entry for entry in folder.iterdir() if not _hidden(entry)]
    except OSError as problem:
        raise ConnectorError(
            f'"{folder}" cannot be listed: {problem.strerror}', hint="check its permissions"
        ) from problem
    for entry in entries:
        if entry.is_dir():  # skipping it would lose rows without a word
            raise ConnectorError(
                f'"{folder}" holds the folder "{entry.name}", and a folder is read without its subfolders',
                hint=f'say which files are meant: "{folder}/*" or "{folder}/**"',
            )
    return entries


def _hidden(path: Path) -> bool:
    return path.name.startswith((".", "_"))


def _read_order(file: Path) -> tuple[int, str]:
    try:
        return file.stat().st_mtime_ns, str(file)
    except OSError as problem:
        raise ConnectorError(
            f'"{file}" vanished while it was listed', hint="let writers rename finished files into the folder"
        ) from problem


def _neighbours(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in path.parent.iterdir() if not _hidden(entry))[:8]
    except OSError:
        return f'create it, or check the path from "{Path.cwd().name}/", the working folder'
    return f"{path.parent}/ holds {', '.join(names)}" if names else f"{path.parent}/ is empty"
