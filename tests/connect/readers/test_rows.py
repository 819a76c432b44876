"""Rows given in the program."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import penstock.read as read
from penstock.connect.protocol import Delivery, Reader
from penstock.errors import ConnectorError, SchemaError
from tests.support.reader_contents import cuts_of, rows_of, seq_of


@dataclass
class View:
    ad: str
    price: float | None


class Click(NamedTuple):
    ad: str
    at: datetime


def test_rows_come_out_as_they_went_in_with_their_numbers() -> None:
    reader = read.rows([{"a": 1, "b": "x"}, {"a": 2, "b": None}])
    assert rows_of(reader) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert seq_of(reader) == [0, 1]


def test_without_a_cut_all_rows_are_one_batch() -> None:
    assert cuts_of(read.rows([{"a": 1}, {"a": 2}])) == [[{"a": 1}, {"a": 2}]]


def test_batch_cuts_after_so_many_rows() -> None:
    assert cuts_of(read.rows([{"a": i} for i in range(3)], batch=2)) == [[{"a": 0}, {"a": 1}], [{"a": 2}]]


def test_a_missing_key_is_null() -> None:
    assert rows_of(read.rows([{"a": 1}, {"b": 2}])) == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_dataclass_instances_and_named_tuples_are_rows() -> None:
    assert rows_of(read.rows([View("x", None), View("y", 2)])) == [
        {"ad": "x", "price": None},
        {"ad": "y", "price": 2.0},
    ]
    assert rows_of(read.rows([Click("x", datetime(1969, 1, 1))])) == [{"ad": "x", "at": datetime(1969, 1, 1)}]


def test_a_declared_schema_may_come_without_rows() -> None:
    reader = read.rows([], schema=View)
    assert reader.schema == pa.schema([("ad", pa.string()), ("price", pa.float64())])
    assert rows_of(reader) == []


def test_batches_keep_the_cuts_made_by_hand_and_empty_ones_too() -> None:
    reader = read.batches([[{"a": 1}], [], [{"a": 2}, {"a": 3}]])
    assert cuts_of(reader) == [[{"a": 1}], [], [{"a": 2}, {"a": 3}]]
    assert seq_of(reader) == [0, 1, 2]


def test_a_reader_used_twice_reads_twice_from_the_beginning() -> None:
    for reader in (read.rows([{"a": 1}]), read.batches([[{"a": 1}]])):
        assert rows_of(reader) == rows_of(reader) == [{"a": 1}]


def test_readers_say_what_they_are() -> None:
    rows, batches = read.rows([{"a": 1}]), read.batches([[{"a": 1}], []])
    assert (rows.describe(), batches.describe()) == ("rows (1 rows)", "batches (2 batches, 1 rows)")
    for reader in (rows, batches):
        assert isinstance(reader, Reader)
        assert (reader.bounded, reader.delivery, reader.keeps_raw) == (True, Delivery.EXACTLY_ONCE, False)


@pytest.mark.parametrize(
    ("value", "schema", "fact"),
    [
        ([{"a": "x"}], {"a": int}, "row 0 does not fit its schema: column \"a\": str 'x' does not fit"),
        ([{"a": 1}, {"a": 1.5}], {"a": int}, 'row 1 does not fit its schema: column "a": float 1.5'),
        (
            [{"a": 2**63}],
            None,
            'row 0 does not fit its schema: column "a": 9223372036854775808 is out of range',
        ),
        ([{"b": 1}], {"a": int}, "row 0 does not fit its schema: 'b' is not a column; the columns are a"),
        ([[1]], {"a": int}, "row 0 does not fit its schema: list [1] is not a dict, dataclass or NamedTuple"),
        ({"a": 1}, None, "rows must be a list, not dict"),
        (Click("x", datetime(2026, 1, 1)), None, "rows must be a list, not Click"),
    ],
)
def test_a_row_that_does_not_fit_is_named(value: Any, schema: object, fact: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read.rows(value, schema=schema)
    assert caught.value.fact.startswith(fact)
    assert caught.value.hint


def test_a_row_in_a_batch_is_named_by_both_numbers() -> None:
    with pytest.raises(SchemaError, match="row 1 of batch 2 does not fit"):
        read.batches([[], [{"a": 1}], [{"a": 1}, {"a": "x"}]], schema={"a": int})


def test_a_batch_that_is_no_list_is_named() -> None:
    with pytest.raises(SchemaError, match="batch 1 must be a list, not int 5"):
        read.batches([[], 5], schema={"a": int})  # type: ignore[list-item]  # the mistake under test


def test_a_cut_of_no_rows_is_refused() -> None:
    with pytest.raises(ConnectorError, match="batch=0 is not a number of rows or files"):
        read.rows([{"a": 1}], batch=0)
