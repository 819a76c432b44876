"""Generators: rows, batches and watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

import penstock.read as read
from penstock.connect.read_claims import Watermark
from penstock.errors import ConnectorError
from tests.support.reader_contents import bad_of, cuts_of, seq_of

SCHEMA = {"a": int}


def generate_mixed() -> Iterator[object]:
    yield {"a": 0}
    yield {"a": 1}
    yield Watermark(10)
    yield [{"a": 2}, {"a": "x"}]
    yield {"a": 4}
    yield pa.record_batch({"a": pa.array([5], pa.int32())})
    yield []
    yield Watermark(20)
    yield {"a": 6}


def test_a_watermark_ends_the_batch_and_lists_and_record_batches_are_their_own() -> None:
    batches = list(read.generator(generate_mixed, schema=SCHEMA).batches())
    assert [(b.rows.column(0).to_pylist(), b.watermark) for b in batches] == [
        ([0, 1], 10),
        ([2], None),
        ([4], None),
        ([5], None),
        ([], None),
        ([], 20),
        ([6], None),
    ]


def test_rows_are_numbered_through_and_a_bad_one_has_its_number() -> None:
    reader = read.generator(generate_mixed, schema=SCHEMA)
    assert seq_of(reader) == [0, 1, 2, 4, 5, 6]
    assert [bad.place for bad in bad_of(reader)] == ["row 3"]


def test_single_rows_are_cut_every_batch() -> None:
    def five() -> Iterator[dict[str, int]]:
        yield from ({"a": i} for i in range(5))

    reader = read.generator(five, schema=SCHEMA, batch=2)
    assert cuts_of(reader) == [[{"a": 0}, {"a": 1}], [{"a": 2}, {"a": 3}], [{"a": 4}]]
    assert reader.describe().startswith("generator ")


@pytest.mark.parametrize(
    ("time", "value"),
    [
        (-5, -5),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (date(1969, 12, 31), -1),
    ],
)
def test_a_watermark_is_a_number_in_the_unit_of_the_time_column(time: Any, value: int) -> None:
    assert Watermark(time).value == value


@pytest.mark.parametrize("time", ["10", 1.5, True, None])
def test_a_watermark_that_is_no_time_is_refused(time: Any) -> None:
    with pytest.raises(ConnectorError, match="is not a time"):
        Watermark(time)


def test_a_record_batch_of_other_columns_is_refused() -> None:
    def wrong() -> Iterator[object]:
        yield pa.record_batch({"b": [1]})

    with pytest.raises(
        ConnectorError, match='yielded a RecordBatch that does not fit: there is no column "a"'
    ):
        cuts_of(read.generator(wrong, schema=SCHEMA))


def test_a_generator_already_called_is_refused() -> None:
    with pytest.raises(ConnectorError, match="is not a generator function") as caught:
        read.generator(generate_mixed(), schema=SCHEMA)  # type: ignore[arg-type]  # the mistake under test
    assert "without calling it" in str(caught.value.hint)
