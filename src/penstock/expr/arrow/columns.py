"""Fields of structs on arrays; columns and literals themselves are read in `lower.py`."""

from __future__ import annotations

from penstock.expr import compute as pc
from penstock.expr.arrow.rule import Function, rule
from penstock.expr.columns import Field
from penstock.expr.program import Line


@rule.register
def _field(node: Field, line: Line) -> Function:
    place = line.operands[0].get_field_index(node.name)
    return lambda structs: pc.struct_field(structs, [place])
