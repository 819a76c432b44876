"""Groups that Spark made, as parts: told apart from wire rows, by round, with fates and misses counted."""

from __future__ import annotations

import math

import pyarrow as pa

from penstock.engines.spark.jvm.groups import GroupForm, apart, grouped
from penstock.engines.spark.wire import SCHEMA

PARTS = pa.schema(
    [
        ("key_0", pa.string()),
        ("window", pa.int64()),
        ("start", pa.int64()),
        ("watermark", pa.int64()),
        ("rows.0", pa.int64()),
        ("most of 0.0", pa.int64()),
        ("least of 0.0", pa.int64()),
    ]
)
FORM = GroupForm("s", 7, "w", PARTS, ("key_0",), (("r0_0", 0), ("r1_0", 1), ("r2_0", -1)), 1)


def batch() -> pa.RecordBatch:
    """A wire row; of round 4 a key, late rows and rows that were dropped; of round 5 a key without values."""
    return pa.RecordBatch.from_pydict(
        {
            "fragment": pa.array([1, 1, 1, 1, 1], pa.int32()),
            "edge": pa.array([-1, 7, 7, 7, 7], pa.int32()),
            "round": pa.array([5, 4, 4, 4, 5], pa.int32()),
            "part": pa.array([0, 0, 0, 0, 0], pa.int32()),
            "body": pa.array([None] * 5, pa.binary()),
            "fate": pa.array([None, 0, -2, 1, 0], pa.int32()),
            "judged": pa.array([None, 90, 90, 90, 100], pa.int64()),
            "key_0": pa.array([None, "a", None, None, None], pa.string()),
            "start": pa.array([None, 80, None, None, 90], pa.int64()),
            "r0_0": pa.array([None, 3, 2, 6, 1], pa.int64()),
            "r1_0": pa.array([None, math.nan, 5.0, 5.0, None], pa.float64()),
            "r2_0": pa.array([None, -1.5, 5.0, 5.0, None], pa.float64()),
            "missed0": pa.array([None, 1, 4, 9, 0], pa.int64()),
        }
    )


def test_groups_are_told_apart_from_wire_rows() -> None:
    wire, groups = apart(batch(), FORM)
    assert wire.select(SCHEMA.names).to_pylist() == [
        {"fragment": 1, "edge": -1, "round": 5, "part": 0, "body": None}
    ]
    assert groups.num_rows == 4


def test_living_groups_become_parts_and_the_others_are_counted() -> None:
    _, groups = apart(batch(), FORM)
    four, five = grouped(groups, FORM)
    assert (four.round, five.round) == (4, 5)
    assert four.told == {"source": "s", "fates": {"-2": 2, "0": 3, "1": 6}, "missed": {"0": 5}}
    (part,) = four.parts.rows.to_pylist()
    assert [part[name] for name in ("key_0", "window", "start", "watermark", "rows.0")] == ["a", 0, 80, 90, 3]
    assert four.parts.times.tolist() == [80]


def test_extremes_of_floats_are_kept_in_their_order_and_nothing_as_the_least_of_all() -> None:
    _, groups = apart(batch(), FORM)
    four, five = grouped(groups, FORM)
    nan, least = (four.parts.rows.column(name)[0].as_py() for name in ("most of 0.0", "least of 0.0"))
    bits = pa.array([1.5]).view(pa.int64())[0].as_py()
    assert nan > pa.array([math.inf]).view(pa.int64())[0].as_py()
    assert least == ~-bits
    assert [five.parts.rows.column(name)[0].as_py() for name in ("most of 0.0", "least of 0.0")] == [
        -(2**63)
    ] * 2
