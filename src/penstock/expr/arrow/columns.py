"""Fields of structs on arrays; columns and literals are read by `lower_arrow` itself."""

from __future__ import annotations

from penstock.expr import compute as pc
from penstock.expr.arrow.lower import Function, lower_node
from penstock.expr.nodes.columns import Field
from penstock.expr.program import Instruction


@lower_node.register
def _field(node: Field, instruction: Instruction) -> Function:
    place = instruction.operands[0].get_field_index(node.name)
    return lambda structs: pc.struct_field(structs, [place])
