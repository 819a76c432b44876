"""What doctor finds, and what it says when something is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import findings

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


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "21.0.2" 2024-01-16', 21),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "17" 2021', 17),
        ("", None),
    ],
)
def test_the_version_of_java_is_read_from_what_it_prints(output: str, version: int | None) -> None:
    assert findings.java_version(output) == version


def pretend_java(folder: Path, output: str) -> None:
    (folder / "bin").mkdir()
    script = folder / "bin" / "java"
    script.write_text(f"#!/bin/sh\necho '{output}' >&2\n")
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("output", "state", "detail"),
    [
        ('openjdk version "21.0.2"', "ok", "version 21"),
        ('java version "1.8.0_292"', "absent", "version 8: too old"),
        ("hello", "absent", "found, but it does not say its version"),
    ],
)
def test_java_is_taken_from_java_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, state: str, detail: str
) -> None:
    pretend_java(tmp_path, output)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = findings.java()
    assert (found.state, found.detail) == (state, detail)


def test_a_missing_java_is_absent_and_not_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert findings.java().detail == "JAVA_HOME holds none"
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (findings.java().state, findings.java().detail) == ("absent", "not found")


def test_the_temporary_folder_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings.temporary_folder().state == "ok"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none" / "such"))
    assert findings.temporary_folder().state == "broken"


def test_the_machine_is_told_in_cores_and_memory() -> None:
    assert " cores, " in findings.machine().detail
