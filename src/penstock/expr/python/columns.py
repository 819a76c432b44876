"""Fields of structs in plain Python; columns and literals are read by the generated function itself."""

from __future__ import annotations

from penstock.expr.nodes.columns import Field
from penstock.expr.program import Instruction
from penstock.expr.python.lower import Function, lower_node


@lower_node.register
def _field(node: Field, instruction: Instruction) -> Function:
    return lambda struct: struct[node.name]
