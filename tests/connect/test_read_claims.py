"""Reads that wait, while another thread takes what has come: no row is lost, doubled, or out of order.

The other thread is played by the source: whatever it does while it is asked for an item happens while the
reading thread waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.read as read
from penstock.connect.protocol import SourceBatch
from penstock.connect.read_claims import AbandonedRead, WaitingRead, Watermark
from penstock.errors import ConnectorError, TimeError

Items = st.lists(st.sampled_from(["row", "bad", "list", "columns", "watermark"]), max_size=30)


def make_items(kinds: list[str]) -> tuple[list[Any], int]:
    """Items of these kinds, and how many rows they have."""
    numbers, items = count(), list[Any]()
    for kind in kinds:
        if kind == "row":
            items.append({"a": next(numbers)})
        elif kind == "bad":
            items.append({"a": f"x{next(numbers)}"})
        elif kind == "list":
            items.append([{"a": next(numbers)}, {"a": next(numbers)}])
        elif kind == "columns":
            items.append(pa.record_batch({"a": pa.array([next(numbers), next(numbers)])}))
        else:
            items.append(Watermark(7))
    return items, next(numbers)


class Meddler:
    """A source during whose waits another thread takes rows."""

    def __init__(self, items: list[Any], takes: set[int]) -> None:
        self._items, self._takes = items, takes
        self.read: WaitingRead | None = None
        self.batches: list[SourceBatch] = []
        self.clock = 0

    def __call__(self) -> Iterator[Any]:
        for n in range(len(self._items) + 1):
            if n in self._takes and self.read is not None:
                assert self.read.claim()
                batch = self.read.take()
                self.batches += [] if batch is None else [batch]
                self.read.release()
            self.clock += 1
            if n < len(self._items):
                yield self._items[n]


@given(kinds=Items, takes=st.sets(st.integers(0, 30)), size=st.integers(2, 5))
def test_whoever_takes_rows_they_are_all_there_in_order_with_their_times(
    kinds: list[str], takes: set[int], size: int
) -> None:
    items, n_rows = make_items(kinds)
    source = Meddler(items, takes)
    opened = read.generator(source, schema={"a": int}, batch=size).open(lambda: source.clock)
    source.read = opened
    for batch in opened:
        source.batches.append(batch)
    numbers, stamps = list[int](), list[int]()
    for batch in source.batches:
        bad = [int(bad.place.removeprefix("row ")) for bad in batch.bad]
        assert batch.seq is not None
        numbers += sorted(batch.seq.to_pylist() + bad)
        assert batch.rows.column(0).to_pylist() == batch.seq.to_pylist()
        assert batch.read_at is not None
        assert len(batch.read_at) == batch.num_rows
        stamps += batch.read_at.tolist()
        assert batch.num_rows + len(batch.bad) <= max(size, 2)
    assert numbers == list(range(n_rows))
    assert stamps == sorted(stamps)
    moments = [
        moment
        for moment, item in enumerate(items, 1)
        for _ in range(0 if isinstance(item, Watermark) or is_bad(item) else n_rows_of(item))
    ]
    assert stamps == moments


def is_bad(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item["a"], str)


def n_rows_of(item: Any) -> int:
    return item.num_rows if isinstance(item, pa.RecordBatch) else len(item) if isinstance(item, list) else 1


@given(kinds=Items, size=st.integers(2, 5), n=st.integers(0, 40))
def test_rows_that_an_earlier_run_has_read_are_skipped_however_they_were_cut(
    kinds: list[str], size: int, n: int
) -> None:
    items, n_rows = make_items(["row" if kind in ("list", "columns") else kind for kind in kinds])
    opened = read.generator(lambda: iter(items), schema={"a": int}, batch=size).open(None)
    assert opened.skip(n) == min(n, n_rows)
    rest = [number for batch in opened for number in numbers_of(batch)]
    assert rest == list(range(min(n, n_rows), n_rows))


def numbers_of(batch: SourceBatch) -> list[int]:
    assert batch.seq is not None
    return sorted([*batch.seq.to_pylist(), *(int(bad.place.removeprefix("row ")) for bad in batch.bad)])


def test_a_read_that_does_not_wait_cannot_be_claimed() -> None:
    opened = WaitingRead(iter([1, 2]))
    assert not opened.claim()
    assert list(opened) == [1, 2]
    assert not opened.claim()


def test_what_comes_after_a_read_was_abandoned_is_dropped_and_the_source_is_closed() -> None:
    closed = list[bool]()

    def source() -> Iterator[int]:
        try:
            assert opened.claim()
            opened.abandon()
            opened.release()
            yield 1
        finally:
            closed.append(True)

    opened = WaitingRead(source())
    with pytest.raises(AbandonedRead):
        next(opened)
    assert closed == [True]


def test_a_source_that_is_still_waited_for_is_not_closed_by_others() -> None:
    def source() -> Iterator[int]:
        opened.close()  # would raise, for the generator is running
        yield 1

    opened = WaitingRead(source())
    with suppress(AbandonedRead):
        assert next(opened) == 1
    assert opened.abandoned


@pytest.mark.parametrize("wait", [0, 5, True, "0 s", timedelta(0), timedelta(-1)], ids=repr)
def test_a_wait_that_is_no_length_of_time_is_refused(wait: Any) -> None:
    with pytest.raises(ConnectorError, match="is not a length of time") as refusal:
        read.generator(lambda: iter(()), schema={"a": int}, wait=wait)
    assert refusal.value.hint == 'give a duration above zero: wait="100 ms"'


def test_a_wait_without_a_unit_is_refused() -> None:
    with pytest.raises(TimeError, match="wait= 'soon' is not a duration"):
        read.iterable([], schema={"a": int}, wait="soon")


def test_a_coroutine_function_is_no_generator() -> None:
    async def fetch() -> None:
        return None

    with pytest.raises(ConnectorError, match="is a coroutine function: it returns, and yields nothing") as no:
        read.generator(fetch, schema={"a": int})  # type: ignore[arg-type]  # that is the mistake
    assert no.value.hint == "yield rows in it, which makes it an asynchronous generator"


def test_what_is_in_memory_never_waits() -> None:
    assert not read.iterable([{"a": 1}], schema={"a": int}).waits
    assert read.iterable(iter([{"a": 1}]), schema={"a": int}).waits
    assert read.generator(lambda: iter(()), schema={"a": int}).waits
