"""Parts on their way between replicas: what they look like, and that they wait for replicas behind."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.operators import aggregates as spec
from penstock.operators.op import Stream
from penstock.operators.windows import KeyedWindows
from penstock.stages.patterns.partials import PartialAggregateStage
from penstock.stages.patterns.pattern import PARTIALS, Pattern, decompose
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext
from penstock.timing.units import TimeType
from penstock.timing.windows import sliding, tumbling

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64())])
UP = Stream(SCHEMA, TimeType(pa.int64(), "us"), ("k",))
NEVER = float("-inf")
OP = KeyedWindows(
    windows=sliding(10, 5), aggregates={"n": spec.count(), "mean": spec.mean("v"), "var": spec.var("v")}
)


def make_pattern(pattern: str, op: KeyedWindows = OP) -> Pattern:
    return decompose(op, UP, 2, lambda: StageContext("w", None, Accounts(), ManualClock()), pattern=pattern)


def batch(*rows: tuple[str, int, int | None]) -> Batch:
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    times = np.array([time for _, time, _ in rows], np.int64)
    return Batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), times)


def test_parts_of_slices_are_the_cells_of_registers() -> None:
    stage = make_pattern("paned").replicas[0]
    list(stage.on_batch(batch(("a", 1, 3), ("a", 2, None), ("b", 4, 7), ("a", 5, 1)), NEVER))
    ((port, parts),) = stage.on_watermark(7)
    assert port == PARTIALS
    assert parts.rows.to_pydict() == {
        "key_0": ["a", "b"],
        "window": [0, 0],
        "start": [0, 0],
        "watermark": [-(2**62), -(2**62)],
        "rows.0": [2, 1],
        "count of 0.0": [1, 1],
        "int sum of 0.0": [0, 0],
        "int sum of 0.1": [3, 7],
        "moments of 1.0": [1.0, 1.0],
        "moments of 1.1": [3.0, 7.0],
        "moments of 1.2": [0.0, 0.0],
    }


@pytest.mark.parametrize("pattern", ["paned", "map_reduce"])
def test_what_has_been_flushed_is_forgotten_and_more_may_come(pattern: str) -> None:
    op = KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()})
    whole = make_pattern(pattern, op)
    stage, (joining,) = whole.replicas[0], whole.final_stages
    assert isinstance(stage, PartialAggregateStage)
    for time in (1, 2):
        list(stage.on_batch(batch(("a", time, 0)), NEVER))
        for _, parts in stage.flush():
            list(joining.on_batch(parts, NEVER))
        assert list(stage.flush()) == []
        assert stage.snapshot() == {}
    ((_, results),) = joining.on_watermark(10)
    assert results.rows.to_pylist() == [{"k": "a", "window_start": 0, "window_end": 10, "n": 2}]


def test_a_row_that_missed_a_window_stays_out_of_it_though_its_replica_is_ahead() -> None:
    op = KeyedWindows(windows=sliding(10, 5), aggregates={"n": spec.count()})
    whole = make_pattern("paned", op)
    ahead, (joining,) = whole.replicas[0], whole.final_stages
    outputs = [
        *ahead.on_batch(batch(("a", 1, 0), ("a", 7, 0)), NEVER),
        *ahead.on_watermark(10),
        *ahead.on_batch(batch(("a", 8, 0)), 10),  # too late for [0, 10), in time for [5, 15)
        *ahead.on_watermark(15),
    ]
    for _, parts in outputs:
        assert list(joining.on_batch(parts, NEVER)) == []
    counted = [row["n"] for _, rows in joining.on_watermark(10) for row in rows.rows.to_pylist()]
    assert counted == [1, 2]  # [-5, 5) and [0, 10)
    counted = [row["n"] for _, rows in joining.on_watermark(15) for row in rows.rows.to_pylist()]
    assert counted == [2]


def test_results_of_a_replica_that_is_ahead_wait_for_the_others() -> None:
    whole = make_pattern("parallel", KeyedWindows(windows=tumbling(10), aggregates={"n": spec.count()}))
    (joining,) = whole.final_stages
    rows = batch(("a", 1, 0), ("a", 11, 0), ("a", 21, 0))
    output = []
    for number, share in whole.partitioner(rows):
        replica = whole.replicas[number]
        output += [*replica.on_batch(share, NEVER), *replica.on_watermark(30)]
    for _, results in reversed(output):
        assert list(joining.on_batch(results, NEVER)) == []
    starts = [
        [row["window_start"] for _, out in joining.on_watermark(watermark) for row in out.rows.to_pylist()]
        for watermark in (9, 20, 30)
    ]
    assert starts == [[], [0, 10], [20]]


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("keyed", ["keyed windows: rows by key to 2 replicas"]),
        (
            "parallel",
            [
                "parallel windows: windows in turn to 2 replicas; a row to all that have one of its windows",
                "their results are put in order by 1: rows by key to 1 replica",
            ],
        ),
        (
            "paned",
            [
                "paned windows: slices in turn to 2 replicas",
                "their partials are merged by 1: rows by key to 1 replica",
            ],
        ),
    ],
)
def test_a_pattern_says_who_gets_what(pattern: str, lines: list[str]) -> None:
    assert make_pattern(pattern).explain() == lines
