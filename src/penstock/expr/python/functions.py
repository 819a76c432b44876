"""The hash in plain Python: bytes by the rules of `expr/nodes/functions.py`, hashed by the xxhash library."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pyarrow.types as kind
import xxhash

from penstock.expr.nodes.functions import SEED, Hash
from penstock.expr.program import Function, Instruction, Rules


def bytes_of(value: object, type: pa.DataType) -> bytes:
    """Returns the bytes that stand for a plain value."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        normal = math.nan if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
        return struct.pack("<f" if kind.is_float32(type) else "<d", normal)
    assert isinstance(value, int)
    return value.to_bytes(8 if type.bit_width == 64 else 4, "little", signed=True)


def _hash(node: Hash, out: Instruction) -> Function:
    def hash_values(*values: object) -> int:
        state = SEED
        for value, type in zip(values, out.operands, strict=True):
            if value is not None:
                state = xxhash.xxh64_intdigest(bytes_of(value, type), state)
        return state - (1 << 64) if state >= 1 << 63 else state

    return hash_values


RULES: Rules = {Hash: _hash}
