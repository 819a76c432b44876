"""What docs/spark.md shows really runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.docs.blocks import ROOT, blocks
from tests.support.dataframes import S, rows

PAGE = ROOT / "docs" / "spark.md"
FOLDERS = ("views", "counts", "checkpoint")


@pytest.mark.slow
def test_the_blocks_of_the_page_run_one_after_the_other(users: Any, tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    pq.write_table(rows(60, first=0, last=40 * S), tmp_path / "views" / "part-0.parquet")
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        text = "\n" * (block.line - 1) + block.code
        for folder in FOLDERS:
            text = text.replace(f'"{folder}/"', repr(str(tmp_path / folder)))
        exec(compile(text, PAGE.name, "exec", dont_inherit=True), names)
    assert users.read.parquet(str(tmp_path / "counts")).count() > 3
    assert names["back"].count() > 0
    assert names["dear"].columns == names["frame"].columns
