"""Saved windows brought from one form into the other: nothing is lost, and what has no other form says so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.operators import aggregates as spec
from penstock.operators.op import Stream
from penstock.operators.windows import KeyedWindows
from penstock.stages.patterns.parallel import Pieces, convert_state, form_of
from penstock.stages.patterns.partials import PartialAggregateStage
from penstock.stages.patterns.pattern import decompose
from penstock.stages.rows.batch import Batch
from penstock.stages.snapshot import BY_KEY, BY_PARTITION
from penstock.stages.stage import StageContext
from penstock.timing.units import TimeType
from penstock.timing.windows import sliding

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64())])
UP = Stream(SCHEMA, TimeType(pa.int64(), "us"), ("k",))
OP = KeyedWindows(windows=sliding(10, 5), aggregates={"n": spec.count(), "t": spec.collect("t")})
COUNTED = KeyedWindows(windows=sliding(10, 5), aggregates={"n": spec.count()})


def site() -> StageContext:
    return StageContext("w", None, Accounts(), ManualClock())


def save_state(pattern: str, op: KeyedWindows = OP) -> Pieces:
    """What three replicas of a pattern save of three keys."""
    plan = decompose(op, UP, 3, site, pattern=pattern)
    times = np.arange(30, dtype=np.int64)
    rows = pa.RecordBatch.from_arrays([pa.array(list("abc") * 10), pa.array(times)], schema=SCHEMA)
    for number, share in plan.partitioner(Batch(rows, times)):
        replica = plan.replicas[number]
        assert list(replica.on_batch(share, float("-inf"))) == []
        if isinstance(replica, PartialAggregateStage):
            for _, parts in replica.flush():
                list(plan.final_stages[0].on_batch(parts, float("-inf")))
    stages, _ = plan.stateful_stages
    return {bucket: piece for stage in stages for bucket, piece in stage.snapshot().items()}


def test_pieces_by_key_are_pieces_by_window_and_back() -> None:
    by_key, by_partition = save_state("keyed"), save_state("parallel")
    assert {form_of(piece, "w") for piece in by_key.values()} == {BY_KEY}
    assert {form_of(piece, "w") for piece in by_partition.values()} == {BY_PARTITION}
    assert len(by_key) == 3
    assert len(by_partition) > 3
    assert set(convert_state(by_key, BY_PARTITION, OP, UP, site())) == set(by_partition)
    assert set(convert_state(by_partition, BY_KEY, OP, UP, site())) == set(by_key)


def results(pieces: Pieces) -> list[tuple[str, int, int, list[int]]]:
    """What a keyed stage makes of pieces by key, at the end."""
    (stage,) = decompose(OP, UP, 1, site).replicas
    stage.restore(pieces)
    rows = [row for _, out in stage.drain() for row in out.rows.to_pylist()]
    return [(row["k"], row["window_start"], row["n"], row["t"]) for row in rows]


def test_there_and_back_is_as_if_nothing_had_been_done() -> None:
    by_key = save_state("keyed")
    again = convert_state(convert_state(by_key, BY_PARTITION, OP, UP, site()), BY_KEY, OP, UP, site())
    assert results(again) == results(by_key)
    assert results(convert_state(save_state("parallel"), BY_KEY, OP, UP, site())) == results(by_key)
    assert len(results(by_key)) == 3 * 7


def test_what_has_the_form_already_stays_as_it_is() -> None:
    by_key = save_state("keyed")
    assert convert_state(by_key, BY_KEY, OP, UP, site()) is by_key
    assert convert_state({}, BY_PARTITION, OP, UP, site()) == {}


@pytest.mark.parametrize("pattern", ["paned", "map_reduce"])
def test_windows_of_partials_are_saved_by_key(pattern: str) -> None:
    assert {form_of(piece, "w") for piece in save_state(pattern, COUNTED).values()} == {BY_KEY}
    pieces = convert_state(save_state(pattern, COUNTED), BY_PARTITION, COUNTED, UP, site())
    assert set(pieces) == set(convert_state(save_state("keyed", COUNTED), BY_PARTITION, COUNTED, UP, site()))
