"""The hash of several values, and expressions in Spark's own SQL.

The hash equals Spark's `xxhash64`: XXH64 over little-endian bytes, seed 42. The
hash so far is the seed of the next value; a null leaves it unchanged. int8 to int32, bool and date are hashed
as four bytes, int64 and timestamp as eight, floats by their IEEE bits (-0.0 as 0.0, one NaN only), text and
binary by their bytes.

Spark SQL is for what this language does not say, and is refused by every other engine before a run. The text
is the program's own, never put together from data; Penstock inserts nothing into it.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import InputHandling, is_nonempty_text
from penstock.expr.nodes.columns import to_expr
from penstock.expr.signature import INT64, Operand, Signature, require_type
from penstock.expr.surface import Expr
from penstock.expr.types import parse_type
from penstock.expr.values import type_name
from penstock.frozen import dataclass

SEED = 42


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hash(Expr):
    """The 64-bit hash of all values together; never null."""

    parts: tuple[Expr, ...]
    input_handling: ClassVar[InputHandling] = InputHandling.NULLS

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require values that are not nested; the result is int64."""
        for item in operands:
            require_type(
                self, item, _hashable, "simple values", "hash the fields one by one, or a decimal as float64"
            )
        types = tuple(INT64 if kind.is_null(item.type) else item.type for item in operands)
        return Signature(types, INT64)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `hash(col("a"), col("b"))`."""
        return f"hash({', '.join(parts)})"


def hash(*expressions: object) -> Expr:
    """Return a 64-bit hash of the values, the same on every engine and as Spark's xxhash64.

    >>> from penstock.expr import col
    >>> hash(col("user"), col("page"))
    hash(col("user"), col("page"))
    """
    if not expressions:
        raise SchemaError("hash has nothing to hash", hint='hash(col("a"), col("b"))')
    return Hash(tuple(to_expr(value) for value in expressions))


def _hashable(type: pa.DataType) -> bool:
    return not (kind.is_nested(type) or kind.is_decimal(type))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparkSql(Expr):
    """Spark SQL text with the type that it gives."""

    sql: str
    type: pa.DataType

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Return the declared type, which only Spark could check."""
        return Signature((), self.type)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `spark_expr("soundex(name)", "string")`."""
        import json  # every program loads this file, and few have such an expression

        return f'spark_expr({json.dumps(self.sql, ensure_ascii=False)}, "{type_name(self.type)}")'


def spark_expr(sql: str, type: object) -> Expr:
    """Return an expression in Spark SQL with its declared type, which runs on Spark only.

    >>> spark_expr("soundex(name)", "string")
    spark_expr("soundex(name)", "string")
    """
    if not is_nonempty_text(sql) or not sql.strip():
        raise SchemaError(f"spark_expr({sql!r}) is no SQL", hint='spark_expr("soundex(name)", "string")')
    return SparkSql(sql, parse_type(type))
