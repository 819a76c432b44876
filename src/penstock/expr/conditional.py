"""Choice: when(condition).then(value).when(…).then(…).otherwise(value).

Conditions are asked in order; a null condition does not hold. Only what is asked and what is taken can
fail the row. Without `otherwise` the last resort is null.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow.types as kind

from penstock.expr.columns import lift, lit
from penstock.expr.node import Sees
from penstock.expr.signature import BOOL, Operand, Signature, common, need
from penstock.expr.surface import Expr
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Case(Expr):
    """The value beside the first condition that holds, else the default."""

    conditions: tuple[Expr, ...]
    values: tuple[Expr, ...]
    default: Expr
    sees: ClassVar[Sees] = Sees.FAILURES

    def when(self, condition: object) -> When:
        """One more condition, asked if none before it holds."""
        return When(lift(condition), self)

    def otherwise(self, value: object) -> Case:
        """The value if no condition holds."""
        return Case(self.conditions, self.values, lift(value))

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Conditions are true or false; all values meet on one type."""
        asked, values = operands[: len(self.conditions)], operands[len(self.conditions) :]
        for each in asked:
            need(self, each, kind.is_boolean, "conditions", 'compare it with something: when(col("a") > 0)')
        met = common(self, values, "cast one of the values, so that all have one type")
        return Signature((BOOL,) * len(asked) + (met,) * len(values), met)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: when(col("a") > 1).then("big").otherwise("small")."""
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
        """The value if the condition holds."""
        if self.before is None:
            return Case((self.condition,), (lift(value),), lit(None))
        before = self.before
        return Case((*before.conditions, self.condition), (*before.values, lift(value)), before.default)


def when(condition: object) -> When:
    """Begin a choice.

    >>> from penstock.expr import col
    >>> when(col("a") > 1).then("big").otherwise("small")
    when(col("a") > 1).then("big").otherwise("small")
    """
    return When(lift(condition))
