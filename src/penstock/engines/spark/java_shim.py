"""A JAVA_HOME for a JRE that lacks the module `jdk.incubator.vector`.

Spark's launcher always asks for that module, and a JRE without it refuses to start. The shim is a folder
whose `bin/java` drops the one argument and starts the real one. It lives in the user's cache folder, where
only the user may write, because what lies there is executed. Several processes may make it at once.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

_SCRIPT = """#!/bin/sh
# Starts a JRE without the module that Spark's launcher asks for and this JRE does not have.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def shim_home(home: Path, environment: Mapping[str, str]) -> Path:
    """A folder to name as JAVA_HOME in the place of `home`; made if it is not there."""
    script = _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    shim = _cache_folder(environment) / f"java-{digest}"
    java = shim / "bin" / "java"
    if not _is_as_written(java, script):
        java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put(java, script)
    return shim


def _put(java: Path, script: str) -> None:
    """Write beside and rename: another process sees the whole script or none."""
    handle, beside = tempfile.mkstemp(dir=java.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(script)
    Path(beside).chmod(0o700)
    Path(beside).replace(java)


def _is_as_written(java: Path, script: str) -> bool:
    try:
        return os.access(java, os.X_OK) and java.read_text(encoding="utf-8") == script
    except (OSError, UnicodeDecodeError):
        return False


def _cache_folder(environment: Mapping[str, str]) -> Path:
    """The user's cache folder, or a new folder for this process where that cannot be used."""
    base = environment.get("XDG_CACHE_HOME") or environment.get("HOME")
    if base:
        folder = Path(base) / ("penstock" if environment.get("XDG_CACHE_HOME") else ".cache/penstock")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_only_ours(folder):
                return folder
        except OSError:
            pass
    passing = Path(tempfile.mkdtemp(prefix="penstock-java-"))  # mkdtemp gives it to us alone
    atexit.register(shutil.rmtree, passing, ignore_errors=True)
    return passing


def _is_only_ours(folder: Path) -> bool:
    """Whether nobody else could have put, or could put, a program there."""
    about = folder.stat()
    return (
        about.st_uid == os.getuid()
        and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        and os.access(folder, os.W_OK | os.X_OK)
    )
