"""What is written reads back the same, in every format and however it is cut."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.read as read
import penstock.write as write
from penstock.connect.readers.files import FileReader
from penstock.connect.writers.folder import FolderWriter
from penstock.expr.values import from_plain, to_plain
from tests.support.examples import examples
from tests.support.reader_contents import cuts_of, table_of

FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
SIMPLE: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int8(), st.integers(-128, 127)),
    "whole": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "single": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats()),
    "text": (pa.string(), TEXT),
    "time": (pa.timestamp("us"), st.integers(FIRST_US, LAST_US)),
    "zoned": (pa.timestamp("us", "UTC"), st.integers(FIRST_US, LAST_US)),
    "day": (pa.date32(), st.integers(-719_162, 2_932_896)),
    "money": (pa.decimal128(20, 2), st.decimals(-(10**17), 10**17, places=2)),
}
NESTED: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "raw": (pa.binary(), st.binary(max_size=5)),
    "list": (pa.list_(pa.float64()), st.lists(st.none() | st.floats(), max_size=3)),
    "inner": (
        pa.struct([("t", pa.timestamp("us")), ("s", pa.string())]),
        st.fixed_dictionaries({"t": st.none() | st.integers(FIRST_US, LAST_US), "s": st.none() | TEXT}),
    ),
}


@st.composite
def batches_of(
    draw: st.DrawFn, kinds: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]]
) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, unique=True))
    n_rows = draw(st.integers(1, 6))
    arrays = [
        from_plain(
            draw(st.lists(st.none() | kinds[name][1], min_size=n_rows, max_size=n_rows)), kinds[name][0]
        )
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def save_rows(writer: FolderWriter, rows: pa.RecordBatch, cut: int) -> None:
    out = writer.open(rows.schema, "sink")
    out.write(0, rows.slice(0, cut))
    out.write(0, rows.slice(cut, 1))
    out.commit(0)
    out.write(1, rows.slice(cut + 1))
    out.commit(1)
    out.close()


def values_of(table: pa.Table | pa.RecordBatch) -> list[list[object]]:
    """Plain values, with NaN written so that it equals itself and -0.0 so that it does not equal 0.0."""
    return [
        [_plain_value(value) for chunk in column.chunks for value in to_plain(chunk)]
        for column in pa.table(table).columns
    ]


def _plain_value(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    return [_plain_value(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writer", "reader", "kinds"),
    [
        (write.csv, read.csv, SIMPLE),
        (write.jsonl, read.jsonl, SIMPLE | NESTED),
        (write.parquet, read.parquet, SIMPLE | NESTED),
    ],
    ids=["csv", "jsonl", "parquet"],
)
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_what_is_written_reads_back_the_same(
    writer: Callable[[Path], FolderWriter],
    reader: Callable[..., FileReader],
    kinds: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]],
    data: st.DataObject,
) -> None:
    rows = data.draw(batches_of(kinds))
    cut = data.draw(st.integers(0, rows.num_rows))
    with TemporaryDirectory() as folder:
        save_rows(writer(Path(folder)), rows, cut)
        back = reader(Path(folder), schema=rows.schema)
        assert [batch.bad for batch in back.batches() if batch.bad] == []
        assert values_of(table_of(back)) == values_of(rows)


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(16, nightly=50))
@given(rows=batches_of(SIMPLE), size=st.integers(1, 8))
def test_cuts_never_change_rows(rows: pa.RecordBatch, size: int) -> None:
    whole, cut = read.table(rows), read.table(rows, batch=size)
    assert values_of(table_of(cut)) == values_of(table_of(whole))
    assert [len(cut) for cut in cuts_of(read.rows([{"a": 1}] * rows.num_rows, batch=size))] == [
        batch.rows.num_rows for batch in cut.batches()
    ]
