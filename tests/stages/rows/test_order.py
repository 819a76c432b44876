"""The order of rows against Python's own sort of plain values."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages.rows.order import rank_values, sort_indices

FLOATS = st.sampled_from([None, math.nan, -math.inf, -1.5, -0.0, 0.0, 2.5, math.inf])
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integers": (pa.int16(), st.none() | st.integers(-3, 3)),
    "floats": (pa.float64(), FLOATS),
    "short floats": (pa.float32(), FLOATS),
    "bools": (pa.bool_(), st.none() | st.booleans()),
    "texts": (pa.string(), st.none() | st.sampled_from(["", "a", "ab", "b", "é", "\U0001f600", "\uffff"])),
    "bytes": (pa.binary(), st.none() | st.binary(max_size=2)),
    "decimals": (
        pa.decimal128(5, 1),
        st.none() | st.sampled_from([Decimal("-1.5"), Decimal(0), Decimal(12)]),
    ),
    "lists": (pa.list_(pa.float64()), st.none() | st.lists(FLOATS, max_size=2)),
    "structs": (
        pa.struct([("x", pa.int8())]),
        st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 2)}),
    ),
}


def plain_key(value: Any) -> tuple[Any, ...]:
    """Null first, NaN last, -0.0 before 0.0, lists and structs part by part."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (2,) if math.isnan(value) else (1, value, math.copysign(1, value))
    if isinstance(value, list):
        return (1, [plain_key(part) for part in value])
    if isinstance(value, dict):
        return (1, [plain_key(part) for part in value.values()])
    return (1, value)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
@settings(deadline=None, derandomize=True, max_examples=50)
def test_ranks_compare_as_the_values_do(name: str, data: st.DataObject) -> None:
    type_, values = VALUES[name]
    drawn = data.draw(st.lists(values, max_size=8))
    ranks = rank_values(pa.array(drawn, type_)).tolist()
    keys = [plain_key(value) for value in drawn]
    for i, a in enumerate(keys):
        for j, b in enumerate(keys):
            assert (ranks[i] < ranks[j]) == (a < b)


ROWS = st.tuples(st.integers(0, 2), st.integers(0, 1), FLOATS, st.sampled_from([None, "a", "b"]))


@given(st.lists(ROWS, max_size=20))
@settings(deadline=None, derandomize=True)
def test_rows_come_by_time_then_order_then_columns(drawn: list[tuple[Any, ...]]) -> None:
    times, orders, floats, texts = ([row[part] for row in drawn] for part in range(4))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(floats, pa.float64()), pa.array(texts, pa.string())], ["x", "y"]
    )
    places = sort_indices([np.array(times, np.int64), np.array(orders, np.int64)], batch).tolist()
    expected = sorted(range(len(drawn)), key=lambda i: (*drawn[i][:2], *map(plain_key, drawn[i][2:])))
    keys = [(*drawn[i][:2], *map(plain_key, drawn[i][2:])) for i in places]
    assert keys == [(*drawn[i][:2], *map(plain_key, drawn[i][2:])) for i in expected]
    assert sorted(places) == list(range(len(drawn)))
