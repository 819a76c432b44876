"""Type rules and the errors of those who break them; where the rules of a lowering lie."""

from __future__ import annotations

import importlib
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import NotSupported, SchemaError
from penstock.expr import (
    Expr,
    coalesce,
    col,
    concat,
    from_epoch,
    hash,
    lit,
    lower_arrow,
    lower_python,
    type_of,
    when,
)
from penstock.expr.arrow.lower import RULES as ARROW_RULES
from penstock.expr.node import Node
from penstock.expr.python.lower import RULES as PYTHON_RULES
from tests.support.expressions import SCHEMA

I8, I32, I64, F32, F64 = col("i8"), col("i32"), col("i64"), col("f32"), col("f64")


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (I8 + I32, pa.int32()),
        (I8 + 1, pa.int8()),
        (I8 + 1000, pa.int64()),
        (1000 - I8, pa.int64()),
        (I8 + 1.5, pa.float64()),
        (I32 + F32, pa.float64()),
        (F32 + F32, pa.float32()),
        (F32 + 0.1, pa.float32()),
        (F32 * 2, pa.float32()),
        (F32 * (2**24 + 1), pa.float64()),
        (F32 + 1e300, pa.float64()),
        (F32 + F64, pa.float64()),
        (lit(1) + 2.5, pa.float64()),
        (lit(1, "int8") + I32, pa.int32()),
        (I8 / I8, pa.float64()),
        (I8 // I8, pa.int8()),
        (F32 // F32, pa.float64()),
        (F32 % 2, pa.float64()),
        (I8**2, pa.float64()),
        (-F32, pa.float32()),
        (I8.round(2), pa.int8()),
        (F32.round(2), pa.float64()),
        (F32.floor(), pa.float32()),
        (I8.sqrt(), pa.float64()),
        (I8 == 1000, pa.bool_()),
        (col("time") - col("time"), pa.int64()),
        (col("time") - datetime(2024, 1, 1), pa.int64()),
        (col("utc") > datetime(2024, 1, 1), pa.bool_()),
        (col("day") == date(2024, 1, 1), pa.bool_()),
        (col("dec") > 10, pa.bool_()),
        (coalesce(col("dec"), Decimal("1.234")), pa.decimal128(11, 3)),
        (I8.fill_null(0), pa.int8()),
        (I8.fill_null(300), pa.int64()),
        (when(col("bool")).then(None).otherwise(I8), pa.int8()),
        (when(col("bool")).then("x"), pa.string()),
        (col("utc").cast(pa.timestamp("us", "Asia/Tokyo")) == col("utc"), pa.bool_()),
        (from_epoch(I8, "s"), pa.timestamp("us")),
        (col("utc") + "1 s", pa.timestamp("us", "UTC")),
        (col("text").str.split(","), pa.list_(pa.string())),
        (I8 + None, pa.int8()),
    ],
)
def test_the_type_of_an_expression(expr: Expr, expected: pa.DataType) -> None:
    assert type_of(expr, SCHEMA) == expected


