"""The types of an expression: the rules by which unlike types meet, and the typed program that they give.

A signature says which type each operand is brought to and what comes out, so every lowering computes on
operands of equal type. Types widen only without loss of meaning (int to wider int, int to float64, float32
to float64); a literal written without a type takes the type of the column it meets, if it fits.

A lowering follows the program instruction by instruction. An instruction has one node, the positions of its
inputs and its type; inputs come first. Where a signature asks for another type, a literal is rewritten and
anything else gets an instruction with a cast, so operands arrive in the types of the signature. Assumes a
canonical schema.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.errors import NotSupported, SchemaError, nearest_first
from penstock.expr.node import Node, post_order
from penstock.expr.types import canonical
from penstock.expr.values import float32, integer_range, type_name
from penstock.frozen import Frozen

BOOL, INT64, FLOAT64, STRING = pa.bool_(), pa.int64(), pa.float64(), pa.string()
_EXACT_IN_FLOAT32 = 1 << 24


class Instruction(Frozen):
    """A node, the positions of its inputs in the program, the types of these, and the type of the result."""

    node: Node
    inputs: tuple[int, ...]
    operands: tuple[pa.DataType, ...]
    type: pa.DataType


class Signature(Frozen):
    """The type that each operand is brought to, and the type of the result."""

    operands: tuple[pa.DataType, ...]
    result: pa.DataType


class Requirement(Frozen):
    """What a node asks of its operands: a test of their types, the same in words, and the way out.

    hint  what to write instead, or a function that says it for the operand that fails
    """

    test: Callable[[pa.DataType], bool]
    words: str
    hint: str | Callable[[Instruction], str]

    def check(self, node: Node, operands: Sequence[Instruction]) -> None:
        """Raise SchemaError unless the types of all operands pass the test; a null literal always does."""
        for operand in operands:
            if not self.test(operand.type) and not kind.is_null(operand.type):
                hint = self.hint if isinstance(self.hint, str) else self.hint(operand)
                fact = f"{node} needs {self.words}, and {operand.node} is {type_name(operand.type)}"
                raise SchemaError(fact, hint=hint)


Function = Callable[..., Any]
"""A function of the inputs of an instruction, which have the types of its operands."""


Rules = dict[type[Node], Function]
"""For each class of nodes, a function from a node and its instruction to what computes it in a lowering."""


class Lowering(Rules):
    """The rules of all nodes; asking for a class without a rule raises NotSupported."""

    def __init__(self, name: str, folder: str, rules: Rules) -> None:
        super().__init__(rules)
        self._name, self._folder = name, folder

    def __missing__(self, node_class: type[Node]) -> NoReturn:
        raise NotSupported(
            f"{self._name} has no rule for {node_class.__name__}", hint=f"add it in {self._folder}"
        )


def is_numeric(type: pa.DataType) -> bool:
    """Return whether arithmetic is defined on the type."""
    return bool(kind.is_signed_integer(type) or kind.is_floating(type))


def is_comparable(type: pa.DataType) -> bool:
    """Return whether values of the type have an order."""
    return not (kind.is_nested(type) or kind.is_null(type))


def common_type(
    node: Node, operands: Sequence[Instruction], hint: str | Callable[[list[pa.DataType]], str]
) -> pa.DataType:
    """Return the type that all operands can be brought to; raise SchemaError if there is none."""
    fixed: list[pa.DataType] = []
    free: list[nodes.Literal] = []
    for item in operands:
        if not (isinstance(item.node, nodes.Literal) and item.node.free):
            fixed.append(item.type)
        elif not kind.is_null(item.type):
            free.append(item.node)
    if not fixed and not free:
        raise SchemaError(f"{node} has only nulls, and so no type", hint='say it: lit(None, "int64")')
    met = fixed[0] if fixed else free[0].type
    for type in fixed[1:]:
        met = _meet(met, type)
    for literal in free:
        if met is None or not literal_fits(literal, met):
            met = _meet(met, literal.type)
    if met is None:
        seen = " and ".join(dict.fromkeys(type_name(item.type) for item in operands))
        detail = ", ".join(f"{item.node} is {type_name(item.type)}" for item in operands)
        hint = hint if isinstance(hint, str) else hint([item.type for item in operands])
        raise SchemaError(f"{node} mixes {seen}", detail=detail, hint=hint)
    return met


def literal_fits(literal: nodes.Literal, type: pa.DataType) -> bool:
    """Return whether a literal's plain value can become a value of `type` exactly."""
    value, own = literal.value, literal.type
    if kind.is_temporal(own):  # a datetime fits with or without a zone; never read it as the int below it
        return bool(own == type or (kind.is_timestamp(own) and kind.is_timestamp(type)))
    if isinstance(value, bool) or value is None:
        return bool(kind.is_boolean(type)) or value is None
    if isinstance(value, int) and kind.is_signed_integer(type):
        low, high = integer_range(type)
        return low <= value <= high
    if isinstance(value, int) and kind.is_floating(type):
        return bool(kind.is_float64(type)) or abs(value) <= _EXACT_IN_FLOAT32
    if isinstance(value, float) and kind.is_floating(type):
        return bool(kind.is_float64(type)) or not math.isfinite(value) or math.isfinite(float32(value))
    if isinstance(value, int | Decimal) and kind.is_decimal128(type):
        _, digits, exponent = Decimal(value).as_tuple()
        if isinstance(exponent, int):
            return bool(-exponent <= type.scale and len(digits) + exponent <= type.precision - type.scale)
    return False


