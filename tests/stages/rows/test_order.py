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

from penstock.stages import policy
from penstock.stages.rows.batch import Batch, RowBatch
from penstock.stages.rows.order import (
    NO_ORDER,
    append_order,
    append_plain_order,
    merge_batches,
    rank_values,
    sort_batch,
    sort_indices,
)

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


SCHEMA = pa.schema({"x": pa.float64(), "y": pa.string()})
PLACES = st.sampled_from([NO_ORDER, 0, 1])


def faces(drawn: list[tuple[Any, ...]]) -> tuple[RowBatch, Batch]:
    """Rows as plain values, and as columns."""
    times, orders, floats, texts = ([row[part] for row in drawn] for part in range(4))
    plain = [{"x": x, "y": y} for x, y in zip(floats, texts, strict=True)]
    columns = pa.RecordBatch.from_pylist(plain, SCHEMA)
    arrays = np.array(times, np.int64), (np.array(orders, np.int64),)
    return RowBatch(plain, SCHEMA, times, (orders,)), Batch(columns, *arrays)


@pytest.mark.parametrize("few_rows", [0, 64])
@given(drawn=st.lists(ROWS, max_size=20))
@settings(deadline=None, derandomize=True)
def test_plain_rows_are_sorted_as_their_columns_are(few_rows: int, drawn: list[tuple[Any, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "SIZES", policy.SizePolicy(few_rows=few_rows))
        orders = [sort_batch(batch) for batch in faces(drawn)]
    plain, columns = (list(range(len(drawn))) if order is None else order.tolist() for order in orders)
    assert plain == columns


@given(st.lists(st.tuples(PLACES, PLACES, st.integers(0, 3)), min_size=1, max_size=8), st.data())
@settings(deadline=None, derandomize=True)
def test_a_place_is_extended_behind_its_end_by_numbers_of_python_too(
    drawn: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    places = [(first, NO_ORDER if first == NO_ORDER else second) for first, second, _ in drawn]
    order = [list(column) for column in zip(*places, strict=True)]
    parents = data.draw(st.lists(st.integers(0, len(drawn) - 1), max_size=8))
    index = list(range(len(parents)))
    arrays = tuple(np.array(column) for column in order)
    expected = append_order(arrays, np.array(index, np.int64), np.array(parents, np.int64))
    assert list(map(list, append_plain_order(order, index, parents))) == [c.tolist() for c in expected]
    index = [number for _, _, number in drawn]
    expected = append_order(arrays, np.array(index))
    assert list(map(list, append_plain_order(order, index))) == [c.tolist() for c in expected]


@pytest.mark.parametrize("few_rows", [0, 64])
@given(drawn=st.lists(st.tuples(st.lists(ROWS, max_size=5), st.booleans()), min_size=1, max_size=4))
@settings(deadline=None, derandomize=True)
def test_plain_rows_that_flow_together_are_those_of_their_columns(few_rows: int, drawn: Any) -> None:
    parts = [faces(rows) for rows, _ in drawn]
    plain = [part for part, _ in parts]
    for part, (_, without_place) in zip(plain, drawn, strict=True):
        part._order = () if without_place else part._order
    columns = [Batch(part.rows, part.times, part.order) for part in plain]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(policy, "SIZES", policy.SizePolicy(few_rows=few_rows))
        merged, expected = merge_batches(plain, SCHEMA), merge_batches(columns, SCHEMA)
        assert merged.plain is not None
        assert repr(merged.rows.to_pylist()) == repr(expected.rows.to_pylist())
        assert merged.times.tolist() == expected.times.tolist()
        assert [c.tolist() for c in merged.order] == [c.tolist() for c in expected.order]
