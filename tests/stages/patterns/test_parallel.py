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


def make_pattern(degree: int, pattern: str = "parallel") -> Pattern:
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


def save_state(pattern: Pattern) -> dict[int, bytes]:
    pieces: dict[int, bytes] = {}
    for replica in pattern.replicas:
        new = replica.snapshot()
        assert not pieces.keys() & new.keys()
        pieces |= new
    return pieces


def load_state(pieces: dict[int, bytes], degree: int) -> Pattern:
    pattern = make_pattern(degree)
    for replica in pattern.replicas:
        replica.restore(pieces)
    return pattern


def test_every_slice_is_saved_by_one_replica_however_many_have_it() -> None:
    by_degree = []
    for degree in (1, 2, 3, 5):
        pattern = make_pattern(degree)
        assert push(pattern, 1, 6, 7, 12, watermark=0) == []
        by_degree.append(save_state(pattern))
    first, *rest = by_degree
    assert len(first) == 3  # slices [0, 5), [5, 10) and [10, 15)
    assert all(other == first for other in rest)


def test_a_snapshot_has_the_lanes_that_changed_since_the_last() -> None:
    pattern = make_pattern(2)
    push(pattern, 1, 6, 12, watermark=0)
    first = save_state(pattern)
    assert save_state(pattern) == {}
    push(pattern, 13, watermark=0)
    second = save_state(pattern)
    assert len(second) == 1
    assert second.keys() <= first.keys()


def test_windows_that_left_after_a_lane_was_saved_do_not_leave_again() -> None:
    pattern = make_pattern(2)
    push(pattern, 1, 6, 12, watermark=0)
    pieces = save_state(pattern)
    assert push(pattern, watermark=10) == [(-5, 1), (0, 2)]
    pieces |= save_state(pattern)  # the slice [5, 10) is saved no second time, and two windows hold it
    again = load_state(pieces, 3)
    assert push(again, watermark=10) == []
    assert push(again, 14, watermark=20) == [(5, 3), (10, 2)]


def test_state_goes_from_one_number_of_replicas_to_another_and_back() -> None:
    pattern = make_pattern(4)
    push(pattern, 1, 6, 12, watermark=0)
    pieces = save_state(pattern)
    for degree in (1, 3, 2):
        pattern = load_state(pieces, degree)
        push(pattern, 3, watermark=0)
        pieces |= save_state(pattern)
    assert push(pattern, watermark=30) == [(-5, 4), (0, 5), (5, 2), (10, 1)]


@pytest.mark.slow
def test_what_no_window_of_a_replica_holds_is_not_kept_there() -> None:
    pattern = make_pattern(1)
    push(pattern, 1, 101, 201, watermark=0)
    wide = load_state(save_state(pattern), 200)
    replicas = [replica for replica in wide.replicas if replica.snapshot() or list(replica.drain())]
    assert len(replicas) == 6  # each row is in two windows, and here every window has an owner of its own


def test_state_of_another_pattern_is_refused_by_name() -> None:
    (keyed,) = make_pattern(1, "keyed").replicas
    list(keyed.on_batch(Batch(pa.RecordBatch.from_pydict({"t": [1]}, SCHEMA), np.array([1])), 0))
    (stage,) = make_pattern(1).replicas
    with pytest.raises(CheckpointError) as refused:
        stage.restore(keyed.snapshot())
    assert refused.value.detail == "saved: windows by key; now: windows by virtual partition"
