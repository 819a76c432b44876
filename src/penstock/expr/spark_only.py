"""The way out: an expression in Spark's own SQL, for what this language does not say.

It is refused by every other engine before a run. The text is the program's own, never put together from
data; Penstock pastes nothing into it.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import SchemaError
from penstock.expr.declared import declared_type
from penstock.expr.node import is_text
from penstock.expr.signature import Operand, Signature
from penstock.expr.surface import Expr
from penstock.expr.values import type_name
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SparkSql(Expr):
    """Spark SQL text with the type that it gives."""

    sql: str
    type: pa.DataType

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """As declared: only Spark could say."""
        return Signature((), self.type)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: spark_expr("soundex(name)", "string")."""
        import json  # every program loads this file, and few have such an expression

        return f'spark_expr({json.dumps(self.sql, ensure_ascii=False)}, "{type_name(self.type)}")'


def spark_expr(sql: str, type: object) -> Expr:
    """An expression in Spark SQL, of the type declared; runs on Spark only.

    >>> spark_expr("soundex(name)", "string")
    spark_expr("soundex(name)", "string")
    """
    if not is_text(sql) or not sql.strip():
        raise SchemaError(f"spark_expr({sql!r}) is no SQL", hint='spark_expr("soundex(name)", "string")')
    return SparkSql(sql, declared_type(type))
