"""Python code for the executors: the package itself, and the modules that a user's program imports.

To executors elsewhere the package is sent (`ship`): only its own files; what it depends on must be installed
there. Embedded Spark needs none of this: its workers are processes of this machine and environment.

Modules of the user (`SparkOptions(py_files=...)`) are sent wherever workers are, since a worker never has the
folder of the program on its path. Each becomes a zip with a digest of its contents in the name: Spark keeps
the files that it was given by name and refuses others under the same one. What has not changed is sent once;
what has changed replaces what was sent before.

Invariant: a worker process has seen one version of a module. Python does not import a module twice, so a
change also changes the environment of the workers, and Spark starts new ones for another environment.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakKeyDictionary

from penstock.engines.spark.session.java import temporary_folder
from penstock.errors import EngineError, describe_cause, nearest_first
from penstock.frozen import Frozen

PACKAGE = Path(__file__).parents[3]
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that the same files make the same zip


Files = Sequence[tuple[str, Path]]
"""(name in a zip, file)"""
_ARCHIVES = {".zip", ".egg", ".whl"}
_COMPILED = {".so", ".pyd", ".dylib"}
_EXAMPLE = 'SparkOptions(py_files=("helpers.py", "lib.zip", "package/"))'
_VERSION = "PENSTOCK_PY_FILES"  # a variable in the environment of workers that have modules of the user


class PyFile(Frozen):
    """Something of the user's that workers can import.

    path   the module, archive or package folder
    name   of the zip that Spark is given
    files  what the zip contains; None if it is a copy of the archive
    """

    path: Path
    name: str
    files: Files | None

    def write(self, folder: Path) -> Path:
        """Write the zip into a folder and return it."""
        target = folder / self.name
        if self.files is None:
            target.write_bytes(self.path.read_bytes())
            return target
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, file in self.files:
                zipped.writestr(zipfile.ZipInfo(name, _LONG_AGO), file.read_bytes(), zipfile.ZIP_DEFLATED)
        return target


def check_py_files(paths: object) -> tuple[PyFile, ...]:
    """Return the files of `SparkOptions(py_files=...)`; raise EngineError for what Python cannot import."""
    if isinstance(paths, str | os.PathLike):
        paths = (paths,)
    listed = tuple(paths) if isinstance(paths, Iterable) else (None,)
    if not all(isinstance(path, str | os.PathLike) for path in listed):
        raise EngineError(f"py_files={paths!r:.80} is not a list of paths", hint=_EXAMPLE)
    files: dict[Path, PyFile] = {}
    for path in (Path(path) for path in listed if isinstance(path, str | os.PathLike)):
        try:
            files[path.resolve()] = _check_py_file(path)
        except (OSError, zipfile.BadZipFile) as cause:
            raise EngineError(
                f'py_files names "{path}", which cannot be read',
                detail=describe_cause(cause),
                hint="give a whole file that this process may read",
            ) from cause
    return tuple(files.values())


def _check_py_file(path: Path) -> PyFile:
    """Return what is sent of a path."""
    if not path.exists():
        beside = [file.name for file in path.resolve().parent.glob("*") if _is_python(file)]
        nearest = ", ".join(nearest_first(path.name, beside)[:3])
        raise EngineError(
            f'py_files names "{path}", which does not exist',
            detail=f"the working folder is {Path.cwd()}"
            + (f"; beside it there is {nearest}" if nearest else ""),
            hint=_EXAMPLE,
        )
    if path.is_dir() and not (path / "__init__.py").is_file():
        raise EngineError(
            f'py_files names the folder "{path}", which is no package: it has no __init__.py',
            hint="name what is in it: its modules, and its folders with an __init__.py",
        )
    if not _is_python(path):
        raise EngineError(
            f'py_files names "{path}", which is no Python',
            detail="it takes .py files, .zip, .egg and .whl archives, and folders with an __init__.py",
            hint=_EXAMPLE,
        )
    real = path.resolve()
    if path.suffix in _ARCHIVES and path.is_file():
        with zipfile.ZipFile(path) as archive:
            names, files = archive.namelist(), None
    else:
        files = [(real.name, real)] if real.is_file() else _folder_files(real)
        names = [name for name, _ in files]
    compiled = [name for name in names if PurePosixPath(name).suffix in _COMPILED]
    if compiled:
        raise EngineError(
            f'py_files names "{path}", which has compiled modules',
            detail=f"Python cannot import {compiled[0]} from a zip",
            hint="install it on the executors instead",
        )
    if not any(name.endswith((".py", ".pyc")) for name in names):
        raise EngineError(f'py_files names "{path}", in which there is no Python', hint=_EXAMPLE)
    digest = hashlib.sha256()
    for name, file in [(real.name, real)] if files is None else files:
        digest.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return PyFile(real, f"{real.stem}-{digest.hexdigest()[:12]}.zip", files)


def _is_python(path: Path) -> bool:
    if path.is_dir():
        return (path / "__init__.py").is_file()
    return path.suffix == ".py" or path.suffix in _ARCHIVES


def _folder_files(package: Path) -> Files:
    """Return the files of a package folder, data too, but nothing hidden and nothing that Python wrote."""
    inside = [(file.relative_to(package), file) for file in sorted(package.rglob("*")) if file.is_file()]
    return [
        ((Path(package.name) / name).as_posix(), file)
        for name, file in inside
        if not any(part.startswith(".") or part == "__pycache__" for part in name.parts)
    ]


def ship(context: Any) -> None:
    """Send the package to the executors of a Spark context that are elsewhere, once."""
    if not context.master.startswith("local"):
        send_py_files(context, check_py_files(PACKAGE))


_SENT: WeakKeyDictionary[Any, dict[Path, str]] = WeakKeyDictionary()
"""context -> path -> the name of the zip that its workers import from."""


def send_py_files(context: Any, files: Sequence[PyFile]) -> None:
    """Send modules to all workers of a Spark context, if they have not been sent as they are now."""
    sent = _SENT.setdefault(context, {})
    fresh = [file for file in files if sent.get(file.path) != file.name]
    for file in fresh:
        if file.path in sent:
            context._python_includes.remove(sent[file.path])
        if any(PurePosixPath(known).name == file.name for known in context.listFiles):
            context._python_includes.append(file.name)  # it is as it was once before
        else:
            before = list(sys.path)
            context.addPyFile(str(file.write(temporary_folder("penstock-ship-"))))
            sys.path[:] = (
                before  # Spark puts the zip on the driver's path, where the program has all it needs
            )
        sent[file.path] = file.name
    if fresh:
        context.environment[_VERSION] = " ".join(sorted(sent.values()))
