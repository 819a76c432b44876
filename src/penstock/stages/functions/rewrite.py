"""A user's function of one row, rewritten to take numbers and return numbers, if that changes no answer.

`row.price` becomes an argument, a constant behind a name is written out, and the row that is returned becomes
a tuple of its columns. It may be returned as a dict of named columns, also with `**row` in it, or as a
dataclass or NamedTuple with all its fields. A column is passed through when every return gives the same
column of the row: it is left out of the program, because the batch has it already. Whatever is not understood
raises NotCompilable, with the reason that explain() shows.

Python's numbers and the machine's differ: whole numbers do not wrap, powers and many functions of `math`
raise where the machine gives infinity or NaN, `and` gives an operand. What the types of values allow here
gives the same bits, or raises in both; the rest stays in Python. Whole numbers of columns are allowed where
the user accepts that they wrap at 64 bits.
"""

from __future__ import annotations

import ast
import builtins
import math
from dataclasses import fields, is_dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kind

if TYPE_CHECKING:
    from penstock.stages.functions.compile import FunctionSource

PREDICATE = ""
"""The name of the one column that a predicate computes."""

EXACT = 2**53
"""Whole numbers up to this are floats without loss."""


class ValueType(StrEnum):
    """FLOAT, BOOL; WHOLE is int64; a SMALL whole number is written in the text; EITHER is FLOAT or SMALL."""

    FLOAT = "a float"
    BOOL = "a bool"
    WHOLE = "a whole number"
    SMALL = "a whole number in the text"
    EITHER = "a float or a whole number"


FLOATING = (ValueType.FLOAT, ValueType.EITHER)
INTEGRAL = (ValueType.WHOLE, ValueType.SMALL)


class NotCompilable(Exception):
    """Says why a function stays in Python."""


def type_of_constant(value: object) -> ValueType:
    """Return the type of a value that is written in the text, or that a name stands for."""
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, float):
        return ValueType.FLOAT
    if isinstance(value, int) and abs(value) <= EXACT:
        return ValueType.SMALL
    raise NotCompilable(f"it uses {value!r:.40}, which is not a float, a bool or a small whole number")


def type_of_branches(left: ValueType, right: ValueType) -> ValueType:
    """Return the type of a value that comes from one of two branches."""
    if left == right:
        return left
    if {left, right} <= {*FLOATING, ValueType.SMALL}:
        return ValueType.EITHER
    if {left, right} == set(INTEGRAL):
        return ValueType.WHOLE
    raise NotCompilable(f"one value is {left} on one way and {right} on another")


def type_of_operation(operator: ast.operator, left: ValueType, right: ValueType) -> ValueType:
    """Return the type of `left operator right`."""
    pair = {left, right}
    if ValueType.BOOL in pair:
        raise NotCompilable("it computes with bools")
    if isinstance(operator, ast.Add | ast.Sub | ast.Mult):
        return ValueType.FLOAT if ValueType.FLOAT in pair else _type_of_integers(pair)
    if isinstance(operator, ast.Div):
        if ValueType.FLOAT in pair:
            return ValueType.FLOAT
        raise NotCompilable(
            "it divides whole numbers, which Python rounds better; write float(...) around one"
        )
    if (
        isinstance(operator, ast.FloorDiv | ast.Mod | ast.BitAnd | ast.BitOr | ast.BitXor)
        and ValueType.FLOAT not in pair
    ):
        return _type_of_integers(pair)
    raise NotCompilable(f"{type(operator).__name__.lower()} is not the same outside Python")


def _type_of_integers(pair: set[ValueType]) -> ValueType:
    if ValueType.EITHER in pair:
        raise NotCompilable("it computes with what may be a whole number; write 0.0 for 0")
    if ValueType.WHOLE not in pair:
        raise NotCompilable("it computes with whole numbers of the text alone")
    return ValueType.WHOLE


def check_comparison(left: ValueType, right: ValueType) -> None:
    """Raise NotCompilable unless both can be compared."""
    kinds = ({ValueType.BOOL}, {*FLOATING, ValueType.SMALL}, set(INTEGRAL))
    if not any({left, right} <= kind for kind in kinds):
        raise NotCompilable(f"it compares {left} with {right}")


def type_of_unary(operator: ast.unaryop, operand: ValueType) -> ValueType:
    """Return the type of `-x`, `+x` and `not x`."""
    if isinstance(operator, ast.Not) and operand == ValueType.BOOL:
        return ValueType.BOOL
    # -0 is 0 for a whole number and -0.0 for a float, so what may be either stays in Python.
    if isinstance(operator, ast.USub | ast.UAdd) and operand in (ValueType.FLOAT, *INTEGRAL):
        return operand
    raise NotCompilable(f"{type(operator).__name__.lower()} of {operand} is not the same outside Python")


