"""Foreign columns and batches put together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.connect.conversion import concat_batches, schema_difference
from penstock.errors import SchemaError

SCHEMA = pa.schema([("a", pa.string())])


def test_no_batches_are_a_batch_without_rows() -> None:
    assert concat_batches([], SCHEMA).num_rows == 0


def test_a_batch_of_more_than_two_gibibytes_is_refused_with_a_way_out() -> None:
    megabytes = pa.record_batch({"a": ["x" * (1 << 24)]})
    with pytest.raises(SchemaError, match="more than 2 GiB of one column") as caught:
        concat_batches([megabytes] * 130, SCHEMA)
    assert caught.value.hint == "cut smaller batches: batch=1_000_000"


def test_columns_that_fit_are_not_unlike_and_others_are_named_nearest_first() -> None:
    schema = pa.schema([("ad", pa.int64()), ("price", pa.float64())])
    assert schema_difference(schema, pa.schema([("price", pa.float64())])) is None
    assert schema_difference(schema, pa.schema([("prize", pa.float64())])) == (
        'it has no column "prize"; its columns are price, ad'
    )
