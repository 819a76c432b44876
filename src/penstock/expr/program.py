"""A typed program from an expression and a schema, which a lowering follows instruction by instruction.

An instruction has one node, the positions of its inputs and its type; inputs come first. Where a signature
asks for another type, a literal is rewritten and anything else gets an instruction with a cast, so operands
arrive in the types of the signature. Assumes a canonical schema.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import SchemaError, nearest_first
from penstock.expr.node import Node, post_order
from penstock.expr.nodes.cast import Cast
from penstock.expr.nodes.columns import Column, Literal
from penstock.expr.signature import Operand, convert_literal
from penstock.expr.types import canonical
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Instruction:
    """A node, the positions of its inputs in the program, the types of these, and the type of the result."""

    node: Node
    inputs: tuple[int, ...]
    operands: tuple[pa.DataType, ...]
    type: pa.DataType


Function = Callable[..., Any]
"""A function of the inputs of an instruction, which have the types of its operands."""

Rules = dict[type[Node], Callable[[Any, Instruction], Function]]
"""A lowering: for each class of nodes, from a node and its instruction to the function that computes it."""


def type_of(expr: Node, schema: pa.Schema) -> pa.DataType:
    """Returns the type of the expression's values; raises SchemaError if its operands do not fit."""
    return resolve(expr, schema)[-1].type


def resolve(expr: Node, schema: pa.Schema) -> list[Instruction]:
    """Returns the typed program; its last instruction is the whole expression."""
    program: list[Instruction] = []
    places: dict[int, int] = {}
    for node in post_order(expr):
        children = [program[places[id(child)]] for child in node.children()]
        operands = tuple(
            Operand(child.node, child.type, child.node.free, child.node.value)
            if isinstance(child.node, Literal)
            else Operand(child.node, child.type)
            for child in children
        )
        instruction = (
            _column(node, schema)
            if isinstance(node, Column)
            else _instruction(node, operands, program, places)
        )
        places[id(node)] = len(program)
        program.append(instruction)
    if kind.is_null(program[-1].type):
        raise SchemaError("a bare None has no type", hint='say it: lit(None, "int64")')
    return program


def _column(node: Column, schema: pa.Schema) -> Instruction:
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
    return Instruction(node, (), (), type)


def _instruction(
    node: Node, operands: tuple[Operand, ...], program: list[Instruction], places: dict[int, int]
) -> Instruction:
    signature = node.signature(operands)
    inputs = []
    for child, wanted in zip(node.children(), signature.operands, strict=True):
        place = places[id(child)]
        if program[place].type != wanted:
            program.append(_convert_operand(wanted, place, program[place]))
            place = len(program) - 1
        inputs.append(place)
    return Instruction(node, tuple(inputs), signature.operands, signature.result)


def _convert_operand(wanted: pa.DataType, place: int, instruction: Instruction) -> Instruction:
    if isinstance(instruction.node, Literal):
        return Instruction(
            Literal(convert_literal(instruction.node.value, wanted), wanted, free=False), (), (), wanted
        )
    return Instruction(Cast(instruction.node, wanted), (place,), (instruction.type,), wanted)
