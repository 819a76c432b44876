"""The support table in the docs is what the suite and its markers say."""

from __future__ import annotations

from tools.support_table import TABLE, table


def test_the_support_table_is_current() -> None:
    current = TABLE.exists() and TABLE.read_text(encoding="utf-8") == table()
    assert current, "run: python tools/support_table.py"
