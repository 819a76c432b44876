"""The suite's own rules: gaps are strict and have reasons, and misspelt engines are errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.engines import NAMES, choose_engines, find_engines, never, not_yet, upstream

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mark", [not_yet, upstream, never])
def test_a_gap_names_engines_that_exist_in_name(mark: type) -> None:
    with pytest.raises(pytest.UsageError, match="there is no engine sprak; the engines are reference"):
        mark("sprak", reason="misspelt")


@pytest.mark.parametrize("mark", [not_yet, upstream, never])
def test_a_gap_has_an_engine_and_a_reason(mark: type) -> None:
    with pytest.raises(pytest.UsageError, match="names its engines and its reason"):
        mark("spark", reason=" ")
    with pytest.raises(pytest.UsageError, match="names its engines and its reason"):
        mark(reason="for whom?")


def test_all_engines_that_are_built_run_unless_some_are_asked_for() -> None:
    assert choose_engines(None) == find_engines()
    assert choose_engines("reference") == ("reference",)
    assert set(find_engines()) <= set(NAMES)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="there is no engine flink"):
        choose_engines("reference,flink")


CASES = """
import penstock as ps
from tests.conformance.engines import never, not_yet, upstream

@not_yet("reference", reason="to be built")
def test_refused(engine):
    raise ps.NotSupported("not yet")

@upstream("reference", reason="lacking")
def test_closed(engine):
    pass

@never("reference", reason="odd")
def test_wrong(engine):
    assert engine == "a wrong answer is not a refusal"

@never("spark", reason="elsewhere")
def test_elsewhere(engine):
    assert engine == "reference"
"""


@pytest.mark.slow
def test_a_marked_case_must_be_refused_by_that_engine_and_only_there(tmp_path: Path) -> None:
    (tmp_path / "test_gaps.py").write_text(CASES, encoding="utf-8")
    options = [
        "-p",
        "tests.conformance.engines",
        "-p",
        "no:cacheprovider",
        "--engines=reference",
        "-rA",
        "-q",
    ]
    output = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    lines = [line for line in output.splitlines() if "::test_" in line]
    assert any(line.startswith("XFAIL") and "test_refused" in line for line in lines), output
    assert any(line.startswith("FAILED") and "test_closed" in line for line in lines), output
    assert any(line.startswith("FAILED") and "test_wrong" in line for line in lines), output
    assert any(line.startswith("PASSED") and "test_elsewhere" in line for line in lines), output
