from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest
import xxhash

from penstock.errors import SchemaError
from penstock.expr import Expr, col, hash
from tests.support.evaluation import FAILED, run

A, B = col("a"), col("b")
STRING, I64 = pa.string(), pa.int64()


def chained(*parts: bytes) -> int:
    state = 42
    for part in parts:
        state = xxhash.xxh64_intdigest(part, state)
    return state - (1 << 64) if state >= 1 << 63 else state


def test_the_values_in_sparks_documentation() -> None:
    assert run(hash(A), ["ABC"], STRING) == [4105715581806190027]
    assert run(hash(A, B), ["ABC"], STRING, b=(["DEF"], STRING)) == [3233247871021311208]
    three = hash(A, B, col("c"))
    assert run(three, ["Spark"], STRING, b=([123], pa.int32()), c=([2], pa.int32())) == [5602566077635097486]


@pytest.mark.parametrize(
    ("value", "type", "data"),
    [
        (True, pa.bool_(), b"\x01\x00\x00\x00"),
        (-1, pa.int8(), b"\xff\xff\xff\xff"),
        (-2, pa.int16(), b"\xfe\xff\xff\xff"),
        (7, pa.int32(), struct.pack("<i", 7)),
        (-7, I64, struct.pack("<q", -7)),
        (1.5, pa.float32(), struct.pack("<f", 1.5)),
        (-1.5, pa.float64(), struct.pack("<d", -1.5)),
        (-0.0, pa.float64(), b"\x00" * 8),
        (-0.0, pa.float32(), b"\x00" * 4),
        (math.nan, pa.float64(), bytes.fromhex("000000000000f87f")),
        (math.nan, pa.float32(), bytes.fromhex("0000c07f")),
        (19782, pa.date32(), struct.pack("<i", 19782)),
        (-1, pa.timestamp("us", "UTC"), b"\xff" * 8),
        ("é" * 40, STRING, ("é" * 40).encode()),
        (b"", pa.binary(), b""),
    ],
)
def test_each_type_is_hashed_by_its_bytes(value: object, type: pa.DataType, data: bytes) -> None:
    assert run(hash(A), [value, None, value], type) == [chained(data), 42, chained(data)]


def test_every_nan_hashes_alike() -> None:
    strange = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
    assert math.isnan(strange)
    assert len(set(run(hash(A), [math.nan, -math.nan, strange], pa.float64()))) == 1


def test_null_leaves_the_hash_as_it_is() -> None:
    values = run(hash(A, B), ["x", None, None], STRING, b=([None, 5, None], I64))
    assert values == [chained(b"x"), chained(struct.pack("<q", 5)), 42]


def test_text_after_other_columns_takes_their_hash_as_its_seed() -> None:
    values = run(hash(A, B), [1, 2, 1, 1], I64, b=(["x", "x", "x", "y"], STRING))
    expected = [chained(struct.pack("<q", n), s) for n, s in ((1, b"x"), (2, b"x"), (1, b"x"), (1, b"y"))]
    assert values == expected


def test_hashing_a_failed_value_fails() -> None:
    failing: Expr = hash(1 // A)
    assert run(failing, [0, 1], I64) == [FAILED, chained(struct.pack("<q", 1))]


def test_a_hash_of_nothing_is_refused() -> None:
    with pytest.raises(SchemaError, match="nothing to hash"):
        hash()


def test_a_signalling_nan_hashes_like_any_other() -> None:
    (signalling,) = struct.unpack("<d", (0x7FF0000000000001).to_bytes(8, "little"))
    assert run(hash(A), [signalling], pa.float64()) == run(hash(A), [math.nan], pa.float64())
