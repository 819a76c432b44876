"""Slices are numbered in the JVM as in the stages, before and after 1970."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from penstock.engines.spark.jvm_partials import slice_end, slice_start
from penstock.timing.slices import Slicing
from penstock.timing.units import LIMIT
from penstock.timing.windows import TimeWindow

SLICINGS = [
    Slicing.of([TimeWindow(size=10, every=10)]),
    Slicing.of([TimeWindow(size=10, every=3)]),
    Slicing.of([TimeWindow(size=3, every=10)]),
    Slicing.of([TimeWindow(10_000_000, 3_001_000)]),
    Slicing.of([TimeWindow(60, 60), TimeWindow(7, 4), TimeWindow(12, 5)]),
]
TIMES = [0, 1, -1, 9, 10, -9, -10, -11, 59, 60, -60, -61, 1_700_000_000_123_456, -1_700_000_000_123_456]
TIMES += [LIMIT, -LIMIT, LIMIT - 1, 1 - LIMIT, *range(-130, 130, 7)]


@pytest.mark.slow
def test_slice_starts_and_ends_are_those_of_the_stages(spark: Any) -> None:
    table = pa.table({"n": pa.array(range(len(TIMES)), pa.int64()), "t": pa.array(TIMES, pa.int64())})
    columns = []
    for i, slicing in enumerate(SLICINGS):
        columns += [slice_start(F.col("t"), slicing).alias(f"start{i}")]
        columns += [slice_end(F.col("t"), slicing).alias(f"end{i}")]
    rows = spark.createDataFrame(table).select("n", *columns).toArrow().sort_by("n")
    for i, slicing in enumerate(SLICINGS):
        ids = [slicing.id_of(time) for time in TIMES]
        assert rows.column(f"start{i}").to_pylist() == [slicing.start_of(number) for number in ids], slicing
        assert rows.column(f"end{i}").to_pylist() == [slicing.start_of(number + 1) for number in ids], slicing


def test_the_longest_sharing_of_slices_is_among_those_tried() -> None:
    assert max(len(slicing.offsets) for slicing in SLICINGS) > 16