@pytest.mark.parametrize(
    ("expr", "fact", "hint"),
    [
        (I8 + col("text"), 'needs numbers, and col("text") is string', "concat(a, b)"),
        (I8 * col("bool"), "is bool", 'col("bool").cast("int64")'),
        (col("dec") + 1, "is decimal(10, 2)", 'col("dec").cast("float64")'),
        (col("time") + 1, "is timestamp", '+ "10 s"'),
        (col("day") - col("day"), "is date", '.dt.epoch("d")'),
        (col("list") + 1, "is list<string>", "columns of numbers"),
        (col("time") - 5, "mixes timestamp and int64", '- "10 s"'),
        (-col("text"), "needs a number", "concat"),
        (col("text").abs(), "needs a number", "concat"),
        (col("text").round(), "needs a number", "concat"),
        (col("text") == 1, "mixes string and int64", ".cast("),
        (col("bool") == 1, "mixes bool and int64", "True or False"),
        (col("time") > "2024-05-01", "mixes timestamp and string", "datetime(2024, 5, 1)"),
        (col("time") > date(2024, 5, 1), "mixes timestamp and date", "datetime(2024, 5, 1)"),
        (col("time") > col("utc"), "mixes timestamp and timestamp[us, UTC]", '.cast("timestamp[us, UTC]")'),
        (datetime(2024, 5, 1) < I64, "mixes int64 and timestamp", ".cast("),
        (col("list") == col("list"), "needs values with an order", "length"),
        (lit(None) == None, "has only nulls", 'lit(None, "int64")'),  # noqa: E711  # `==` builds a node
        (I8 & col("bool"), "needs conditions", '(col("a") > 1)'),
        (~I8, "needs a condition", '(col("a") > 1)'),
        (I8.is_nan(), "needs a float", ".is_null()"),
        (I8.fill_null("x"), "mixes int8 and string", "cast one"),
        (coalesce(I8, col("bool")), "mixes int8 and bool", "cast one"),
        (coalesce(None, None), "has only nulls", "lit(None"),
        (lit(None).is_null(), "has only nulls", "lit(None"),
        (when(I8).then(1), "needs conditions", "when("),
        (when(col("bool")).then(1).otherwise("x"), "mixes int64 and string", "cast one"),
        (I8.str.lower(), "needs text", '.cast("string")'),
        (concat(I8), "needs text", '.cast("string")'),
        (col("text").list.item(0), "needs a list", '.str.split(",")'),
        (I8.list.length(), "needs a list", '.str.split(",")'),
        (I8.field("x"), "needs a struct", 'col("i8")'),
        (col("struct").field("yy"), 'has no field "yy"', 'col("struct").field("y")'),
        (I8.dt.year(), "needs a date or timestamp", "from_epoch"),
        (col("day").dt.hour(), "needs a timestamp", '.cast("timestamp")'),
        (col("day").dt.epoch("s"), "needs a timestamp", '.dt.epoch("d")'),
        (I8.dt.epoch("s"), "needs a date or timestamp", "from_epoch"),
        (col("day").dt.truncate("1 d"), "needs a timestamp", '.cast("timestamp")'),
        (from_epoch(F64, "s"), "needs whole numbers", '.cast("int64")'),
        (col("text") + "1 s", "needs a timestamp", "concat(a, b)"),
        (I8 + "1 s", "needs a timestamp", "from_epoch"),
        (hash(col("list")), "needs simple values", "one by one"),
        (I8.json("a", "int64"), "needs text", ".field(name)"),
        (F64.cast("string"), "cannot turn float64 into string", "round and cast to int64"),
        (I8.cast("bool"), "cannot turn int8 into bool", "!= 0"),
        (I8.cast("timestamp"), "cannot turn int8 into timestamp", "from_epoch"),
        (col("time").cast("int64"), "cannot turn timestamp into int64", '.dt.epoch("us")'),
        (col("dec").cast("string"), "cannot turn decimal(10, 2) into string", '.cast("float64")'),
        (col("raw").cast("string"), "cannot turn binary into string", "one can cast to binary"),
    ],
)
def test_a_wrong_type_is_an_error_that_says_what_to_do(expr: Expr, fact: str, hint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        type_of(expr, SCHEMA)
    assert fact in caught.value.fact
    assert hint in str(caught.value.hint)


def test_an_unknown_column_lists_those_that_exist_nearest_first() -> None:
    schema = pa.schema({"ad_id": pa.int64(), "price": pa.float64()})
    with pytest.raises(SchemaError, match='no column "pricee"') as caught:
        type_of(col("pricee") > 1, schema)
    assert caught.value.detail == "the columns are price, ad_id"
    assert caught.value.hint == 'use col("price")'


def test_a_schema_without_columns_is_said_to_have_none() -> None:
    with pytest.raises(SchemaError) as caught:
        type_of(col("a"), pa.schema({}))
    assert caught.value.detail == "there are no columns"


def test_a_column_that_is_not_canonical_is_refused() -> None:
    with pytest.raises(SchemaError, match='column "a" has type uint8') as caught:
        type_of(col("a"), pa.schema({"a": pa.uint8()}))
    assert "int16" in str(caught.value.hint)


def test_a_node_without_a_rule_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="plain Python has no rule for Node"):
        PYTHON_RULES[Node]
    with pytest.raises(NotSupported, match="Arrow has no rule for Node"):
        ARROW_RULES[Node]


def test_a_wrong_expression_is_refused_by_the_lowerings_too() -> None:
    with pytest.raises(SchemaError):
        lower_python(I8 & I8, SCHEMA)
    with pytest.raises(SchemaError):
        lower_arrow(I8 & I8, SCHEMA)


@pytest.mark.parametrize("lowering", ["arrow", "python"])
def test_the_rules_of_conversions_lie_in_a_module_of_their_own(lowering: str) -> None:
    package = f"penstock.expr.{lowering}"
    rules = importlib.import_module(f"{package}.lower").RULES
    assert len(rules) > 40
    for node in rules:
        name = "conversion" if node.__module__.endswith("conversion") else "rules"
        assert node in importlib.import_module(f"{package}.{name}").RULES
