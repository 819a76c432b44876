"""Rows pulled lazily."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

import penstock.read as read
from penstock.connect.protocol import BadRow, Delivery, Reader
from penstock.errors import ConnectorError
from tests.support.reader_contents import bad_of, cuts_of, rows_of, seq_of


def three() -> Iterator[dict[str, int]]:
    yield from ({"a": i} for i in range(3))


def broken() -> Iterator[dict[str, int]]:
    yield {"a": 1}
    raise OSError("cable unplugged")


def test_rows_are_cut_every_batch_and_numbered_through() -> None:
    reader = read.iterable(three, schema={"a": int}, batch=2)
    assert cuts_of(reader) == [[{"a": 0}, {"a": 1}], [{"a": 2}]]
    assert seq_of(reader) == [0, 1, 2]


def test_a_function_or_a_list_can_be_read_by_every_run() -> None:
    for source in (three, list(three())):
        reader = read.iterable(source, schema={"a": int})
        assert rows_of(reader) == rows_of(reader) == [{"a": 0}, {"a": 1}, {"a": 2}]


def test_a_one_shot_iterator_is_refused_to_a_second_run() -> None:
    reader = read.iterable(three(), schema={"a": int})
    assert len(rows_of(reader)) == 3
    with pytest.raises(ConnectorError, match="generator was used up by an earlier run") as caught:
        rows_of(reader)
    assert "lambda" in str(caught.value.hint)


def test_an_endless_iterable_is_read_only_as_far_as_it_is_asked() -> None:
    reader = read.iterable(lambda: ({"a": i} for i in count()), schema={"a": int}, batch=2, bounded=False)
    assert [batch.rows.to_pylist() for batch in islice(reader.batches(), 2)] == [
        [{"a": 0}, {"a": 1}],
        [{"a": 2}, {"a": 3}],
    ]
    assert not reader.bounded


def test_a_row_that_does_not_fit_is_a_bad_row_and_the_others_go_on() -> None:
    reader = read.iterable([{"a": 1}, {"a": "x"}, {"a": 3}], schema={"a": int})
    assert rows_of(reader) == [{"a": 1}, {"a": 3}]
    assert seq_of(reader) == [0, 2]
    assert bad_of(reader) == [
        BadRow("{'a': 'x'}", "column \"a\": str 'x' does not fit the type int64", "row 1")
    ]


def test_what_the_source_raises_names_it_and_how_far_it_came() -> None:
    with pytest.raises(ConnectorError) as caught:
        rows_of(read.iterable(broken, schema={"a": int}))
    assert caught.value.fact == "iterable broken raised OSError after 1 rows: cable unplugged"
    assert caught.value.where is not None
    assert isinstance(caught.value.__cause__, OSError)


def test_what_cannot_be_iterated_is_refused() -> None:
    with pytest.raises(ConnectorError, match="int 5 cannot be iterated"):
        read.iterable(5, schema={"a": int})  # type: ignore[arg-type]  # the mistake under test


def test_a_lazy_source_says_that_a_crash_loses_rows() -> None:
    reader = read.iterable(three, schema={"a": int})
    assert isinstance(reader, Reader)
    assert (reader.delivery, reader.keeps_raw, reader.describe()) == (
        Delivery.AT_MOST_ONCE,
        True,
        "iterable three",
    )
