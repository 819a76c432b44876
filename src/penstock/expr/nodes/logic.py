"""Comparison, logic, null tests and choices.

Comparison is in one total order per type: NaN equals NaN and is greater than all, -0.0 equals 0.0. Text is
ordered by code points and binary by bytes. Values of different kinds cannot be compared.

The other nodes say themselves what comes of nulls and failures:

- `when(condition).then(value).when(…).then(…).otherwise(value)`: conditions are tested in order; a null one
  does not hold. Only the conditions tested and the value taken can fail the row. Without `otherwise` the
  default is null.
- `coalesce` and `fill_null` take the first value that is not null; what comes after it cannot fail the row. A
  failure before it does.
- `&`, `|` and `~` are three-valued: `False & null` is False, `True | null` is True, else null stays null.
  Failures are treated in the same way: `False & failed` is False in either order, `True | failed` is True.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import Expr, InputHandling, Node
from penstock.expr.nodes.forms import (
    BinaryOperator,
    FunctionCall,
    Literal,
    MethodCall,
    UnaryOperator,
    to_expr,
)
from penstock.expr.program import BOOL, Instruction, Requirement, Signature, common_type, is_comparable
from penstock.frozen import Frozen

_ORDER = Requirement(is_comparable, "values with an order", "compare one of its fields, or its length")
_ONE_TYPE_HINT = "cast one of them, so that all have one type"
_LOGIC_HINT = '& | ~ bind more tightly than == < >; write (col("a") > 1) & (col("b") > 2)'


def _hint(types: list[pa.DataType]) -> str:
    if any(kind.is_timestamp(t) for t in types):
        if any(kind.is_string(t) for t in types):
            return 'compare with datetime(2024, 5, 1), or make a time of text with .cast("timestamp")'
        if any(kind.is_date32(t) for t in types):
            return 'compare with datetime(2024, 5, 1), or cast: .cast("timestamp"), .cast("date")'
        if all(kind.is_timestamp(t) for t in types):
            return 'give both a zone: .cast("timestamp[us, UTC]")'
    if any(kind.is_boolean(t) for t in types):
        return "compare with True or False, or use the condition by itself"
    return 'cast one of them, for example .cast("int64") or .cast("string")'


def _compare(node: Expr, operands: tuple[Instruction, ...]) -> Signature:
    """Convert all operands to their common type, which has an order; the result is a boolean."""
    _ORDER.check(node, operands)
    return Signature((common_type(node, operands, _hint),) * len(operands), BOOL)


def _choose(node: Expr, operands: tuple[Instruction, ...]) -> Signature:
    """Convert all operands to their common type, which is that of the result."""
    met = common_type(node, operands, _ONE_TYPE_HINT)
    return Signature((met,) * len(operands), met)


class Comparison(BinaryOperator, precedence=1, groups="", signature=_compare):
    """Two operands of one kind and an operator between them, which `holds` is in Python."""

    holds: ClassVar[Callable[[Any, Any], Any]]


class Equal(Comparison, operator="==", holds=operator.eq):
    """Whether both are equal."""


class NotEqual(Comparison, operator="!=", holds=operator.ne):
    """Whether they differ."""


class Less(Comparison, operator="<", holds=operator.lt):
    """Whether left comes before right."""


class LessEqual(Comparison, operator="<=", holds=operator.le):
    """Whether left does not come after right."""


class Greater(Comparison, operator=">", holds=operator.gt):
    """Whether left comes after right."""


class GreaterEqual(Comparison, operator=">=", holds=operator.ge):
    """Whether left does not come before right."""


class Between(MethodCall, method="between", signature=_compare):
    """Whether low <= value <= high; null if any of the three is null."""

    low: Expr
    high: Expr


class IsIn(MethodCall, method="is_in"):
    """Whether the value equals one of the literals; null for null."""

    values: tuple[Literal, ...]

    def children(self) -> tuple[Node, ...]:
        """Return the value only, because the literals are not computed for every row."""
        return (self.child,)

    def own_fields(self) -> tuple[str, ...]:
        """Return the literals."""
        return tuple(value.text(()) for value in self.values)

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Convert the value to the common type of itself and all literals."""
        literals = [Instruction(literal, (), (), literal.type) for literal in self.values]
        return Signature(_compare(self, (*operands, *literals)).operands[:1], BOOL)

    def arguments(self, *texts: str) -> str:
        """Return the literals as a list."""
        return f"[{', '.join(self.own_fields())}]"


