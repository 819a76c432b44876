"""Schemas taken from rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from penstock.connect.conversion import infer_schema
from penstock.errors import SchemaError


class Point(NamedTuple):
    x: float
    y: float


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None], pa.bool_()),
        ([1, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        (["2026-01-31T00:00:00Z"], pa.string()),
        ([b"x"], pa.binary()),
        ([date(2026, 1, 31)], pa.date32()),
        ([datetime(2026, 1, 31)], pa.timestamp("us")),
        ([datetime(2026, 1, 31, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        ([Decimal("1.50"), Decimal("100")], pa.decimal128(5, 2)),
        ([Decimal("0.001")], pa.decimal128(4, 3)),
        ([[1], [], None], pa.list_(pa.int64())),
        ([{"a": 1}, {"b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([Point(1.0, 2.0)], pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        ([np.int16(3), np.float32(1.5)], pa.float64()),
    ],
)
def test_a_column_has_the_one_type_that_its_values_share(values: list[object], expected: pa.DataType) -> None:
    assert infer_schema([{"c": value} for value in values]) == pa.schema([("c", expected)])


def test_rows_of_one_class_have_the_types_that_the_class_declares() -> None:
    assert infer_schema([Point(1, 2)]) == pa.schema([("x", pa.float64()), ("y", pa.float64())])


def test_columns_stand_in_the_order_in_which_they_first_appear() -> None:
    assert infer_schema([{"b": 1}, {"a": 1, "b": 2}]).names == ["b", "a"]


def endless() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


@pytest.mark.parametrize(
    ("rows", "fact", "detail"),
    [
        ([], "there are no rows to take a schema from", ""),
        ([{}], "{} declares no columns", ""),
        ([{"a": None}], 'column "a" holds only nulls, so its type is unknown', ""),
        ([{"a": [None]}], 'column "a[]" holds only nulls, so its type is unknown', ""),
        (
            [{"a": 1}, {"a": "x"}],
            'column "a" holds values of different types',
            "row 0: int 1; row 1: str 'x'",
        ),
        ([{"a": 1}, {"a": True}], 'column "a" holds values of different types', "row 1: bool True"),
        (
            [{"a": {"b": 1}}, {"a": {"b": "x"}}],
            'column "a.b" holds values of different types',
            "row 1: str 'x'",
        ),
        ([{"a": timedelta(1)}], 'column "a" cannot hold timedelta', ""),
        ([{"a": Decimal("NaN")}], 'column "a" cannot hold Decimal', ""),
        ([{"a": 1}, 7], "row 1 is int 7, not a row", ""),
        ([{"a": endless()}], 'column "a" holds values nested too deep, or one that holds itself', ""),
        ([{"\ud800": 1}], "'\\ud800' cannot name a column", ""),
    ],
)
def test_what_has_no_type_is_refused_naming_column_and_row(rows: list[Any], fact: str, detail: str) -> None:
    with pytest.raises(SchemaError) as caught:
        infer_schema(rows)
    assert caught.value.fact.startswith(fact)
    assert detail in (caught.value.detail or "")
    assert caught.value.hint
