"""The commit of a result is that of the code that ran."""

from __future__ import annotations

from pathlib import Path

from bench.machine import commit_of


def test_the_commit_is_that_of_the_code_and_of_nothing_else(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    commit = commit_of(Path(__file__).parent)
    assert commit is None or len(commit.id) == 40
