"""Rows as a user's function sees them and gives them back."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import RowFailure
from penstock.operators.function import plain_row

SCHEMA = pa.schema([("user", pa.string()), ("price", pa.float64()), ("at", pa.timestamp("us"))])
ROW = ps.Row({"user": "ada", "price": None, "at": 1_500_000}, SCHEMA)
OUT = pa.schema([("user", pa.string()), ("n", pa.int64())])


@dataclass
class Result:
    user: str
    n: int


class NamedRow(NamedTuple):
    user: str
    n: int


def test_columns_are_attributes_and_items_null_is_none_and_time_a_datetime() -> None:
    assert (ROW.user, ROW["user"], ROW.price) == ("ada", "ada", None)
    assert ROW.at == datetime(1970, 1, 1, 0, 0, 1, 500_000)


def test_a_row_becomes_a_dict_and_is_measured() -> None:
    assert dict(ROW) == {"user": "ada", "price": None, "at": ROW.at}
    assert {**ROW, "n": 1}["n"] == 1
    assert (len(ROW), list(ROW)) == (3, ["user", "price", "at"])
    assert repr(ROW) == "Row(user='ada', price=None, at=datetime.datetime(1970, 1, 1, 0, 0, 1, 500000))"


def test_a_row_is_read_only() -> None:
    with pytest.raises(
        AttributeError, match="rows are read only; return a new row instead of setting 'user'"
    ):
        ROW.user = "eve"


def test_a_row_can_be_kept_in_a_state_that_is_copied() -> None:
    assert (copy.copy(ROW).user, copy.deepcopy([ROW])[0].at) == ("ada", ROW.at)


def test_a_missing_column_names_the_nearest_first() -> None:
    with pytest.raises(AttributeError, match='no column "prise"; the columns are price, '):
        _ = ROW.prise
    with pytest.raises(KeyError, match='no column "prise"; the columns are price, '):
        ROW["prise"]


@pytest.mark.parametrize(
    "result", [{"user": "ada", "n": 1}, Result("ada", 1), NamedRow("ada", 1), {"n": 1, "user": "ada"}]
)
def test_a_function_gives_a_dict_a_dataclass_or_a_named_tuple(result: Any) -> None:
    assert plain_row(result, OUT) == {"user": "ada", "n": 1}


def test_a_function_may_give_the_row_it_got() -> None:
    assert plain_row(ROW, SCHEMA) == {"user": "ada", "price": None, "at": 1_500_000}


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (None, "gave NoneType None, not a dict, dataclass or NamedTuple"),
        (("ada", 1), "gave tuple"),
        (Result, "gave type"),
        ({"user": "ada"}, "gave a row that lacks n; its schema is user, n"),
        ({"user": "ada", "n": 1, "x": 2}, "has unknown x"),
        ({"usr": "ada", "n": 1}, "lacks user and has unknown usr"),
        ({"user": "ada", "n": "one"}, 'column "n": '),
        ({"user": "ada", "n": 2**63}, 'column "n": '),
    ],
)
def test_what_does_not_fit_the_schema_fails_the_row(result: Any, why: str) -> None:
    with pytest.raises(RowFailure) as caught:
        plain_row(result, OUT)
    assert why in str(caught.value)
