"""How a node's value follows from its inputs' plain values: one rule per node class, filed by family.

A rule gets its line of the program and gives a function of the inputs. What that function sees is said by
`node.sees`; it raises RowFailure to fail the row, and receives an earlier failure as a `Failed`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

from penstock.errors import NotSupported
from penstock.expr.node import Node
from penstock.expr.nodes.columns import Field, Literal
from penstock.expr.program import Line
from penstock.frozen import dataclass

# Inputs have the types of the line's operands, which only the type rules know.
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Failed:
    """Stands for the value of an input that failed."""

    reason: str


@singledispatch
def rule(node: Node, line: Line) -> Function:
    """The function that computes the node; registered per class by the families."""
    raise NotSupported(f"plain Python has no rule for {type(node).__name__}", hint="add it in expr/python/")


# Literals, and fields of structs, in plain Python; columns are read in `lower.py`.


@rule.register
def _literal(node: Literal, line: Line) -> Function:
    return lambda: node.value


@rule.register
def _field(node: Field, line: Line) -> Function:
    return lambda struct: struct[node.name]
