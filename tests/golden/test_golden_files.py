"""The golden fixture itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import check_golden


def test_a_missing_golden_file_fails_and_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"no golden file new\.txt yet: run `make golden`"):
        check_golden(tmp_path / "new.txt", "text", update=False)


def test_updating_writes_the_file_which_then_compares_equal(tmp_path: Path) -> None:
    check_golden(tmp_path / "deep" / "new.txt", "text", update=True)
    check_golden(tmp_path / "deep" / "new.txt", "text\n", update=False)


def test_a_changed_text_fails_and_names_the_command(tmp_path: Path) -> None:
    check_golden(tmp_path / "new.txt", "before", update=True)
    with pytest.raises(AssertionError, match=r"new\.txt has changed; if meant, run `make golden`"):
        check_golden(tmp_path / "new.txt", "after", update=False)
