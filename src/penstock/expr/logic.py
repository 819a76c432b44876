"""And, or, not, in three values: `False & null` is False, `True | null` is True, else null stays null.

A failure is treated in the same way: `False & failed` is False in either order, `True | failed` is True.
"""

from __future__ import annotations

from typing import ClassVar

import pyarrow.types as kind

from penstock.expr.node import Sees, operand
from penstock.expr.signature import BOOL, Operand, Signature, need
from penstock.expr.surface import Expr
from penstock.frozen import dataclass

_HINT = '& | ~ bind more tightly than == < >; write (col("a") > 1) & (col("b") > 2)'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logic(Expr):
    """Two conditions and & or | between them."""

    left: Expr
    right: Expr
    operator: ClassVar[str]
    sees: ClassVar[Sees] = Sees.FAILURES

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Conditions in, a condition out."""
        for each in operands:
            need(self, each, kind.is_boolean, "conditions", _HINT)
        return Signature((BOOL, BOOL), BOOL)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: (col("a") > 1) & col("b")."""
        left = operand(self.left, parts[0], self.binds)
        return f"{left} {self.operator} {operand(self.right, parts[1], self.binds + 1)}"


class And(Logic):
    """Whether both hold."""

    __slots__ = ()
    operator = "&"
    binds = 3


class Or(Logic):
    """Whether at least one holds."""

    __slots__ = ()
    operator = "|"
    binds = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expr):
    """Whether it does not hold; null for null."""

    child: Expr
    binds: ClassVar[int] = 7

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """A condition in, a condition out."""
        need(self, operands[0], kind.is_boolean, "a condition", _HINT)
        return Signature((BOOL,), BOOL)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: ~col("a")."""
        return f"~{operand(self.child, self.child.alone(parts[0]), self.binds)}"
