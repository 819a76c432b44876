"""Literals, and fields of structs, in plain Python; columns are read in `lower.py`."""

from __future__ import annotations

from penstock.expr.columns import Field, Literal
from penstock.expr.program import Line
from penstock.expr.python.rule import Function, rule


@rule.register
def _literal(node: Literal, line: Line) -> Function:
    return lambda: node.value


@rule.register
def _field(node: Field, line: Line) -> Function:
    return lambda struct: struct[node.name]
