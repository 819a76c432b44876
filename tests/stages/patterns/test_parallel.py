"""Parallel windows save by lane: each slice once, only what changed, and nothing that has left comes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import CheckpointError
from penstock.operators import aggregates as spec
from penstock.operators.op import Stream
from penstock.operators.windows import KeyedWindows
from penstock.stages.patterns.pattern import Pattern, decompose
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext
from penstock.timing.units import TimeType
from penstock.timing.windows import sliding

SCHEMA = pa.schema([("t", pa.int64())])
UP = Stream(SCHEMA, TimeType(pa.int64(), "us"))
OP = KeyedWindows(windows=sliding(10, 5), aggregates={"n": spec.count()})


def made(degree: int, pattern: str = "parallel") -> Pattern:
    return decompose(
        OP, UP, degree, lambda: StageContext("w", None, Accounts(), ManualClock()), pattern=pattern
    )


def push(pattern: Pattern, *times: int, watermark: float) -> list[tuple[int, int]]:
    """(window_start, n) of the windows that leave at the watermark after these rows, replica by replica."""
    rows = pa.RecordBatch.from_arrays([pa.array(times, pa.int64())], schema=SCHEMA)
    for number, share in pattern.partitioner(Batch(rows, np.array(times, np.int64))):
        list(pattern.replicas[number].on_batch(share, float("-inf")))
    results = [out for replica in pattern.replicas for _, out in replica.on_watermark(watermark)]
    return sorted((row["window_start"], row["n"]) for out in results for row in out.rows.to_pylist())


def saved(pattern: Pattern) -> dict[int, bytes]:
    pieces: dict[int, bytes] = {}
    for replica in pattern.replicas:
        new = replica.snapshot()
        assert not pieces.keys() & new.keys()
        pieces |= new
    return pieces


def moved(pieces: dict[int, bytes], degree: int) -> Pattern:
    pattern = made(degree)
    for replica in pattern.replicas:
        replica.restore(pieces)
    return pattern


def test_every_slice_is_saved_by_one_replica_however_many_have_it() -> None:
    by_degree = []
    for degree in (1, 2, 3, 5):
        pattern = made(degree)
        assert push(pattern, 1, 6, 7, 12, watermark=0) == []
        by_degree.append(saved(pattern))
    first, *rest = by_degree
    assert len(first) == 3  # slices [0, 5), [5, 10) and [10, 15)
    assert all(other == first for other in rest)


def test_a_snapshot_has_the_lanes_that_changed_since_the_last() -> None:
    pattern = made(2)
    push(pattern, 1, 6, 12, watermark=0)
    first = saved(pattern)
    assert saved(pattern) == {}
    push(pattern, 13, watermark=0)
    second = saved(pattern)
    assert len(second) == 1
    assert second.keys() <= first.keys()


def test_windows_that_left_after_a_lane_was_saved_do_not_leave_again() -> None:
    pattern = made(2)
    push(pattern, 1, 6, 12, watermark=0)
    pieces = saved(pattern)
    assert push(pattern, watermark=10) == [(-5, 1), (0, 2)]
    pieces |= saved(pattern)  # the slice [5, 10) is saved no second time, and two windows hold it
    again = moved(pieces, 3)
    assert push(again, watermark=10) == []
    assert push(again, 14, watermark=20) == [(5, 3), (10, 2)]


def test_state_goes_from_one_number_of_replicas_to_another_and_back() -> None:
    pattern = made(4)
    push(pattern, 1, 6, 12, watermark=0)
    pieces = saved(pattern)
    for degree in (1, 3, 2):
        pattern = moved(pieces, degree)
        push(pattern, 3, watermark=0)
        pieces |= saved(pattern)
    assert push(pattern, watermark=30) == [(-5, 4), (0, 5), (5, 2), (10, 1)]


@pytest.mark.slow
def test_what_no_window_of_a_replica_holds_is_not_kept_there() -> None:
    pattern = made(1)
    push(pattern, 1, 101, 201, watermark=0)
    wide = moved(saved(pattern), 200)
    replicas = [replica for replica in wide.replicas if replica.snapshot() or list(replica.drain())]
    assert len(replicas) == 6  # each row is in two windows, and here every window has an owner of its own


def test_state_of_another_pattern_is_refused_by_name() -> None:
    (keyed,) = made(1, "keyed").replicas
    list(keyed.on_batch(Batch(pa.RecordBatch.from_pydict({"t": [1]}, SCHEMA), np.array([1])), 0))
    (stage,) = made(1).replicas
    with pytest.raises(CheckpointError) as refused:
        stage.restore(keyed.snapshot())
    assert refused.value.detail == "saved: windows by key; now: windows by virtual partition"