def convert_literal(value: object, type: pa.DataType) -> object:
    """Return a literal's plain value as one of a type that it fits."""
    if isinstance(value, int | float) and kind.is_floating(type):
        return float32(float(value)) if kind.is_float32(type) else float(value)
    if isinstance(value, int | Decimal) and kind.is_decimal128(type):
        return Decimal(value)
    return value


def _meet(left: pa.DataType | None, right: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds both, or None."""
    if left is None or left == right:
        return left
    if kind.is_null(left) or kind.is_null(right):
        return right if kind.is_null(left) else left
    if kind.is_signed_integer(left) and kind.is_signed_integer(right):
        return left if left.bit_width >= right.bit_width else right
    if is_numeric(left) and is_numeric(right):
        return FLOAT64
    if kind.is_timestamp(left) and kind.is_timestamp(right) and left.tz and right.tz:
        return pa.timestamp("us", "UTC")
    if kind.is_decimal128(left) and kind.is_decimal128(right):
        scale = max(left.scale, right.scale)
        precision = max(left.precision - left.scale, right.precision - right.scale) + scale
        return pa.decimal128(precision, scale) if precision <= 38 else None
    return None


def type_of(expr: Node, schema: pa.Schema) -> pa.DataType:
    """Return the type of the expression's values; raise SchemaError if its operands do not fit."""
    return resolve(expr, schema)[-1].type


def resolve(expr: Node, schema: pa.Schema) -> list[Instruction]:
    """Return the typed program; its last instruction is the whole expression."""
    program: list[Instruction] = []
    places: dict[int, int] = {}
    for node in post_order(expr):
        if isinstance(node, nodes.Column):
            instruction = Instruction(node, (), (), _column_type(node.name, schema))
        elif isinstance(node, nodes.Literal | nodes.SparkSql):
            instruction = Instruction(node, (), (), node.type)
        else:
            inputs = [places[id(child)] for child in node.children()]
            signature = node.signature(tuple(program[place] for place in inputs))
            for at, (place, wanted) in enumerate(zip(inputs, signature.operands, strict=True)):
                if program[place].type != wanted:
                    program.append(_convert_operand(wanted, place, program[place]))
                    inputs[at] = len(program) - 1
            instruction = Instruction(node, tuple(inputs), signature.operands, signature.result)
        places[id(node)] = len(program)
        program.append(instruction)
    if kind.is_null(program[-1].type):
        raise SchemaError("a bare None has no type", hint='say it: lit(None, "int64")')
    return program


def _column_type(name: str, schema: pa.Schema) -> pa.DataType:
    if name not in schema.names:
        near = nearest_first(name, schema.names)
        raise SchemaError(
            f'no column "{name}"',
            detail="the columns are " + ", ".join(near) if near else "there are no columns",
            hint=f'use col("{near[0]}")' if near else None,
        )
    type = schema.field(name).type
    read_as = canonical(type, name)
    if read_as != type:
        raise SchemaError(
            f'column "{name}" has type {type}',
            hint=f"cast it to {read_as}, as readers do (canonical_batch)",
        )
    return type


def _convert_operand(wanted: pa.DataType, place: int, instruction: Instruction) -> Instruction:
    if isinstance(instruction.node, nodes.Literal):
        value = convert_literal(instruction.node.value, wanted)
        return Instruction(nodes.Literal(value, wanted, free=False), (), (), wanted)
    return Instruction(nodes.Cast(instruction.node, wanted), (place,), (instruction.type,), wanted)
