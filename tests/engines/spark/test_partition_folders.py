"""Folders named after values, as Spark reads them."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

COLUMNS: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "text": (pa.string(), "string", ["a b/c=d%:", "grün 日本", None, "7"]),
    "flag": (pa.bool_(), "boolean", [True, False, None, True]),
    "whole": (pa.int64(), "bigint", [-(2**63), 7, None, 0]),
    "single": (pa.float32(), "float", [0.5, 16777216.0, None, -math.inf]),
    "double": (pa.float64(), "double", [0.1, 1e20, None, math.inf]),
    "day": (pa.date32(), "date", [date(2026, 1, 31), date(1969, 12, 31), None, date(2000, 2, 29)]),
    "time": (
        pa.timestamp("us"),
        "timestamp_ntz",
        [datetime(2026, 3, 8, 2, 30), datetime(1969, 12, 31, 23, 59, 59, 999999), None, datetime(2000, 1, 1)],
    ),
    "_zoned": (
        pa.timestamp("us", "UTC"),
        "timestamp",
        [
            datetime(2026, 3, 8, 7, 30, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            None,
            datetime(2000, 1, 1, tzinfo=UTC),
        ],
    ),
    "money": (
        pa.decimal128(20, 2),
        "decimal(20,2)",
        [Decimal("1.50"), Decimal("-0.01"), None, Decimal("1000.00")],
    ),
}


@pytest.mark.slow
def test_spark_puts_the_columns_back_wherever_its_session_is(in_new_york: Any, tmp_path: Path) -> None:
    arrays = {name: pa.array(values, type_) for name, (type_, _, values) in COLUMNS.items()}
    rows = pa.record_batch({"n": pa.array(range(4)), **arrays})
    out = ps.write.parquet(tmp_path, partition_by=list(COLUMNS)).open(rows.schema, "sink")
    out.write(0, rows)
    out.commit(0)
    schema = ", ".join(["n bigint", *(f"`{name}` {type_}" for name, (_, type_, _) in COLUMNS.items())])
    back = in_new_york.read.schema(schema).parquet(str(tmp_path)).sort("n").toArrow()
    out.close()
    for name in rows.schema.names:
        column = back.column(name)
        zoned = pa.types.is_timestamp(column.type) and column.type.tz
        values = (column.cast(pa.timestamp("us", "UTC")) if zoned else column).to_pylist()
        assert values == rows.column(name).to_pylist(), name


@pytest.mark.slow
def test_spark_guesses_what_it_is_not_told_and_sees_no_staged_file(users: Any, tmp_path: Path) -> None:
    rows = pa.record_batch(
        {"n": [1, 2], "day": [date(2026, 1, 31), date(2026, 2, 1)], "k": [1, 2], "s": ["x", None]}
    )
    writer = ps.write.parquet(tmp_path, partition_by=["day", "k", "s"])
    out = writer.open(rows.schema, "sink")
    out.publish(0, stage_rows(writer, "first", rows))
    stage_rows(writer, "second", rows)
    frame = users.read.parquet(str(tmp_path)).sort("n")
    assert frame.dtypes == [("n", "bigint"), ("day", "date"), ("k", "int"), ("s", "string")]
    assert [tuple(row) for row in frame.collect()] == [
        (1, date(2026, 1, 31), 1, "x"),
        (2, date(2026, 2, 1), 2, None),
    ]
    out.close()


def stage_rows(writer: Any, tag: str, rows: pa.RecordBatch) -> Any:
    stage = writer.stage(rows.schema, tag)
    stage.write(rows)
    return stage.close()
