"""Joins with a table that does not change."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from penstock.connect.protocol import BadRow
from penstock.errors import ConnectorError
from penstock.operators.table_join import TableJoin
from tests.support.plans import BatchesReader, PlanBuilder, batch

STREAM = pa.schema([("x", pa.float64()), ("t", pa.int64())])
TABLE = pa.schema([("x", pa.float64()), ("name", pa.string())])


def run_join(how: str, keys: list[Any], table: list[Any]) -> tuple[list[Any], Any]:
    builder = PlanBuilder()
    reader = BatchesReader((batch(table, TABLE),), TABLE)
    rows = builder.source([(key, index) for index, key in enumerate(keys)], schema=STREAM)
    out = builder.add(TableJoin(table=reader, on="x", how=how), rows)
    ran = builder.run()
    assert ran.account(out).is_balanced
    return [(row[1], row[2]) for row in ran.rows(out)], ran.account(out)


def test_an_inner_join_drops_rows_without_a_match_and_counts_them() -> None:
    rows, account = run_join("inner", [1.0, 2.0], [(1.0, "one")])
    assert rows == [(0, "one")]
    assert (account.passed, account.unmatched) == (1, 1)


def test_a_left_join_passes_them_on_with_nulls() -> None:
    rows, account = run_join("left", [1.0, 2.0], [(1.0, "one")])
    assert rows == [(0, "one"), (1, None)]
    assert account.unmatched == 0


def test_null_matches_nothing_nan_matches_nan_and_negative_zero_matches_zero() -> None:
    table = [(None, "null"), (math.nan, "nan"), (0.0, "zero")]
    rows, _ = run_join("left", [None, math.nan, -0.0], table)
    assert rows == [(0, None), (1, "nan"), (2, "zero")]


def test_a_table_that_cannot_be_read_stops_the_run_before_it_starts() -> None:
    builder = PlanBuilder()
    reader = BatchesReader((batch([], TABLE, bad=(BadRow("?", "no number", "t.csv:3"),)),), TABLE)
    builder.add(TableJoin(table=reader, on="x", name="look"), builder.source(schema=STREAM))
    with pytest.raises(ConnectorError, match=r"t\.csv:3") as failure:
        builder.run()
    assert failure.value.step == "look"