def to_literals(values: Iterable[object]) -> tuple[Literal, ...]:
    """Return the literals of `is_in`; refuse null, because nothing equals it."""
    if isinstance(values, str | bytes | Expr) or not isinstance(values, Iterable):
        raise SchemaError(f"is_in needs a list, not {values!r}", hint=f"write .is_in([{values!r}])")
    literals: list[Literal] = []
    for value in map(to_expr, values):
        if not isinstance(value, Literal):
            hint = f"compare with == {value}, joined by |"
            raise SchemaError(f"is_in needs plain values, not {value}", hint=hint)
        if value.value is None:
            hint = 'write col("a").is_in([...]) | col("a").is_null()'
            raise SchemaError("is_in cannot look for None", hint=hint)
        literals.append(value)
    return tuple(literals)


class Case(Expr):
    """The value beside the first condition that holds, else the default."""

    conditions: tuple[Expr, ...]
    values: tuple[Expr, ...]
    default: Expr
    input_handling = InputHandling.FAILURES
    requirement = Requirement(kind.is_boolean, "conditions", 'compare it with something: when(col("a") > 0)')

    def when(self, condition: object) -> When:
        """Add a condition, which counts if none before it holds."""
        return When(to_expr(condition), self)

    def otherwise(self, value: object) -> Case:
        """Set the value for rows where no condition holds."""
        return Case(self.conditions, self.values, to_expr(value))

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Conditions are true or false; all values meet on one type."""
        conditions, values = operands[: len(self.conditions)], operands[len(self.conditions) :]
        self.requirement.check(self, conditions)
        met = common_type(self, values, "cast one of the values, so that all have one type")
        return Signature((BOOL,) * len(conditions) + (met,) * len(values), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """Return the source text, such as `when(col("a") > 1).then("big").otherwise("small")`."""
        count = len(self.conditions)
        pairs = zip(parts[:count], parts[count : 2 * count], strict=True)
        chain = ".".join(f"when({condition}).then({value})" for condition, value in pairs)
        return f"{chain}.otherwise({parts[-1]})"


class When(Frozen):
    """A condition that still lacks its value: only `then` is possible."""

    condition: Expr
    before: Case | None = None

    def then(self, value: object) -> Case:
        """Set the value for rows where the condition holds."""
        if self.before is None:
            return Case((self.condition,), (to_expr(value),), to_expr(None))
        before = self.before
        return Case((*before.conditions, self.condition), (*before.values, to_expr(value)), before.default)


def when(condition: object) -> When:
    """Begin a choice.

    >>> from penstock.expr import col
    >>> when(col("a") > 1).then("big").otherwise("small")
    when(col("a") > 1).then("big").otherwise("small")
    """
    return When(to_expr(condition))


class NullTest(MethodCall, input_handling=InputHandling.NULLS):
    """A question about one value, of any type unless there is a requirement."""

    requirement = Requirement(lambda type: True, "anything", "")

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Accept a type that is known; the result is a boolean."""
        self.requirement.check(self, operands)
        if kind.is_null(operands[0].type):
            common_type(self, operands, _ONE_TYPE_HINT)
        return Signature((operands[0].type,), BOOL)


class IsNull(NullTest, method="is_null"):
    """Whether the value is null."""


class IsNotNull(NullTest, method="is_not_null"):
    """Whether the value is not null."""


class IsNan(NullTest, method="is_nan", input_handling=InputHandling.STRICT):
    """Whether the value is NaN; null for null."""

    requirement = Requirement(kind.is_floating, "a float", "only floats can be NaN; use .is_null()")


class FillNull(MethodCall, method="fill_null", input_handling=InputHandling.FAILURES, signature=_choose):
    """The value, or the other where it is null."""

    other: Expr


class Coalesce(FunctionCall, function="coalesce", input_handling=InputHandling.FAILURES, signature=_choose):
    """The first value that is not null."""


def coalesce(*expressions: object) -> Expr:
    """Return the first of the values that is not null.

    >>> from penstock.expr import col
    >>> coalesce(col("nick"), col("name"), "nobody")
    coalesce(col("nick"), col("name"), "nobody")
    """
    if not expressions:
        raise SchemaError("coalesce has nothing to choose from", hint='coalesce(col("a"), 0)')
    return Coalesce(tuple(to_expr(value) for value in expressions))


class Logic(BinaryOperator, input_handling=InputHandling.FAILURES, operand_type=BOOL):
    """Two conditions and & or | between them."""

    requirement = Requirement(kind.is_boolean, "conditions", _LOGIC_HINT)


class And(Logic, operator="&", precedence=3):
    """Whether both hold."""


class Or(Logic, operator="|", precedence=2):
    """Whether at least one holds."""


class Not(UnaryOperator, operator="~", operand_type=BOOL):
    """Whether it does not hold; null for null."""

    requirement = Requirement(kind.is_boolean, "a condition", _LOGIC_HINT)
