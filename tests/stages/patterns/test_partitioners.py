"""Distribution functions: which rows go to which replica."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.stages.patterns.pattern import (
    KeyPartitioner,
    PanePartitioner,
    Partitioner,
    RoundRobinPartitioner,
    WindowPartitioner,
)
from penstock.stages.rows.batch import Batch
from penstock.timing.windows import TimeWindow

SCHEMA = pa.schema([("number", pa.int64()), ("k", pa.string())])
LAW = settings(deadline=None, derandomize=True)
keyed_times = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-40, 40)), max_size=20)
time_windows = st.builds(TimeWindow, st.integers(1, 20), st.integers(1, 20))
degrees = st.integers(1, 5)


def batch_of(rows: list[tuple[str | None, int]], start: int = 0) -> Batch:
    """Rows (key, time), numbered so that they can be told apart."""
    numbers = pa.array(range(start, start + len(rows)), pa.int64())
    columns = [numbers, pa.array([key for key, _ in rows], pa.string())]
    times = np.array([time for _, time in rows], np.int64)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), times)


def share_numbers(deal: Partitioner, batch: Batch) -> dict[int, list[int]]:
    shares = deal(batch)
    assert len({replica for replica, _ in shares}) == len(shares)
    return {replica: share.rows.column("number").to_pylist() for replica, share in shares}


def test_rows_of_one_key_meet() -> None:
    rows: list[tuple[str | None, int]] = [("a", 1), ("b", 2), (None, 3), ("a", 4), (None, 5), ("b", 6)]
    homes = {
        number: replica
        for replica, our in share_numbers(KeyPartitioner(SCHEMA, ["k"], 3), batch_of(rows)).items()
        for number in our
    }
    assert sorted(homes) == [0, 1, 2, 3, 4, 5]
    assert (homes[0], homes[1], homes[2]) == (homes[3], homes[5], homes[4])


def test_rows_without_a_key_all_meet() -> None:
    assert list(share_numbers(KeyPartitioner(SCHEMA, [], 3), batch_of([("a", 1), ("b", 20)])).values()) == [
        [0, 1]
    ]


def test_slices_go_round() -> None:
    deal = PanePartitioner([TimeWindow(size=10, every=5)], 3)
    rows: list[tuple[str | None, int]] = [("a", time) for time in (0, 4, 5, 10, 15, -1)]
    assert share_numbers(deal, batch_of(rows)) == {0: [0, 1, 4], 1: [2], 2: [3, 5]}


def test_rows_go_round_across_batches() -> None:
    deal = RoundRobinPartitioner(3)
    assert share_numbers(deal, batch_of([("a", 0)] * 4)) == {0: [0, 3], 1: [1], 2: [2]}
    assert share_numbers(deal, batch_of([("a", 0)] * 3, start=4)) == {0: [6], 1: [4], 2: [5]}


def test_the_windows_of_a_key_go_round() -> None:
    deal = WindowPartitioner([TimeWindow(size=4, every=2)], SCHEMA, [], 3)
    partitions = deal.virtual_partitions(
        np.zeros(4, np.int64), np.array([0, 2, 4, 512]), np.zeros(4, np.int64)
    )
    assert partitions.tolist() == [0, 1, 2, 0]
    assert (partitions % deal.degree).tolist() == [0, 1, 2, 0]


@pytest.mark.slow
@LAW
@given(keyed_times, st.lists(time_windows, min_size=1, max_size=3), degrees)
def test_a_row_goes_to_its_home_and_to_the_owners_of_its_windows(
    rows: list[tuple[str | None, int]], windows: list[TimeWindow], degree: int
) -> None:
    deal, batch = WindowPartitioner(windows, SCHEMA, ["k"], degree), batch_of(rows)
    buckets = KeyPartitioner(SCHEMA, ["k"], degree).buckets(batch).tolist()
    expected: dict[int, list[int]] = {}
    for number, ((_, time), home) in enumerate(zip(rows, deal.replicas(batch).tolist(), strict=True)):
        owners = {
            (start // window.every + buckets[number]) % 256 % degree
            for window in windows
            for start in window.starts(time)
        }
        for replica in {home, *owners}:
            expected.setdefault(replica, []).append(number)
    assert share_numbers(deal, batch) == expected


@pytest.mark.parametrize("size", [250, 256, 300])
def test_a_row_of_more_windows_than_there_are_lanes_goes_to_every_replica_once(size: int) -> None:
    deal = WindowPartitioner([TimeWindow(size, 1)], SCHEMA, [], 7)
    rows: list[tuple[str | None, int]] = [("a", 0), ("a", 200), ("a", -77)]
    assert share_numbers(deal, batch_of(rows)) == {replica: [0, 1, 2] for replica in range(7)}


@pytest.mark.slow
@LAW
@given(keyed_times, st.lists(time_windows, min_size=1, max_size=3), degrees, st.data())
def test_a_row_goes_to_one_replica_unless_windows_are_dealt(
    rows: list[tuple[str | None, int]], windows: list[TimeWindow], degree: int, data: Any
) -> None:
    deals: list[Partitioner] = [
        KeyPartitioner(SCHEMA, ["k"], degree),
        PanePartitioner(windows, degree),
        RoundRobinPartitioner(degree),
    ]
    deal = data.draw(st.sampled_from(deals))
    counted = Counter(number for our in share_numbers(deal, batch_of(rows)).values() for number in our)
    assert counted == Counter(range(len(rows)))


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_every_bucket_of_keys_has_one_heir_and_every_lane_of_windows_goes_to_all(degree: int) -> None:
    by_key = KeyPartitioner(SCHEMA, ["k"], degree)
    assert [tuple(by_key.owners(bucket)) for bucket in range(256)] == [(b % degree,) for b in range(256)]
    by_window = WindowPartitioner([TimeWindow(4, 2)], SCHEMA, ["k"], degree)
    assert list(by_window.owners(7)) == list(range(degree))
    assert (
        PanePartitioner([TimeWindow(4, 2)], degree).owners(7),
        RoundRobinPartitioner(degree).owners(7),
    ) == ((), ())


def test_deals_say_what_goes_where() -> None:
    window = TimeWindow(10, 5)
    assert str(KeyPartitioner(SCHEMA, ["k"], 1)) == "rows by key to 1 replica"
    assert str(PanePartitioner([window], 3)) == "slices in turn to 3 replicas"
    assert str(RoundRobinPartitioner(2)) == "rows in turn to 2 replicas"
    assert str(WindowPartitioner([window], SCHEMA, [], 2)).startswith("windows in turn to 2 replicas; ")
