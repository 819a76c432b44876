"""How a node's column follows from its inputs' columns: one rule per node class, filed by family.

A rule gets its line of the program and gives a function. Unless the node sees failures itself, that
function takes arrays and gives an array, or an Evaluated with the failures that are its own; it must not
raise for any values, and give null for null. Nodes that see failures take and give Evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

from penstock.errors import NotSupported
from penstock.expr import compute as pc
from penstock.expr.node import Node
from penstock.expr.nodes.columns import Field
from penstock.expr.program import Line

# Arrays in, an array or an Evaluated out; pyarrow is untyped.
Function = Callable[..., Any]


@singledispatch
def rule(node: Node, line: Line) -> Function:
    """The function that computes the node; registered per class by the families."""
    raise NotSupported(f"Arrow has no rule for {type(node).__name__}", hint="add it in expr/arrow/")


def kernel(function: Any) -> Function:
    """One of Arrow's own kernels as it is: null for null, and no failures."""
    compute: Function = function
    return compute


# Fields of structs on arrays; columns and literals themselves are read in `lower.py`.


@rule.register
def _field(node: Field, line: Line) -> Function:
    place = line.operands[0].get_field_index(node.name)
    return lambda structs: pc.struct_field(structs, [place])
