"""Which files a path means.

A path is a file, a folder (its own files), or a glob; or a list of these, each file once. Files come by
modification time, then by name. In folders and globs, names that begin with `.` or `_` are not data:
half-written files and manifests have such names.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from errno import ELOOP, ENOENT, ENOTDIR
from functools import cache
from os import PathLike, fspath
from pathlib import Path

from penstock.errors import ConnectorError

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


_GONE = (ENOENT, ENOTDIR, ELOOP)
"""What the file system says of a path where nothing is; the last, of a link that leads to itself."""


def list_files(paths: Paths) -> list[Path]:
    """Return the files that exist now; raise ConnectorError for a path that means none.

    What is in a folder, or matches a glob, and is gone by the time that it is looked at, is not there; nor is
    a link to nothing. A file that is named must be there.
    """
    all_paths = [*paths] if isinstance(paths, Iterable) and not isinstance(paths, str) else [paths]
    for path in all_paths:
        if not isinstance(path, str | PathLike):
            raise ConnectorError(
                f"{paths!r:.80} is not a path", hint='name a file, a folder or a glob: "events/*.parquet"'
            )
    if not all_paths:
        raise ConnectorError("the list of paths is empty", hint='name at least one: ["events/"]')
    resolve = cache(Path.resolve)  # Why: many files are in the same folder
    unique: dict[Path, tuple[int, str, Path]] = {}
    for text in [fspath(path) for path in all_paths]:
        for file in _files(text):
            try:
                modified_ns = os.stat(file).st_mtime_ns  # noqa: PTH116  # asked often
                place = file.resolve() if file.is_symlink() else resolve(file.parent) / file.name
            except OSError as problem:
                if problem.errno not in _GONE:
                    raise _blocked_error(str(file), problem) from problem
                # Files that are done may be removed at any time, and a link to nothing holds no rows.
                if file == Path(text):
                    raise _missing_error(text) from problem
                continue
            unique[place] = modified_ns, str(file), file
    return [file for *_, file in sorted(unique.values())]


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
        raise _blocked_error(text, problem) from problem
    if is_folder:
        try:
            with os.scandir(path) as listed:
                entries = [entry for entry in listed if not entry.name.startswith((".", "_"))]
            # Why a path of a link: `DirEntry.is_dir` raises for one that leads to itself.
            folder = next(
                (one.name for one in entries if (Path(one) if one.is_symlink() else one).is_dir()), None
            )
        except OSError as problem:
            raise ConnectorError(
                f'"{path}" cannot be listed: {problem.strerror}', hint="check its permissions"
            ) from problem
        if folder is not None:
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
    raise _missing_error(text)


def _missing_error(text: str) -> ConnectorError:
    """Return the error for a file that is named and is not there."""
    path = Path(text)
    if path.is_symlink():
        return ConnectorError(
            f'"{text}" is a link to nothing',
            detail=f'it leads to "{path.readlink()}"',
            hint="bring back what it leads to, or name another file",
        )
    return ConnectorError(f'"{text}" does not exist', hint=_list_neighbours(path))


def _blocked_error(text: str, problem: OSError) -> ConnectorError:
    """Return the error for a path of which the file system does not say whether it is there."""
    return ConnectorError(
        f'"{text:.300}" cannot be looked at: {problem.strerror}', hint="check its name and its permissions"
    )


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
