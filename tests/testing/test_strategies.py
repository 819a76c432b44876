"""The strategies: values fit their types, and cuts put a stream together again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.testing.strategies import cuts, rows, timed_rows, values

fixed = settings(deadline=None, derandomize=True)
TYPES = [
    pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.list_(pa.int64()),
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
]  # fmt: skip


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_values_are_of_their_type(type_: pa.DataType) -> None:
    @fixed
    @given(st.lists(values(type_), max_size=5))
    def holds(drawn: list[Any]) -> None:
        assert len(pa.array(drawn, type_)) == len(drawn)

    holds()


def test_a_type_without_a_strategy_is_said() -> None:
    with pytest.raises(ValueError, match="no strategy for"):
        values(pa.duration("s"))


@fixed
@given(rows(pa.schema([("a", pa.int64()), ("b", pa.string())]), b=st.just("x"), max_size=4))
def test_rows_have_the_columns_of_the_schema(drawn: list[dict[str, Any]]) -> None:
    assert all(row["b"] == "x" and row.keys() == {"a", "b"} for row in drawn)
    assert ps.read.rows(drawn, schema={"a": "int64", "b": "string"}).schema.names == ["a", "b"]


@fixed
@given(timed_rows(span=5, keys=("a",)))
def test_timed_rows_stay_in_their_span(drawn: list[dict[str, Any]]) -> None:
    assert all(-5 <= row["t"] <= 5 and row["key"] == "a" for row in drawn)


@fixed
@given(st.data(), st.lists(st.integers()))
def test_cuts_put_together_are_the_stream(data: st.DataObject, stream: list[int]) -> None:
    batches = data.draw(cuts(stream))
    assert [row for batch in batches for row in batch] == stream
