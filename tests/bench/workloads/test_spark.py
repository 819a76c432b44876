"""The workload on Spark: its oracles by hand, the same claims at both sizes. Spark itself is not started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench import load_workload
from bench.workloads.spark import etl
from bench.workloads.spark.rows import Rows, Shape, check_answer

ROWS = Rows(
    Shape(1, 3, n_keys=100, size=1, every=1),
    None,
    np.array([1, 2, 3]),
    np.array([7, 12, 25]),
    np.array([499.5, 500.0, 1.25]),
)


def test_totals_without_windows_are_those_of_the_rows_that_are_kept() -> None:
    assert etl.compute_etl(ROWS) == (2, 500.75, 1001.5, 12)
    assert etl.compute_scores(ROWS) == (2, 500.75, 1033.5, 12)


def test_output_is_added_up_over_all_visible_files(tmp_path: Path) -> None:
    table = pa.table({"value": [499.5, 1.25], "double": [999.0, 2.5], "bucket": [7, 5]})
    for name in ("part-0-0.parquet", "part-0-1.parquet", ".part-0-2.parquet"):
        pq.write_table(table, tmp_path / name)
    run = etl.EtlRun(tmp_path, "double")
    assert check_answer((4, 1001.5, 2003.0, 24), run) is None
    assert check_answer(etl.compute_etl(ROWS), run) == (
        "expected (2, 500.75, 1001.5, 12), got (4, 1001.5, 2003.0, 24)"
    )


def test_a_batch_function_adds_a_score() -> None:
    batch = pa.record_batch({"double": [999.0, 2.5], "key": [7, 25]})
    assert etl.add_score(batch).column("score").to_pylist() == [1006.0, 27.5]


@pytest.mark.parametrize("size", ["quick", "full"])
def test_both_sizes_claim_the_same(size: Any) -> None:
    says = [claim.says for claim in load_workload("spark", size).claims]
    assert len(says) == len(set(says))
    assert says == [claim.says for claim in load_workload("spark", "quick").claims]


def test_the_group_without_windows_can_be_measured_alone() -> None:
    alone = load_workload("spark", "quick").select_groups(["etl"])
    assert [len(alone.cases), len(alone.ways), len(alone.claims)] == [3, 6, 3]
