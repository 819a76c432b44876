"""A hash of several values, equal to Spark's `xxhash64`: XXH64 over little-endian bytes, seed 42.

The hash so far is the seed of the next value; a null leaves it as it is. int8 to int32, bool and date are
hashed as four bytes, int64 and timestamp as eight, floats by their IEEE bits (-0.0 as 0.0, one NaN only),
text and binary by their bytes.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.columns import lift
from penstock.expr.node import Sees
from penstock.expr.signature import INT64, Operand, Signature, need
from penstock.expr.surface import Expr
from penstock.frozen import dataclass

SEED = 42


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hash(Expr):
    """The 64-bit hash of all values together; never null."""

    parts: tuple[Expr, ...]
    sees: ClassVar[Sees] = Sees.NULLS

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Any simple types in, int64 out."""
        for each in operands:
            need(
                self, each, _hashable, "simple values", "hash the fields one by one, or a decimal as float64"
            )
        types = tuple(INT64 if kind.is_null(each.type) else each.type for each in operands)
        return Signature(types, INT64)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: hash(col("a"), col("b"))."""
        return f"hash({', '.join(parts)})"


def hash(*expressions: object) -> Expr:
    """A 64-bit hash of the values, the same on every engine and as Spark's xxhash64.

    >>> from penstock.expr import col
    >>> hash(col("user"), col("page"))
    hash(col("user"), col("page"))
    """
    if not expressions:
        raise SchemaError("hash has nothing to hash", hint='hash(col("a"), col("b"))')
    return Hash(tuple(lift(each) for each in expressions))


def _hashable(type: pa.DataType) -> bool:
    return not (kind.is_nested(type) or kind.is_decimal(type))
