"""What docs/spark-dataframes.md shows really runs, and gives what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from penstock.testing.assertions import difference
from tests.docs.blocks import ROOT, blocks
from tests.support.dataframes import S, rows

PAGE = ROOT / "docs" / "spark-dataframes.md"
FOLDERS = ("views", "counts", "checkpoint")


@pytest.mark.slow
def test_the_blocks_of_the_page_run_one_after_the_other(users: Any, tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    pq.write_table(rows(60, first=0, last=40 * S), tmp_path / "views" / "part-0.parquet")
    names: dict[str, Any] = {}
    for block in blocks(PAGE):
        text = "\n" * (block.line - 1) + block.code
        for folder in FOLDERS:  # Spark's working folder is where it was started
            text = text.replace(f'"{folder}/"', repr(str(tmp_path / folder)))
        code = compile(text, PAGE.name, "exec", dont_inherit=True)
        exec(code, names)
    window = F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end")
    before = names["before"].select("page", *window, "n", "spent")
    assert difference(names["after"].toArrow(), before.toArrow()) is None
    assert names["visits"].count() > 0
    assert {"page", "other", "price", "price_other"} <= set(names["pairs"].columns)
    assert names["pairs"].where("page >= other or abs(price - price_other) > 0.5").count() == 0
    assert names["pairs"].count() > 0
    assert names["threes"].columns == ["page", "window_start", "window_end", "window_index", "last"]
    assert users.read.parquet(str(tmp_path / "counts")).count() > 10
