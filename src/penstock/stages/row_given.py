"""What a row function gives, read off its text: which columns are computed, and which are only handed on.

A row may be given as a dict of named columns, also with `**row` in it, or as a dataclass or NamedTuple with
all its fields. A column is handed on when every way through the function gives the same column of the row.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass

import pyarrow as pa
import pyarrow.types as kind

from penstock.stages.row_source import Source
from penstock.stages.row_types import Stays

PREDICATE = ""
"""The name of what a predicate gives."""


class Given:
    """The rows that one function gives."""

    def __init__(self, source: Source, up: pa.Schema, down: pa.Schema | None) -> None:
        self._source, self._up, self._down = source, up, down
        self.handed: dict[str, str] = {}
        self.computed: tuple[str, ...] = (PREDICATE,)

    def settle(self, returned: list[ast.expr]) -> None:
        """Find out what is handed on by all of these."""
        if self._down is None:
            return
        rows = [self._columns(value) for value in returned]
        for field in self._down:
            found = {self.column_of(row[field.name]) for row in rows}
            (column,) = found if len(found) == 1 else (None,)
            if column is not None and self._same(column, field):
                self.handed[field.name] = column
        self.computed = tuple(name for name in self._down.names if name not in self.handed)
        if not self.computed:
            raise Stays("it computes nothing")

    def parts(self, value: ast.expr) -> Iterator[tuple[str, str, ast.expr]]:
        """(column, letter of its type, expression) of each computed column in what is given."""
        if self._down is None:
            yield PREDICATE, "B", value
            return
        row = self._columns(value)
        for name in self.computed:
            letter = _letters(self._down.field(name).type)
            if letter is None:
                raise Stays(f"it gives {name} as {self._down.field(name).type}")
            yield name, letter, row[name]

    def column_of(self, expr: ast.expr) -> str | None:
        """The column that `row.name` or `row["name"]` is; None for any other expression."""
        match expr:
            case ast.Attribute(ast.Name(argument), name) if argument == self._source.argument:
                if name.startswith("_") or name == "keys":
                    raise Stays(f"it uses {argument}.{name}")
            case ast.Subscript(ast.Name(argument), ast.Constant(str(name))) if (
                argument == self._source.argument
            ):
                pass
            case _:
                return None
        if name not in self._up.names:
            raise Stays(f"there is no column {name}")
        return name

    def _columns(self, value: ast.expr) -> dict[str, ast.expr]:
        """The expression of every column; Stays unless they are the ones declared."""
        assert self._down is not None, "a predicate gives no columns"
        match value:
            case ast.Dict(keys, values):
                found = self._of_dict(keys, values)
            case ast.Call(ast.Name(name), values, words):
                found = self._of_class(name, values, words)
            case _:
                raise Stays(f"`{ast.unparse(value):.60}` is not a row with its columns written out")
        if set(found) != set(self._down.names):
            raise Stays("it gives other columns than it declares")
        return found

    def _of_dict(self, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[str, ast.expr]:
        found: dict[str, ast.expr] = {}
        for key, value in zip(keys, values, strict=True):
            match key, value:
                case None, ast.Name(argument) if argument == self._source.argument:
                    found |= {name: self._whole_column(name) for name in self._up.names}
                case ast.Constant(str(name)), _:
                    found[name] = value
                case _:
                    raise Stays("the names of its columns are not written out")
        return found

    def _of_class(self, name: str, values: list[ast.expr], words: list[ast.keyword]) -> dict[str, ast.expr]:
        made = self._source.value(name)
        if not isinstance(made, type) or not (_is_bare_dataclass(made) or _is_bare_tuple(made)):
            raise Stays(f"{name} is more than its fields")
        names = [each.name for each in fields(made)] if is_dataclass(made) else list(vars(made)["_fields"])
        found = dict(zip(names, values, strict=False))
        found |= {word.arg: word.value for word in words if word.arg is not None}
        if len(found) != len(names) or len(values) + len(words) != len(names):
            raise Stays(f"it does not name all fields of {name}")
        return found

    def _whole_column(self, name: str) -> ast.expr:
        argument = ast.Name(self._source.argument, ast.Load())
        return ast.Subscript(argument, ast.Constant(name), ast.Load())

    def _same(self, column: str, field: pa.Field) -> bool:
        """Whether a column goes through Python unchanged; times do within the years that Python has."""
        type_ = self._up.field(column).type
        return bool(type_ == field.type and not kind.is_nested(type_))


def given_by(source: Source, up: pa.Schema, down: pa.Schema | None) -> Given:
    """What a function gives, over all its returns."""
    given = Given(source, up, down)
    module = ast.Module(source.body, [])
    found = [node for node in ast.walk(module) if isinstance(node, ast.Return)]
    given.settle([each.value if each.value is not None else ast.Constant(None) for each in found])
    return given


def _letters(type_: pa.DataType) -> str | None:
    if kind.is_float64(type_):
        return "F"
    return "I" if kind.is_int64(type_) else "B" if kind.is_boolean(type_) else None


def _is_bare_dataclass(made: type) -> bool:
    """Whether making one does nothing but keep its fields: all methods that matter were written for it."""
    if not is_dataclass(made) or hasattr(made, "__post_init__") or made.__bases__ != (object,):
        return False
    code = getattr(made.__init__, "__code__", None)
    given = all(field.init and not field.kw_only for field in fields(made))
    plain = made.__new__ is object.__new__ and made.__getattribute__ is object.__getattribute__
    return given and plain and code is not None and code.co_filename == "<string>"


def _is_bare_tuple(made: type) -> bool:
    return issubclass(made, tuple) and hasattr(made, "_fields") and made.__bases__ == (tuple,)
