"""Arithmetic and the hash."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest
import xxhash

from penstock.errors import RowFailure, SchemaError
from penstock.expr import Expr, col, hash, lit, lower_python
from tests.support.evaluation import FAILED, run, same

A, B = col("a"), col("b")
I8, I64, F32, F64 = pa.int8(), pa.int64(), pa.float32(), pa.float64()
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
NAN, INF = math.nan, math.inf


def test_integers_fail_the_row_when_they_overflow() -> None:
    assert run(A + 1, [126, 127, None], I8) == [127, FAILED, None]
    assert run(A - 1, [-127, -128], I8) == [-128, FAILED]
    assert run(A * 2, [63, 64, -64, -65], I8) == [126, FAILED, -128, FAILED]
    assert run(A + B, [GREATEST, LEAST, GREATEST], I64, b=([1, -1, LEAST], I64)) == [FAILED, FAILED, -1]
    assert run(A - B, [LEAST, -1, 0], I64, b=([1, LEAST, LEAST], I64)) == [FAILED, GREATEST, FAILED]
    assert run(A * B, [LEAST, 1 << 32, 3037000500], I64, b=([-1, 1 << 31, 3037000500], I64)) == [FAILED] * 3
    assert run(A * B, [-(1 << 32), LEAST, 0], I64, b=([1 << 31, 1, LEAST], I64)) == [LEAST, LEAST, 0]
    assert run(-A, [LEAST, 5], I64) == [FAILED, -5]
    assert run(A.abs(), [-128, -127], I8) == [FAILED, 127]


def test_a_small_literal_does_not_widen_and_a_large_one_does() -> None:
    assert run(A + 1, [127], I8) == [FAILED]
    assert run(A + 1000, [127], I8) == [1127]


def test_floor_division_and_modulo_follow_python() -> None:
    assert run(A // 3, [7, -7, None], I64) == [2, -3, None]
    assert run(A % 3, [7, -7], I64) == [1, 2]
    assert run(A % -3, [7, -7], I64) == [-2, -1]
    assert run(A // B, [LEAST, LEAST], I64, b=([-1, 1], I64)) == [FAILED, LEAST]
    assert run(A % B, [LEAST], I64, b=([-1], I64)) == [0]
    assert run(A // 0.5, [7.25, -7.25], F64) == [14.0, -15.0]
    assert run(A % 2.0, [-0.5, 5.5], F64) == [1.5, 1.5]


def test_division_is_true_division() -> None:
    assert run(A / 2, [1, 3, None], I8) == [0.5, 1.5, None]


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_a_zero_divisor_fails_the_row_for_floats_too(zero: float) -> None:
    for expr in (A / zero, A // zero, A % zero):
        assert run(expr, [1.0, NAN, None], F64) == [FAILED, FAILED, None]


def test_null_divided_by_zero_is_null() -> None:
    assert run(A // B, [None, 1], I64, b=([0, None], I64)) == [None, None]


def test_float32_stays_float32() -> None:
    assert run(A + 0.1, [1.0], F32) == [1.100000023841858]


def test_power_and_square_root_never_fail() -> None:
    assert run(A**2, [3, -3], I64) == [9.0, 9.0]
    assert run(A**-1, [0.0, -0.0, 2.0], F64) == [INF, -INF, 0.5]
    assert run(A**-2, [-0.0], F64) == [INF]
    assert run(A**1e6, [10.0, -10.0], F64) == [INF, INF]
    assert run(A**1001, [-1e10], F64) == [-INF]
    assert same(run(A**0.5, [-1.0, 4.0], F64), [NAN, 2.0])
    assert same(run(A.sqrt(), [-1.0, 4.0, -0.0, INF], F64), [NAN, 2.0, -0.0, INF])


def test_rounding_takes_halves_to_even() -> None:
    assert run(A.round(), [0.5, 1.5, -2.5, 2.4], F64) == [0.0, 2.0, -2.0, 2.0]
    assert run(A.round(2), [2.675, 1.005, 0.125, 1e300], F64) == [2.68, 1.0, 0.12, 1e300]
    assert same(run(A.round(1), [NAN, INF, -0.04], F64), [NAN, INF, -0.0])
    assert run(A.round(2), [5], I64) == [5]


def test_floor_and_ceil_keep_the_type() -> None:
    assert run(A.floor(), [1.5, -1.5], F32) == [1.0, -2.0]
    assert same(run(A.ceil(), [1.5, -0.5, NAN, -INF], F64), [2.0, -0.0, NAN, -INF])
    assert run(A.floor(), [7], I8) == [7]


@pytest.mark.parametrize("digits", [-1, 16, 1.5, True, "2"])
def test_digits_that_round_does_not_know_are_refused(digits: int) -> None:
    with pytest.raises(SchemaError, match="digits is not defined"):
        A.round(digits)


def test_a_failure_says_why() -> None:
    schema = pa.schema({"a": I8})
    with pytest.raises(RowFailure, match="128 overflows int8"):
        lower_python(A + 1, schema)({"a": 127})
    with pytest.raises(RowFailure, match="division by zero"):
        lower_python(1 / A, schema)({"a": 0})


@pytest.mark.parametrize("divisor", [0, -1, -3, 3])
@pytest.mark.parametrize("type_", [pa.int8(), pa.int64()])
def test_a_literal_divides_as_a_column_does(divisor: int, type_: pa.DataType) -> None:
    least = -(2 ** (type_.bit_width - 1))
    values = [least, -7, 0, 7, None]
    for expr in (col("a") // lit(divisor, type_), col("a") % lit(divisor, type_)):
        by_column = col("a") // col("b") if "//" in str(expr) else col("a") % col("b")
        expected = run(by_column, values, type_, b=([divisor] * 5, type_))
        assert run(expr, values, type_) == expected


A, B = col("a"), col("b")
STRING, I64 = pa.string(), pa.int64()


def chain_hashes(*parts: bytes) -> int:
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
    assert run(hash(A), [value, None, value], type) == [chain_hashes(data), 42, chain_hashes(data)]


def test_every_nan_hashes_alike() -> None:
    strange = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
    assert math.isnan(strange)
    assert len(set(run(hash(A), [math.nan, -math.nan, strange], pa.float64()))) == 1


def test_null_leaves_the_hash_as_it_is() -> None:
    values = run(hash(A, B), ["x", None, None], STRING, b=([None, 5, None], I64))
    assert values == [chain_hashes(b"x"), chain_hashes(struct.pack("<q", 5)), 42]


def test_text_after_other_columns_takes_their_hash_as_its_seed() -> None:
    values = run(hash(A, B), [1, 2, 1, 1], I64, b=(["x", "x", "x", "y"], STRING))
    expected = [
        chain_hashes(struct.pack("<q", n), s) for n, s in ((1, b"x"), (2, b"x"), (1, b"x"), (1, b"y"))
    ]
    assert values == expected


def test_hashing_a_failed_value_fails() -> None:
    failing: Expr = hash(1 // A)
    assert run(failing, [0, 1], I64) == [FAILED, chain_hashes(struct.pack("<q", 1))]


def test_a_hash_of_nothing_is_refused() -> None:
    with pytest.raises(SchemaError, match="nothing to hash"):
        hash()


def test_a_signalling_nan_hashes_like_any_other() -> None:
    (signalling,) = struct.unpack("<d", (0x7FF0000000000001).to_bytes(8, "little"))
    assert run(hash(A), [signalling], pa.float64()) == run(hash(A), [math.nan], pa.float64())
