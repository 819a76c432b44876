"""The bucket of a key is the same in the JVM as in the stages, for every type that a key can have."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.engines.spark.jvm.partials import bucket
from penstock.stages.keys.slots import KeyBuckets
from tests.engines.spark.evaluate import frame
from tests.engines.spark.sample import rows
from tests.support.expressions import TYPES

HASHABLE = [name for name in TYPES if name not in ("list", "struct")]
WIDE = pa.decimal128(38, 4)


def buckets_on_spark(spark: Any, batch: pa.RecordBatch, keys: list[list[str]]) -> list[list[int]]:
    columns = [bucket(names).alias(f"b{i}") for i, names in enumerate(keys)]
    table = frame(spark, batch).select("n", *columns).toArrow().sort_by("n")
    return [table.column(f"b{i}").to_pylist() for i in range(len(keys))]


def buckets_in_stages(batch: pa.RecordBatch, names: list[str]) -> list[int]:
    columns = [batch.column(name) for name in names]
    found: list[int] = KeyBuckets([each.type for each in columns]).of(columns, batch.num_rows).tolist()
    return found


@pytest.mark.slow
def test_the_bucket_is_the_same_for_every_type_and_for_tuples(spark: Any) -> None:
    wide = [None, Decimal("0"), Decimal("-1"), Decimal("12345678901234567890123456789.1234"), Decimal("127")]
    batch = rows()
    tall = pa.array([wide[i % len(wide)] for i in range(batch.num_rows)], WIDE)
    batch = batch.append_column("wide", tall)
    keys = [[name] for name in (*HASHABLE, "wide")] + [["text", "i8"], ["f64", "time", "bool"], HASHABLE, []]
    for names, found in zip(keys, buckets_on_spark(spark, batch, keys), strict=True):
        assert found == buckets_in_stages(batch, names), names


@pytest.mark.slow
def test_null_nan_and_both_zeros_are_keys_of_one_bucket_each(spark: Any) -> None:
    values = [None, None, math.nan, -math.nan, 0.0, -0.0]
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.float64(), from_pandas=False)], ["k"])
    null, none, nan, other_nan, zero, minus_zero = buckets_on_spark(spark, batch, [["k"]])[0]
    assert (null, nan, zero) == (none, other_nan, minus_zero)
    assert null == 42
