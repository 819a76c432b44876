"""Schemas as users write them down."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NotRequired, Optional, TypedDict

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import SchemaError
from penstock.expr.types import parse_schema, parse_type


@dataclass
class Place:
    lat: float
    lon: float


@dataclass
class Trip:
    taxi: int
    where: Place
    left_at: datetime
    tags: list[str]
    tip: float | None


class Click(NamedTuple):
    ad: str
    day: date


class View(TypedDict):
    ad: str
    price: NotRequired[Annotated[Decimal, "decimal(10, 2)"]]


@dataclass
class Node:
    child: Node | None


@dataclass
class Unknown:
    x: Missing  # type: ignore[name-defined]  # noqa: F821  # the point: a name that is nowhere


@dataclass
class Nothing:
    pass


Untyped = namedtuple("Untyped", ["a"])  # the point: no types


def test_a_dataclass_declares_its_fields_in_order_and_nested_ones_as_structs() -> None:
    assert parse_schema(Trip) == pa.schema(
        [
            ("taxi", pa.int64()),
            ("where", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
            ("left_at", pa.timestamp("us")),
            ("tags", pa.list_(pa.string())),
            ("tip", pa.float64()),
        ]
    )


def test_a_named_tuple_declares_its_fields() -> None:
    assert parse_schema(Click) == pa.schema([("ad", pa.string()), ("day", pa.date32())])


def test_a_typed_dict_declares_its_keys_and_an_annotation_gives_the_exact_type() -> None:
    assert parse_schema(View) == pa.schema([("ad", pa.string()), ("price", pa.decimal128(10, 2))])


def test_a_dict_may_mix_arrow_types_names_and_python_types() -> None:
    declared = {"a": pa.int32(), "b": "string", "c": bool, "d": {"e": bytes}}
    assert parse_schema(declared) == pa.schema(
        [("a", pa.int32()), ("b", pa.string()), ("c", pa.bool_()), ("d", pa.struct([("e", pa.binary())]))]
    )


def test_an_arrow_schema_comes_out_canonical() -> None:
    given = pa.schema(
        [("a", pa.uint8()), ("b", pa.dictionary(pa.int8(), pa.string())), ("c", pa.timestamp("ns"))]
    )
    assert parse_schema(given) == pa.schema(
        [("a", pa.int16()), ("b", pa.string()), ("c", pa.timestamp("us"))]
    )


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (int, pa.int64()),
        (bool, pa.bool_()),
        (Optional[str], pa.string()),  # noqa: UP045  # the old spelling must work
        (int | None, pa.int64()),
        (tuple[float, ...], pa.list_(pa.float64())),
        (list[list[int]], pa.list_(pa.list_(pa.int64()))),
        (list[Place], pa.list_(pa.struct([("lat", pa.float64()), ("lon", pa.float64())]))),
        (Annotated[int, pa.int16()], pa.int16()),
        (Annotated[int, 7], pa.int64()),
        (np.float32, pa.float32()),
        (np.uint16, pa.int32()),
        ("int8", pa.int8()),
        ("decimal(38,0)", pa.decimal128(38, 0)),
        ("list<list<string>>", pa.list_(pa.list_(pa.string()))),
        ("timestamp[us, Europe/Rome]", pa.timestamp("us", "Europe/Rome")),
        (pa.large_string(), pa.string()),
    ],
)
def test_a_declared_type_becomes_its_arrow_type(declared: object, expected: pa.DataType) -> None:
    assert parse_type(declared) == expected


@pytest.mark.parametrize(
    ("declared", "fact", "hint"),
    [
        ({"a": "flaot64"}, '"flaot64" is not the name of a type (column "a")', "one of float64"),
        ({"a": "decimal(39, 2)"}, '"decimal(39, 2)" is not a decimal type (column "a")', "at most 38 digits"),
        ({"a": timedelta}, 'timedelta is not a column type (column "a")', "microseconds"),
        ({"a": time}, 'time is not a column type (column "a")', "microseconds of the day"),
        ({"a": Decimal}, 'Decimal is not a column type (column "a")', "decimal(10, 2)"),
        ({"a": list}, 'list is not a column type (column "a")', "list[int]"),
        ({"a": tuple}, 'tuple is not a column type (column "a")', "list[int]"),
        ({"a": dict}, 'dict is not a column type (column "a")', "dataclass"),
        ({"a": int | str}, 'int | str is not a column type (column "a")', "pyarrow type"),
        ({"a": {"b": complex}}, 'complex is not a column type (column "a.b")', "pyarrow type"),
        ({"a": np.complex64}, 'complex64 is not a column type (column "a")', "pyarrow type"),
        ({"a": np.datetime64}, 'datetime64 is not a column type (column "a")', "pyarrow type"),
        ({1: int}, "1 cannot name a column", "strings"),
        ({}, "{} declares no columns", "{"),
        (Nothing, "Nothing declares no columns", "{"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), 'two columns are named "a"', "rename"),
        (Node, 'Node contains itself (column "child")', "finite"),
        (Unknown, "the annotations of Unknown cannot be read", "top of a module"),
        (Untyped, '"a" of Untyped has no type', "typing.NamedTuple"),
        (int, "int is not a schema", "dataclass"),
        (["a"], "['a'] is not a schema", "dataclass"),
    ],
)
def test_what_is_no_schema_is_refused_by_name_with_a_hint(declared: Any, fact: str, hint: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(declared)
    assert caught.value.fact.startswith(fact)
    assert hint in str(caught.value.hint)


def test_uint64_is_refused_wherever_it_is_declared() -> None:
    with pytest.raises(SchemaError, match="uint64"):
        parse_schema({"a": pa.uint64()})
