"""A user's function of one row, rewritten to take numbers and give numbers, if that changes no answer.

`row.price` becomes an argument, a constant behind a name is written out, and the row that is given becomes a
tuple of its columns. Columns that are only handed on are left out: the batch has them already. Whatever is
not understood raises Stays, with the reason that explain() shows.
"""

from __future__ import annotations

import ast
import builtins
import math
from itertools import pairwise

import pyarrow as pa
import pyarrow.types as kind

from penstock.frozen import dataclass
from penstock.operators.function import RowFunction
from penstock.stages.row_given import Given, given_by
from penstock.stages.row_source import SPELT, Source, source_of
from penstock.stages.row_types import (
    FLOATING,
    Stays,
    Type,
    fits,
    of_comparison,
    of_constant,
    of_either,
    of_operation,
    of_sign,
)

Types = dict[str, Type]


@dataclass(frozen=True, slots=True)
class Program:
    """What can be compiled of a function.

    text     `def made(_0, _1): ...`, which gives a tuple of one value per computed column
    takes    the columns it reads, in the order of its arguments
    gives    the columns it computes, in the order of its results; one without a name for a predicate
    handed   column of the result: column of the row that it is, unchanged
    source   where it came from, to see whether it still holds
    """

    text: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    handed: dict[str, str]
    source: Source


def letter_of(type_: pa.DataType) -> str | None:
    """How a column is held while it is computed: F floats, I int64, B bools; None if it cannot be."""
    if kind.is_floating(type_):
        return "F"
    return "I" if kind.is_signed_integer(type_) else "B" if kind.is_boolean(type_) else None


def program_of(
    function: RowFunction, up: pa.Schema, down: pa.Schema | None, *, wraps: bool = False
) -> Program:
    """The program of a function of rows of `up`; Stays with the reason if there is none.

    down   the columns it gives; None for a predicate
    wraps  the user accepts that whole numbers wrap at 64 bits
    """
    source = source_of(function.call)
    returned = given_by(source, up, down)
    reading = _Reading(source, up, returned, wraps=wraps)
    body, _, ends = reading.block(source.body, {})
    if not ends:
        raise Stays("it can come to its end without giving anything")
    arguments = ", ".join(f"_{place}" for place in range(len(reading.columns)))
    header = ast.parse(f"def made({arguments}):\n    pass").body[0]
    assert isinstance(header, ast.FunctionDef), "as written above"
    header.body = body
    text = ast.unparse(ast.fix_missing_locations(header))
    return Program(text, tuple(reading.columns), returned.computed, returned.handed, source)


