"""The faces of a batch agree: picked or copied, plain rows or columns, the rows are the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages import policy
from penstock.stages.rows.batch import (
    Batch,
    ColumnView,
    RowBatch,
    Selection,
    rows_to_columns,
)
from penstock.stages.rows.order import merge_batches

SCHEMA = pa.schema(
    [
        ("whole", pa.int64()),
        ("small", pa.int16()),
        ("part", pa.float64()),
        ("text", pa.string()),
        ("holds", pa.bool_()),
        ("when", pa.timestamp("us", "UTC")),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-(2**15), 2**15 - 1),
        "part": st.none() | st.floats(allow_nan=False),
        "text": st.none() | st.text(max_size=3),
        "holds": st.booleans(),
        "when": st.integers(0, 2**40),
    }
)
ROWS = st.lists(ROW, min_size=1, max_size=30)


def batch_of(rows: list[dict[str, object]]) -> Batch:
    """Columns, the second half of a longer batch: offsets must not matter."""
    twice = rows_to_columns([*rows, *rows], SCHEMA).slice(len(rows))
    n = len(rows)
    return Batch(twice, np.arange(n) * 10, (np.arange(n) * 7, np.arange(n)[::-1].copy()))


@pytest.mark.slow
@settings(deadline=None)
@given(ROWS, st.lists(st.tuples(st.booleans(), st.randoms(use_true_random=False)), max_size=4))
def test_rows_picked_again_and_again_are_those_that_copying_gives(rows, picks):  # type: ignore[no-untyped-def]  # hypothesis draws them
    batch, places = batch_of(rows), np.arange(len(rows))
    for by_mask, chance in picks:
        if by_mask:
            mask = np.array([chance.random() < 0.7 for _ in places], np.bool_)
            batch, places = batch.where(mask), places[mask]
        elif len(places):
            draws = np.array([chance.randrange(len(places)) for _ in range(5)])
            batch, places = batch.take(draws), places[draws]
    whole = batch_of(rows)
    assert batch.num_rows == len(places)
    assert batch.column("text").equals(whole.rows.column("text").take(pa.array(places, pa.int64())))
    assert batch.rows.equals(whole.rows.take(pa.array(places, pa.int64())))
    assert batch.times.tolist() == (places * 10).tolist()
    assert [column.tolist() for column in batch.order] == [column[places].tolist() for column in whole.order]


@pytest.mark.slow
@settings(deadline=None)
@given(ROWS)
def test_plain_rows_and_columns_are_two_faces_of_one_batch(rows):  # type: ignore[no-untyped-def]  # hypothesis draws them
    n = len(rows)
    plain = RowBatch(rows, SCHEMA, list(range(n)), (range(3, n + 3),))
    assert plain.plain == rows
    assert plain.rows.equals(rows_to_columns(rows, SCHEMA))
    assert plain.times.tolist() == list(range(n))
    assert plain.order[0].tolist() == list(range(3, n + 3))
    odd = plain.where(np.arange(n) % 2 == 1)
    assert odd.plain is None or list(odd.plain) == rows[1::2]
    assert odd.rows.equals(rows_to_columns(rows, SCHEMA).take(pa.array(range(1, n, 2), pa.int64())))


def test_a_column_that_nobody_asks_for_is_not_copied() -> None:
    batch = Batch(pa.RecordBatch.from_pydict({"a": [1, 2, 3], "b": ["x", "y", "z"]}), np.arange(3))
    part = batch.where(np.array([True, False, True]))
    assert part.column("a").to_pylist() == [1, 3]
    assert list(part._columns) == ["a"]


def test_few_of_many_rows_are_copied_at_once_so_that_the_many_can_go() -> None:
    n = 10 * policy.SIZES.selection_share
    batch = Batch(pa.RecordBatch.from_pydict({"a": list(range(n))}), np.arange(n))
    assert not batch.take(np.arange(3))._views
    assert batch.take(np.arange(n // 2))._views


def test_columns_beside_others_are_looked_up_in_their_own_batch() -> None:
    batch = Batch(pa.RecordBatch.from_pydict({"a": [5, 6, 7]}), np.arange(3))
    names = pa.RecordBatch.from_pydict({"name": ["x", "y"]})
    schema = pa.schema([("a", pa.int64()), ("name", pa.string())])
    both = batch.with_columns([ColumnView(names, Selection(3, lambda: np.array([1, 0, 1])))], schema)
    assert both.rows.to_pydict() == {"a": [5, 6, 7], "name": ["y", "x", "y"]}
    coded = both.take(np.array([2, 0, 2, 1])).view("name")
    assert coded.values.to_pylist() == ["x", "y"]
    assert coded.codes is not None
    assert coded.codes.tolist() == [1, 1, 1, 0]
    assert both.view("a").codes is None


@pytest.mark.parametrize("n", [1, policy.SIZES.plain_rows + 1])
def test_rows_made_of_others_keep_their_times_and_places(n: int) -> None:
    batch = Batch(pa.RecordBatch.from_pydict({"a": [0] * n}), np.arange(n) + 5, (np.arange(n),))
    output = batch.with_rows([{"b": at} for at in range(n)], pa.schema({"b": pa.int64()}))
    assert output.rows.column("b").to_pylist() == list(range(n))
    assert output.times.tolist() == batch.times.tolist()
    assert (output.plain is None) == (
        n > policy.SIZES.plain_rows
    )  # many plain rows would take ten times the memory


def test_batches_of_both_faces_can_be_joined() -> None:
    schema = pa.schema({"a": pa.int64()})
    columns = Batch(pa.RecordBatch.from_pydict({"a": [1, 2]}), np.array([1, 2]))
    plain = RowBatch([{"a": 3}], schema, [3])
    assert merge_batches([columns, plain], schema).rows.column("a").to_pylist() == [1, 2, 3]
