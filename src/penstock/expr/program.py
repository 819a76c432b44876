"""From an expression and a schema to a typed program that a lowering can follow line by line.

Each line has one node, the places of its inputs and its type; inputs come first. Where a signature asks
for another type, a literal is rewritten and anything else gets a line with a cast, so operands arrive in
the types of the signature. Assumes a canonical schema.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError, nearest_first
from penstock.expr.node import Node, post_order
from penstock.expr.nodes.cast import Cast
from penstock.expr.nodes.columns import Column, Literal
from penstock.expr.signature import Operand, converted
from penstock.expr.types import canonical
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """A node with the places of its inputs in the program and the types they arrive in, and its own type."""

    node: Node
    inputs: tuple[int, ...]
    operands: tuple[pa.DataType, ...]
    type: pa.DataType


def type_of(expr: Node, schema: pa.Schema) -> pa.DataType:
    """The type of the expression's values, or the SchemaError that says what does not fit."""
    return resolve(expr, schema)[-1].type


def resolve(expr: Node, schema: pa.Schema) -> list[Line]:
    """The typed program; its last line is the whole expression."""
    lines: list[Line] = []
    places: dict[int, int] = {}
    for node in post_order(expr):
        operands = tuple(_operand(lines[places[id(child)]]) for child in node.children())
        line = _column(node, schema) if isinstance(node, Column) else _line(node, operands, lines, places)
        places[id(node)] = len(lines)
        lines.append(line)
    if kind.is_null(lines[-1].type):
        raise SchemaError("a bare None has no type", hint='say it: lit(None, "int64")')
    return lines


def _column(node: Column, schema: pa.Schema) -> Line:
    if node.name not in schema.names:
        near = nearest_first(node.name, schema.names)
        raise SchemaError(
            f'no column "{node.name}"',
            detail="the columns are " + ", ".join(near) if near else "there are no columns",
            hint=f'use col("{near[0]}")' if near else None,
        )
    type = schema.field(node.name).type
    read_as = canonical(type, node.name)
    if read_as != type:
        raise SchemaError(
            f'column "{node.name}" has type {type}',
            hint=f"cast it to {read_as}, as readers do (canonical_batch)",
        )
    return Line(node, (), (), type)


def _operand(line: Line) -> Operand:
    if isinstance(line.node, Literal):
        return Operand(line.node, line.type, line.node.free, line.node.value)
    return Operand(line.node, line.type)


def _line(node: Node, operands: tuple[Operand, ...], lines: list[Line], places: dict[int, int]) -> Line:
    signature = node.signature(operands)
    inputs = []
    for child, wanted in zip(node.children(), signature.operands, strict=True):
        place = places[id(child)]
        if lines[place].type != wanted:
            lines.append(_brought_to(wanted, place, lines[place]))
            place = len(lines) - 1
        inputs.append(place)
    return Line(node, tuple(inputs), signature.operands, signature.result)


def _brought_to(wanted: pa.DataType, place: int, line: Line) -> Line:
    if isinstance(line.node, Literal):
        return Line(Literal(converted(line.node.value, wanted), wanted, free=False), (), (), wanted)
    return Line(Cast(line.node, wanted), (place,), (line.type,), wanted)


# Which file has the rules for a node: every lowering has one per family, loaded with the first node of it.
#
# A program uses few families, and loading the rules of all of them takes longer than most small runs.

FAMILY = {
    "arithmetic": "arithmetic",
    "cast": "cast",
    "columns": "rule",
    "comparison": "comparison",
    "conditional": "choice",
    "functions": "hashing",
    "nested": "string",
    "string": "string",
    "time": "time",
}
"""The file with the rules, by the file with the nodes."""

Rule = Callable[[Node, Line], Any]

# Importing a family files its rules, and they must not be looked through meanwhile.
_FILING = RLock()


def rule_for(rule: Rule, node: Node, line: Line) -> Any:
    """`rule(node, line)`, with the rules of the node's family in place; `rule` lies beside those files."""
    nodes = type(node).__module__.rpartition(".")[2]
    lowering = rule.__module__.rpartition(".")[0]
    with _FILING:
        if nodes in FAMILY:
            import_module(f"{lowering}.{FAMILY[nodes]}")
        return rule(node, line)
