"""Buckets of keys: equal to Spark's pmod(xxhash64(columns...), 256), written out by hand here."""

from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from penstock.stages.keys.index import build_keys
from penstock.stages.keys.slots import BUCKETS, buckets_of


def chain_hashes(*parts: bytes) -> int:
    """The hash of values given as bytes: each hash is the seed of the next."""
    state = 42
    for part in parts:
        state = xxhash.xxh64_intdigest(part, state)
    return state


def buckets(*columns: pa.Array) -> list[int]:
    keys = build_keys([column.type for column in columns])
    buckets = keys.buckets_of(keys.assign(columns))
    assert buckets.dtype == np.uint8
    return [int(bucket) for bucket in buckets]


def test_the_hash_in_sparks_documentation() -> None:
    # xxhash64('Spark', array(123), 2) has a list; these are the plain ones that Spark prints.
    assert buckets(pa.array(["ABC"])) == [4105715581806190027 % 256]
    assert buckets(pa.array(["ABC"]), pa.array(["DEF"])) == [3233247871021311208 % 256]


def test_a_null_leaves_the_hash_as_it_is() -> None:
    assert buckets(pa.array([None], pa.string()), pa.array([5])) == [chain_hashes(struct.pack("<q", 5)) % 256]
    assert buckets(pa.array([None], pa.int8())) == [42]


def test_both_zeros_and_all_nans_are_in_one_bucket() -> None:
    zeros = buckets(pa.array([0.0, -0.0]))
    assert zeros == [chain_hashes(bytes(8)) % 256] * 2
    nan = chain_hashes(struct.pack("<Q", 0x7FF8000000000000)) % 256
    assert buckets(pa.array([float("nan"), -float("nan")])) == [nan, nan]


def test_short_decimals_are_hashed_as_eight_bytes() -> None:
    column = pa.array([Decimal("1.50"), Decimal("-1.50"), None], pa.decimal128(18, 2))
    expected = [chain_hashes(struct.pack("<q", n)) % 256 for n in (150, -150)]
    assert buckets(column) == [*expected, 42]


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("0", b"\x00"),
        ("1.27", b"\x7f"),
        ("1.28", b"\x00\x80"),
        ("-1.28", b"\x80"),
        ("-1.29", b"\xff\x7f"),
        ("184467440737095516.16", b"\x01" + bytes(8)),
    ],
)
def test_long_decimals_are_hashed_by_their_fewest_bytes_greatest_first(value: str, data: bytes) -> None:
    assert buckets(pa.array([Decimal(value)], pa.decimal128(38, 2))) == [chain_hashes(data) % 256]


def test_a_key_without_columns_is_in_the_bucket_of_the_seed() -> None:
    keys = build_keys([])
    assert keys.buckets_of(keys.assign([], n_rows=2)).tolist() == [42, 42]


def test_many_keys_fill_all_buckets_about_evenly() -> None:
    n = np.bincount(buckets(pa.array(np.arange(25_600))), minlength=256)
    assert len(n) == 256
    assert n.min() > 50
    assert n.max() < 150


@pytest.mark.parametrize("hashed", [0, 1, 255, 256, -1, -256, -257, 2**63 - 1, -(2**63)])
def test_the_bucket_is_the_remainder_taken_upwards(hashed: int) -> None:
    assert buckets_of(np.array([hashed])).tolist() == [hashed % BUCKETS]