def fits_column(value_type: ValueType, letter: str) -> bool:
    """Return whether a value may go into a column of F floats, I int64 or B bools unchecked."""
    if letter == "F":
        return value_type != ValueType.BOOL
    return value_type == ValueType.BOOL if letter == "B" else value_type in INTEGRAL


Types = dict[str, ValueType]


def kernel_type_code(type_: pa.DataType) -> str | None:
    """Return how a kernel holds a column: F float64, I int64, B bool; None if it cannot."""
    if kind.is_floating(type_):
        return "F"
    return "I" if kind.is_signed_integer(type_) else "B" if kind.is_boolean(type_) else None


_VALUE_TYPES = {"F": ValueType.FLOAT, "I": ValueType.WHOLE, "B": ValueType.BOOL}
_EXACT_CODES = {pa.float64(): "F", pa.int64(): "I", pa.bool_(): "B"}
"""The columns that a program may compute."""

_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_MATH = {
    "isnan": ("{0} != {0}", ValueType.BOOL),
    "isinf": ("abs(float({0})) == 1e999", ValueType.BOOL),
    "isfinite": ("abs(float({0})) < 1e999", ValueType.BOOL),
    "fabs": ("abs(float({0}))", ValueType.FLOAT),
}
"""Functions of `math` that do the same in the machine, written with operators: the text needs no module."""


