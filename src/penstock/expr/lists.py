"""Lists: how long they are and what stands where. They are made by `split`, or come in a column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError
from penstock.expr.node import is_whole, method
from penstock.expr.signature import INT64, Operand, Signature, need
from penstock.expr.surface import Expr
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListFunction(Expr):
    """A function of a list."""

    child: Expr

    def element(self, operand: Operand) -> pa.DataType:
        """The type of the list's items; SchemaError if it is no list."""
        need(self, operand, kind.is_list, "a list", 'make one with .str.split(",")')
        return operand.type.value_type


class ListLength(ListFunction):
    """The number of items."""

    __slots__ = ()

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """A list in, int64 out."""
        self.element(operands[0])
        return Signature((operands[0].type,), INT64)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("a").list.length()."""
        return method(self.child, parts[0], "list.length()")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListItem(ListFunction):
    """The item at an index, which counts from the end when negative; null if there is none."""

    index: int

    def __post_init__(self) -> None:
        if not is_whole(self.index):
            raise SchemaError(
                f"a list has no item {self.index!r}", hint=".list.item(0) is the first, -1 the last"
            )

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """A list in, its items' type out."""
        item = self.element(operands[0])
        return Signature((operands[0].type,), item)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("a").list.item(0)."""
        return method(self.child, parts[0], f"list.item({self.index})")


@dataclass(frozen=True, slots=True)
class Lists:
    """The functions of lists: what `.list` offers."""

    of: Expr

    def length(self) -> Expr:
        """The number of items."""
        return ListLength(self.of)

    def item(self, index: int) -> Expr:
        """One item, from the end when negative; null if there is none."""
        return ListItem(self.of, index)