class _Reading:
    """Goes through a function once, statement by statement, with the types of its local names."""

    def __init__(self, source: Source, up: pa.Schema, returned: Given, *, wraps: bool) -> None:
        self._source, self._up, self._given, self._wraps = source, up, returned, wraps
        self.columns: list[str] = []

    def block(self, body: list[ast.stmt], types: Types) -> tuple[list[ast.stmt], Types, bool]:
        """Statements rewritten, the types after them, and whether they always give something."""
        made: list[ast.stmt] = []
        for statement in body:
            match statement:
                case ast.Expr(ast.Constant(str())) | ast.Pass():
                    continue
                case ast.Return(value=ast.expr() as value):
                    return [*made, self._returned(value, types)], types, True
                case ast.Assign([ast.Name(name)], value):
                    types = self._set(made, name, *self.expression(value, types), types)
                case ast.AugAssign(ast.Name(name), operator, value):
                    whole = ast.BinOp(ast.Name(name, ast.Load()), operator, value)
                    types = self._set(made, name, *self.expression(whole, types), types)
                case ast.If():
                    branch, types, ends = self._if(statement, types)
                    made.append(branch)
                    if ends:
                        return made, types, True
                case _:
                    raise Stays(f"line {statement.lineno} of it is more than numbers and choices")
        return made, types, False

    def _set(self, made: list[ast.stmt], name: str, value: ast.expr, found: Type, types: Types) -> Types:
        if name in (self._source.argument, "abs", "float") or name.startswith("_"):
            raise Stays(f"it has a value of its own called {name}")
        made.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return {**types, name: found}

    def _if(self, statement: ast.If, types: Types) -> tuple[ast.stmt, Types, bool]:
        test = self._bool(statement.test, types)
        then, after, ends = self.block(statement.body, types)
        other, behind, closes = self.block(statement.orelse, types)
        made = ast.If(test, then or [ast.Pass()], other)
        if ends or closes:
            return made, behind if ends else after, ends and closes
        # A name that only one way sets is not known behind both: using it stays in Python.
        both = {name: of_either(after[name], behind[name]) for name in after if name in behind}
        return made, both, False

    def _returned(self, value: ast.expr, types: Types) -> ast.stmt:
        parts = []
        for column, letter, expr in self._given.parts(value):
            made, found = self.expression(expr, types)
            if not fits(found, letter):
                raise Stays(f"{column or 'what it gives'} is {found}")
            parts.append(made)
        return ast.Return(ast.Tuple(parts, ast.Load()))

    def expression(self, expr: ast.expr, types: Types) -> tuple[ast.expr, Type]:
        """An expression rewritten, and its type."""
        column = self._given.column_of(expr)
        if column is not None:
            return self._column(column)
        match expr:
            case ast.Constant(value):
                return ast.Constant(value), of_constant(value)
            case ast.Name(name) if name in types:
                return ast.Name(name, ast.Load()), types[name]
            case ast.Name(name):
                return self._constant(name)
            case ast.Attribute(ast.Name(name), attribute) if self._is_math(name):
                value = getattr(math, attribute, None)
                return self._written(value, f"math.{attribute}")
            case ast.UnaryOp(operator, operand):
                made, found = self.expression(operand, types)
                return ast.UnaryOp(operator, made), of_sign(operator, found)
            case ast.BinOp(left, operator, right):
                (a, one), (b, two) = self.expression(left, types), self.expression(right, types)
                return ast.BinOp(a, operator, b), of_operation(operator, one, two)
            case ast.BoolOp(operator, values):
                return ast.BoolOp(operator, [self._bool(each, types) for each in values]), Type.BOOL
            case ast.Compare():
                return self._compared(expr, types), Type.BOOL
            case ast.IfExp(test, body, orelse):
                (a, one), (b, two) = self.expression(body, types), self.expression(orelse, types)
                return ast.IfExp(self._bool(test, types), a, b), of_either(one, two)
            case ast.Call(called, [argument], []):
                return self._called(called, argument, types)
        raise Stays(f"`{ast.unparse(expr):.60}` is more than numbers and choices")

    def _column(self, name: str) -> tuple[ast.expr, Type]:
        letter = letter_of(self._up.field(name).type)
        if letter is None:
            raise Stays(f"column {name} is {self._up.field(name).type}")
        if letter == "I" and not self._wraps:
            raise Stays(
                f"column {name} is of whole numbers, which wrap at 64 bits; compile=True accepts that"
            )
        if name not in self.columns:
            self.columns.append(name)
        found = {"F": Type.FLOAT, "I": Type.WHOLE, "B": Type.BOOL}[letter]
        return ast.Name(f"_{self.columns.index(name)}", ast.Load()), found

    def _constant(self, name: str) -> tuple[ast.expr, Type]:
        if self._is_local(name):
            raise Stays(f"{name} may be without a value")
        return self._written(self._source.value(name), name)

    def _written(self, value: object, name: str) -> tuple[ast.expr, Type]:
        if isinstance(value, float) and math.isnan(value):
            raise Stays(f"{name} is NaN, which has no spelling")
        found = of_constant(value)
        assert isinstance(value, bool | int | float), "no other value has a type here"
        return ast.Constant(value), found

    def _compared(self, expr: ast.Compare, types: Types) -> ast.expr:
        wanted = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
        if not all(isinstance(operator, wanted) for operator in expr.ops):
            raise Stays(f"`{ast.unparse(expr):.60}` is not a comparison of numbers")
        parts = [self.expression(each, types) for each in (expr.left, *expr.comparators)]
        for (_, one), (_, two) in pairwise(parts):
            of_comparison(one, two)
        return ast.Compare(parts[0][0], expr.ops, [made for made, _ in parts[1:]])

    def _bool(self, expr: ast.expr, types: Types) -> ast.expr:
        made, found = self.expression(expr, types)
        if found != Type.BOOL:
            raise Stays(f"`{ast.unparse(expr):.60}` is {found} and is used as a bool")
        return made

    def _is_local(self, name: str) -> bool:
        return name in self._source.function.__code__.co_varnames

    def _is_math(self, name: str) -> bool:
        return not self._is_local(name) and self._source.value(name) is math

    def _called(self, called: ast.expr, argument: ast.expr, types: Types) -> tuple[ast.expr, Type]:
        made, found = self.expression(argument, types)
        match called:
            case ast.Name(name) if self._is_local(name):
                raise Stays(f"it calls {name}, a value of its own")
            case ast.Name("abs") if self._source.value("abs") is builtins.abs and found != Type.BOOL:
                if found == Type.EITHER:
                    raise Stays("it takes abs of what may be a whole number; write 0.0 for 0")
                return ast.Call(called, [made], []), found
            case ast.Name("float") if self._source.value("float") is builtins.float and found != Type.BOOL:
                return ast.Call(called, [made], []), Type.FLOAT
            case ast.Attribute(ast.Name(name), attribute) if self._is_math(name):
                if attribute in SPELT and found in FLOATING:
                    return SPELT[attribute](made), Type.FLOAT if attribute == "fabs" else Type.BOOL
        raise Stays(f"{ast.unparse(called):.60} is not the same outside Python")