class RowProgram:
    """What can be compiled of a function, rewritten in one pass with the types of its local names.

    text            `def row_function(_0, _1): ...`, which returns a tuple of one value per computed column
    inputs          the columns it reads, in the order of its arguments
    outputs         the columns it computes, in order; one without a name for a predicate
    passed_through  column of the result: column of the row that it is, unchanged
    source          the function, to see whether the constants in it still hold
    """

    def __init__(
        self, source: FunctionSource, up: pa.Schema, down: pa.Schema | None, *, wraps: bool = False
    ) -> None:
        """Rewrite a function of rows of `up`; raise NotCompilable where that cannot be done.

        down   the columns it returns; None for a predicate
        wraps  the user accepts that whole numbers wrap at 64 bits
        """
        self.source, self._up, self._down, self._wraps = source, up, down, wraps
        self.inputs: list[str] = []
        self.outputs: tuple[str, ...] = (PREDICATE,)
        self.passed_through: dict[str, str] = {}
        if down is not None:
            self._find_passed_through(down)
        header = ast.parse("def row_function():\n    pass").body[0]
        assert isinstance(header, ast.FunctionDef), "as written above"
        header.body, _, ends = self.block(source.body, {})
        if not ends:
            raise NotCompilable("it can come to its end without giving anything")
        header.args.args = [ast.arg(f"_{index}") for index in range(len(self.inputs))]
        self.text = ast.unparse(ast.fix_missing_locations(header))

    def _find_passed_through(self, down: pa.Schema) -> None:
        """Find out which columns all return statements pass through, and so which are computed."""
        nodes = ast.walk(ast.Module(self.source.body, []))
        returned = [node.value or ast.Constant(None) for node in nodes if isinstance(node, ast.Return)]
        rows = [self._returned_columns(value, down) for value in returned]
        for target in down:
            sources = {self._column_of(row[target.name]) for row in rows}
            (column,) = sources if len(sources) == 1 else (None,)
            # These go through Python unchanged; times do in the years that Python has.
            is_flat = not kind.is_nested(target.type)
            if column is not None and is_flat and self._up.field(column).type == target.type:
                self.passed_through[target.name] = column
        self.outputs = tuple(name for name in down.names if name not in self.passed_through)
        if not self.outputs:
            raise NotCompilable("it computes nothing")

    def block(self, body: list[ast.stmt], types: Types) -> tuple[list[ast.stmt], Types, bool]:
        """Return the statements rewritten, the types after them, and whether they always return."""
        statements: list[ast.stmt] = []
        for statement in body:
            match statement:
                case ast.Expr(ast.Constant(str())) | ast.Pass():
                    continue
                case ast.Return(value=ast.expr() as value):
                    return [*statements, self._return(value, types)], types, True
                case ast.Assign([ast.Name(name)], value):
                    types = self._assign(statements, name, *self.expression(value, types), types)
                case ast.AugAssign(ast.Name(name), operator, value):
                    whole = ast.BinOp(ast.Name(name, ast.Load()), operator, value)
                    types = self._assign(statements, name, *self.expression(whole, types), types)
                case ast.If():
                    test = self._bool(statement.test, types)
                    then, after, ends = self.block(statement.body, types)
                    other, behind, closes = self.block(statement.orelse, types)
                    statements.append(ast.If(test, then or [ast.Pass()], other))
                    if ends and closes:
                        return statements, behind, True
                    if ends or closes:
                        types = behind if ends else after
                    else:
                        # A name that only one way sets is not known behind both: using it stays in Python.
                        both = [name for name in after if name in behind]
                        types = {name: type_of_branches(after[name], behind[name]) for name in both}
                case _:
                    raise NotCompilable(f"line {statement.lineno} of it is more than numbers and choices")
        return statements, types, False

    def _assign(
        self, statements: list[ast.stmt], name: str, value: ast.expr, value_type: ValueType, types: Types
    ) -> Types:
        if name in (self.source.argument, "abs", "float") or name.startswith("_"):
            raise NotCompilable(f"it has a value of its own called {name}")
        statements.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return {**types, name: value_type}

    def _return(self, value: ast.expr, types: Types) -> ast.stmt:
        columns = {PREDICATE: value} if self._down is None else self._returned_columns(value, self._down)
        parts = []
        for name in self.outputs:
            type_ = pa.bool_() if self._down is None else self._down.field(name).type
            if type_ not in _EXACT_CODES:
                raise NotCompilable(f"it gives {name} as {type_}")
            rewritten, value_type = self.expression(columns[name], types)
            if not fits_column(value_type, _EXACT_CODES[type_]):
                raise NotCompilable(f"{name or 'what it gives'} is {value_type}")
            parts.append(rewritten)
        return ast.Return(ast.Tuple(parts, ast.Load()))

    def expression(self, expr: ast.expr, types: Types) -> tuple[ast.expr, ValueType]:
        """Return an expression rewritten, and its type."""
        column = self._column_of(expr)
        if column is not None:
            return self._column(column)
        match expr:
            case ast.Constant(value):
                return ast.Constant(value), type_of_constant(value)
            case ast.Name(name) if name in types:
                return ast.Name(name, ast.Load()), types[name]
            case ast.Name(name):
                if self._is_local(name):
                    raise NotCompilable(f"{name} may be without a value")
                return self._literal(self.source.value(name), name)
            case ast.Attribute(ast.Name(name), attribute) if self._is_math(name):
                value = getattr(math, attribute, None)
                return self._literal(value, f"math.{attribute}")
            case ast.UnaryOp(operator, operand):
                rewritten, value_type = self.expression(operand, types)
                return ast.UnaryOp(operator, rewritten), type_of_unary(operator, value_type)
            case ast.BinOp(left, operator, right):
                (a, one), (b, two) = self.expression(left, types), self.expression(right, types)
                return ast.BinOp(a, operator, b), type_of_operation(operator, one, two)
            case ast.BoolOp(operator, values):
                return ast.BoolOp(operator, [self._bool(value, types) for value in values]), ValueType.BOOL
            case ast.Compare(left, operators, others):
                if not all(isinstance(operator, _COMPARISONS) for operator in operators):
                    raise NotCompilable(f"`{ast.unparse(expr):.60}` is not a comparison of numbers")
                parts = [self.expression(operand, types) for operand in (left, *others)]
                for (_, one), (_, two) in pairwise(parts):
                    check_comparison(one, two)
                rewritten, *more = (part for part, _ in parts)
                return ast.Compare(rewritten, operators, more), ValueType.BOOL
            case ast.IfExp(test, body, orelse):
                (a, one), (b, two) = self.expression(body, types), self.expression(orelse, types)
                return ast.IfExp(self._bool(test, types), a, b), type_of_branches(one, two)
            case ast.Call(called, [argument], []):
                return self._call(called, argument, types)
        raise NotCompilable(f"`{ast.unparse(expr):.60}` is more than numbers and choices")

    def _column(self, name: str) -> tuple[ast.expr, ValueType]:
        letter = kernel_type_code(self._up.field(name).type)
        if letter is None:
            raise NotCompilable(f"column {name} is {self._up.field(name).type}")
        if letter == "I" and not self._wraps:
            raise NotCompilable(
                f"column {name} is of whole numbers, which wrap at 64 bits; compile=True accepts that"
            )
        if name not in self.inputs:
            self.inputs.append(name)
        return ast.Name(f"_{self.inputs.index(name)}", ast.Load()), _VALUE_TYPES[letter]

    def _literal(self, value: Any, name: str) -> tuple[ast.expr, ValueType]:
        if isinstance(value, float) and math.isnan(value):
            raise NotCompilable(f"{name} is NaN, which has no spelling")
        return ast.Constant(value), type_of_constant(value)

    def _bool(self, expr: ast.expr, types: Types) -> ast.expr:
        rewritten, value_type = self.expression(expr, types)
        if value_type != ValueType.BOOL:
            raise NotCompilable(f"`{ast.unparse(expr):.60}` is {value_type} and is used as a bool")
        return rewritten

    def _is_local(self, name: str) -> bool:
        return name in self.source.function.__code__.co_varnames

    def _is_math(self, name: str) -> bool:
        return not self._is_local(name) and self.source.value(name) is math

    def _call(self, called: ast.expr, argument: ast.expr, types: Types) -> tuple[ast.expr, ValueType]:
        rewritten, value_type = self.expression(argument, types)
        match called:
            case ast.Name(name) if self._is_local(name):
                raise NotCompilable(f"it calls {name}, a value of its own")
            case ast.Name("abs" | "float" as name) if (
                self.source.value(name) is getattr(builtins, name) and value_type != ValueType.BOOL
            ):
                if name == "abs" and value_type == ValueType.EITHER:
                    raise NotCompilable("it takes abs of what may be a whole number; write 0.0 for 0")
                return ast.Call(called, [rewritten], []), value_type if name == "abs" else ValueType.FLOAT
            case ast.Attribute(ast.Name(name), attribute) if self._is_math(name):
                if attribute in _MATH and value_type in FLOATING:
                    template, result_type = _MATH[attribute]
                    text = template.format(f"({ast.unparse(rewritten)})")
                    return ast.parse(text, mode="eval").body, result_type
        raise NotCompilable(f"{ast.unparse(called):.60} is not the same outside Python")

    def _column_of(self, expr: ast.expr) -> str | None:
        """Return the column that `row.name` or `row["name"]` is; None for any other expression."""
        match expr:
            case ast.Attribute(ast.Name(argument), name) if argument == self.source.argument:
                if name.startswith("_") or name == "keys":
                    raise NotCompilable(f"it uses {argument}.{name}")
            case ast.Subscript(ast.Name(argument), ast.Constant(str(name))) if (
                argument == self.source.argument
            ):
                pass
            case _:
                return None
        if name not in self._up.names:
            raise NotCompilable(f"there is no column {name}")
        return name

    def _returned_columns(self, value: ast.expr, down: pa.Schema) -> dict[str, ast.expr]:
        """Return the expression of every column; raise NotCompilable unless they are the declared ones."""
        columns: dict[str, ast.expr] = {}
        match value:
            case ast.Dict(keys, values):
                for key, part in zip(keys, values, strict=True):
                    match key, part:
                        case None, ast.Name(argument) if argument == self.source.argument:
                            whole = {name: ast.Constant(name) for name in self._up.names}
                            columns |= {name: ast.Subscript(part, whole[name], ast.Load()) for name in whole}
                        case ast.Constant(str(name)), _:
                            columns[name] = part
                        case _:
                            raise NotCompilable("the names of its columns are not written out")
            case ast.Call(ast.Name(name), values, words):
                names = self._fields(name)
                columns = dict(zip(names, values, strict=False))
                columns |= {word.arg: word.value for word in words if word.arg is not None}
                if len(columns) != len(names) or len(values) + len(words) != len(names):
                    raise NotCompilable(f"it does not name all fields of {name}")
            case _:
                raise NotCompilable(f"`{ast.unparse(value):.60}` is not a row with its columns written out")
        if set(columns) != set(down.names):
            raise NotCompilable("it gives other columns than it declares")
        return columns

    def _fields(self, name: str) -> list[str]:
        """Return the fields of a class, if creating one only stores them."""
        cls = self.source.value(name)
        if isinstance(cls, type) and _is_bare_dataclass(cls):
            return [field.name for field in fields(cls)]
        if isinstance(cls, type) and issubclass(cls, tuple) and cls.__bases__ == (tuple,):
            names: list[str] = list(getattr(cls, "_fields", ()))
            if names:
                return names
        raise NotCompilable(f"{name} is more than its fields")


def _is_bare_dataclass(cls: type) -> bool:
    """Return whether creating one only stores its fields: all methods that matter are generated."""
    if not is_dataclass(cls) or hasattr(cls, "__post_init__") or cls.__bases__ != (object,):
        return False
    code = getattr(cls.__init__, "__code__", None)
    all_positional = all(field.init and not field.kw_only for field in fields(cls))
    plain = cls.__new__ is object.__new__ and cls.__getattribute__ is object.__getattribute__
    return all_positional and plain and code is not None and code.co_filename == "<string>"
