"""Rows by schema give the same answers as rows one by one, only sooner."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RowFailure
from penstock.operators.function import Row, plain_row
from penstock.stages.functions.calls import RowValidator, row_type
from penstock.stages.rows.batch import rows_to_columns

SCHEMA = pa.schema(
    [
        ("a", pa.int8()),
        ("x", pa.float64()),
        ("z", pa.float32()),
        ("word", pa.string()),
        ("raw", pa.binary()),
        ("yes", pa.bool_()),
        ("at", pa.timestamp("us")),
        ("keys", pa.int64()),
        ("_own", pa.int64()),
        ("two words", pa.string()),
    ]
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-300, 300),
    st.sampled_from([2**63, 1e300, "é", "\ud800", "", b"x", [1]]),
    st.floats(),
    st.datetimes(),
)
Typed = make_dataclass("Typed", [("a", Any), ("x", Any)])
SMALL = pa.schema([("a", pa.int8()), ("x", pa.float64())])


class NamedRow(NamedTuple):
    a: Any
    x: Any


def answer(call: Callable[[], Any]) -> str:
    try:
        return repr(call())
    except (RowFailure, AttributeError, KeyError) as failure:
        return f"{type(failure).__name__}: {failure}"


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(st.dictionaries(st.sampled_from(["a", "x", "other"]), anything, max_size=3))
def test_what_a_function_gives_is_checked_as_one_row_is(fields: dict[str, Any]) -> None:
    shape = RowValidator(SMALL)
    assert answer(lambda: shape.plain(fields)) == answer(lambda: plain_row(fields, SMALL))
    for kind in (Typed, NamedRow):
        row = kind(fields.get("a"), fields.get("x"))
        assert answer(partial(shape.plain, row)) == answer(partial(plain_row, row, SMALL))


@dataclass
class More:
    a: int
    x: float
    y: float


@pytest.mark.parametrize("given_back", [3, None, [], More(1, 2.0, 3.0), More, {"a": 1}])
def test_what_is_not_a_row_of_the_schema_is_told_as_before(given_back: object) -> None:
    shape = RowValidator(SMALL)
    assert answer(lambda: shape.plain(given_back)) == answer(lambda: plain_row(given_back, SMALL))


def test_a_row_of_a_schema_reads_like_any_row() -> None:
    values = {"a": 1, "x": None, "z": 0.5, "word": "é", "raw": b"", "yes": True, "at": 5}
    values |= {"keys": 7, "_own": 8, "two words": "w"}
    quick, plain = row_type(SCHEMA).constructor()(values), Row(values, SCHEMA)
    assert repr(quick) == repr(plain)
    assert dict(quick) == dict(plain)
    assert quick.at == plain.at
    assert quick.keys() == plain.keys()
    assert quick["keys"] == 7
    assert quick["two words"] == "w"
    assert repr(copy.deepcopy(quick)) == repr(plain)
    assert isinstance(quick, Row)
    for name in ("nope", "__wrapped__"):
        assert answer(partial(getattr, quick, name)) == answer(partial(getattr, plain, name))
    with pytest.raises(AttributeError, match="rows are read only"):
        quick.a = 2


def test_plain_rows_become_columns() -> None:
    columns = rows_to_columns([{"a": 1, "x": float("nan")}, {"a": None, "x": None}], SMALL)
    assert columns.schema == SMALL
    assert columns.column("a").to_pylist() == [1, None]
    assert columns.column("x").null_count == 1
    assert rows_to_columns([], SMALL).num_rows == 0
