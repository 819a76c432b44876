"""Choices, null tests and logic: the nodes that say themselves what comes of nulls and failures.

- `when(condition).then(value).when(…).then(…).otherwise(value)`: conditions are tested in order; a null one
  does not hold. Only the conditions tested and the value taken can fail the row. Without `otherwise` the
  default is null.
- `coalesce` and `fill_null` take the first value that is not null; what comes after it cannot fail the row. A
  failure before it does.
- `&`, `|` and `~` are three-valued: `False & null` is False, `True | null` is True, else null stays null.
  Failures are treated in the same way: `False & failed` is False in either order, `True | failed` is True.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import InputHandling, operand_text
from penstock.expr.nodes.columns import lit, to_expr
from penstock.expr.signature import BOOL, Operand, Signature, common_type, require_type
from penstock.expr.surface import Expr, MethodCall
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Case(Expr):
    """The value beside the first condition that holds, else the default."""

    conditions: tuple[Expr, ...]
    values: tuple[Expr, ...]
    default: Expr
    input_handling: ClassVar[InputHandling] = InputHandling.FAILURES

    def when(self, condition: object) -> When:
        """Add a condition, which counts if none before it holds."""
        return When(to_expr(condition), self)

    def otherwise(self, value: object) -> Case:
        """Set the value for rows where no condition holds."""
        return Case(self.conditions, self.values, to_expr(value))

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Conditions are true or false; all values meet on one type."""
        conditions, values = operands[: len(self.conditions)], operands[len(self.conditions) :]
        for condition in conditions:
            require_type(
                self,
                condition,
                kind.is_boolean,
                "conditions",
                'compare it with something: when(col("a") > 0)',
            )
        met = common_type(self, values, "cast one of the values, so that all have one type")
        return Signature((BOOL,) * len(conditions) + (met,) * len(values), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `when(col("a") > 1).then("big").otherwise("small")`."""
        count = len(self.conditions)
        pairs = zip(parts[:count], parts[count : 2 * count], strict=True)
        chain = ".".join(f"when({condition}).then({value})" for condition, value in pairs)
        return f"{chain}.otherwise({parts[-1]})"


@dataclass(frozen=True, slots=True)
class When:
    """A condition that still lacks its value: only `then` is possible."""

    condition: Expr
    before: Case | None = None

    def then(self, value: object) -> Case:
        """Set the value for rows where the condition holds."""
        if self.before is None:
            return Case((self.condition,), (to_expr(value),), lit(None))
        before = self.before
        return Case((*before.conditions, self.condition), (*before.values, to_expr(value)), before.default)


def when(condition: object) -> When:
    """Begin a choice.

    >>> from penstock.expr import col
    >>> when(col("a") > 1).then("big").otherwise("small")
    when(col("a") > 1).then("big").otherwise("small")
    """
    return When(to_expr(condition))


_HINT = "cast one of them, so that all have one type"
_LOGIC_HINT = '& | ~ bind more tightly than == < >; write (col("a") > 1) & (col("b") > 2)'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NullTest(MethodCall):
    """A question about one value of any type."""

    name: ClassVar[str]
    input_handling: ClassVar[InputHandling] = InputHandling.NULLS

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Accept any type; the result is a boolean."""
        if kind.is_null(operands[0].type):
            common_type(self, operands, _HINT)
        return Signature((operands[0].type,), BOOL)

    def _call_text(self, *arguments: str) -> str:
        return f"{self.name}()"


class IsNull(NullTest):
    """Whether the value is null."""

    name = "is_null"


class IsNotNull(NullTest):
    """Whether the value is not null."""

    name = "is_not_null"


class IsNan(NullTest):
    """Whether the value is NaN; null for null."""

    name = "is_nan"
    input_handling = InputHandling.STRICT

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a float; the result is a boolean."""
        require_type(self, operands[0], kind.is_floating, "a float", "only floats can be NaN; use .is_null()")
        return NullTest.signature(self, operands)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FillNull(MethodCall):
    """The value, or the other where it is null."""

    other: Expr
    input_handling: ClassVar[InputHandling] = InputHandling.FAILURES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Convert both to their common type."""
        met = common_type(self, operands, _HINT)
        return Signature((met, met), met)

    def _call_text(self, *arguments: str) -> str:
        return f"fill_null({arguments[0]})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coalesce(Expr):
    """The first value that is not null."""

    parts: tuple[Expr, ...]
    input_handling: ClassVar[InputHandling] = InputHandling.FAILURES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Convert all to their common type."""
        met: pa.DataType = common_type(self, operands, _HINT)
        return Signature((met,) * len(operands), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `coalesce(col("a"), col("b"))`."""
        return f"coalesce({', '.join(parts)})"


def coalesce(*expressions: object) -> Expr:
    """Return the first of the values that is not null.

    >>> from penstock.expr import col
    >>> coalesce(col("nick"), col("name"), "nobody")
    coalesce(col("nick"), col("name"), "nobody")
    """
    if not expressions:
        raise SchemaError("coalesce has nothing to choose from", hint='coalesce(col("a"), 0)')
    return Coalesce(tuple(to_expr(value) for value in expressions))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logic(Expr):
    """Two conditions and & or | between them."""

    left: Expr
    right: Expr
    operator: ClassVar[str]
    input_handling: ClassVar[InputHandling] = InputHandling.FAILURES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require conditions; the result is one."""
        for item in operands:
            require_type(self, item, kind.is_boolean, "conditions", _LOGIC_HINT)
        return Signature((BOOL, BOOL), BOOL)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `(col("a") > 1) & col("b")`."""
        left = operand_text(self.left, parts[0], self.precedence)
        return f"{left} {self.operator} {operand_text(self.right, parts[1], self.precedence + 1)}"


class And(Logic):
    """Whether both hold."""

    operator = "&"
    precedence = 3


class Or(Logic):
    """Whether at least one holds."""

    operator = "|"
    precedence = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expr):
    """Whether it does not hold; null for null."""

    child: Expr
    precedence: ClassVar[int] = 7

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a condition; the result is one."""
        require_type(self, operands[0], kind.is_boolean, "a condition", _LOGIC_HINT)
        return Signature((BOOL,), BOOL)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `~col("a")`."""
        return f"~{operand_text(self.child, self.child.standalone_text(parts[0]), self.precedence)}"
