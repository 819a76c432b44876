"""Fields of structs, lengths and items of lists, and scalars out of JSON text.

JSON is read at a dotted path such as "user.id", "items[0].price" or "[2]". What is missing, or null, is null.
Malformed text (also NaN, Infinity and a repeated key, which JSON leaves open) and a value of another type
fail the row: text is never read as a number, nor a fraction as an int. `extract_json` is the rule for one
text; all lowerings use it, because Arrow has no kernel for it and Spark's accepts more.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure, SchemaError, nearest_first
from penstock.expr.node import is_int32, is_nonempty_text, method_text
from penstock.expr.nodes.columns import quote
from penstock.expr.signature import INT64, STRING, Operand, Signature, is_numeric, require_type
from penstock.expr.surface import Expr, MethodCall
from penstock.expr.types import parse_type
from penstock.expr.values import from_python, type_name
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Field(MethodCall):
    """One field of a struct."""

    name: str

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a struct that has the field; the result has the field's type."""
        (struct,) = operands
        if not kind.is_struct(struct.type):
            raise SchemaError(
                f"{self} needs a struct, and {self.child} is {type_name(struct.type)}",
                hint=f"use {self.child}",
            )
        names = [field.name for field in struct.type]
        if self.name not in names:
            near = nearest_first(self.name, names)
            raise SchemaError(
                f'{self.child} has no field "{self.name}"',
                detail="its fields are " + ", ".join(near),
                hint=f"use {method_text(self.child, str(self.child), f'field({quote(near[0])})')}"
                if near
                else None,
            )
        return Signature((struct.type,), struct.type.field(self.name).type)

    def _call_text(self, *arguments: str) -> str:
        return f"field({quote(self.name)})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListFunction(MethodCall):
    """A function of a list."""

    def element(self, operand: Operand) -> pa.DataType:
        """Return the type of the list's items; raise SchemaError if it is no list."""
        require_type(self, operand, kind.is_list, "a list", 'make one with .str.split(",")')
        return operand.type.value_type


class ListLength(ListFunction):
    """The number of items."""

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a list; the result is int64."""
        self.element(operands[0])
        return Signature((operands[0].type,), INT64)

    def _call_text(self, *arguments: str) -> str:
        return "list.length()"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListItem(ListFunction):
    """The item at an index, which counts from the end when negative; null if there is none."""

    index: int

    def __post_init__(self) -> None:
        if not is_int32(self.index):
            raise SchemaError(
                f"a list has no item {self.index!r}", hint=".list.item(0) is the first, -1 the last"
            )

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Require a list; the result has its items' type."""
        item = self.element(operands[0])
        return Signature((operands[0].type,), item)

    def _call_text(self, *arguments: str) -> str:
        return f"list.item({self.index})"


@dataclass(frozen=True, slots=True)
class Lists:
    """The functions of lists: what `.list` offers."""

    of: Expr

    def length(self) -> Expr:
        """Return the number of items."""
        return ListLength(self.of)

    def item(self, index: int) -> Expr:
        """Return one item, from the end when negative; null if there is none."""
        return ListItem(self.of, index)


_PATH = re.compile(r"(?:[^.\[\]]+|\[\d+\])(?:\.[^.\[\]]+|\[\d+\])*")
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JsonValue(MethodCall):
    """The scalar at `path` in JSON text, as `type`."""

    path: str
    type: pa.DataType

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Text in, the type named out."""
        require_type(self, operands[0], kind.is_string, "text", "use .field(name) for a struct")
        return Signature((STRING,), self.type)

    def _call_text(self, *arguments: str) -> str:
        return f'json({quote(self.path)}, "{type_name(self.type)}")'


def json_target(path: str, type: pa.DataType | str) -> pa.DataType:
    """Return the declared type of a JSON scalar, after a check of it and of the path."""
    if not is_nonempty_text(path) or not _PATH.fullmatch(path):
        raise SchemaError(
            f"{path!r} is not a path into JSON", hint='use one such as "user.id" or "items[0].price"'
        )
    wanted = parse_type(type)
    if not (is_numeric(wanted) or kind.is_boolean(wanted) or kind.is_string(wanted)):
        raise SchemaError(
            f"JSON has no {type_name(wanted)}",
            detail="it has text, numbers, true and false",
            hint=f'take text and cast it: .json("{path}", "string").cast("{type_name(wanted)}")',
        )
    return wanted


def parse_path(path: str) -> tuple[str | int, ...]:
    """Return the names and indices of a path.

    >>> parse_path("items[0].price")
    ('items', 0, 'price')
    """
    return tuple(int(index) if index else name for index, name in _PART.findall(path))


def extract_json(text: str, steps: tuple[str | int, ...], type: pa.DataType) -> object:
    """Return the plain value at the end of the path; raise RowFailure if text or value do not fit."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys)
    except (ValueError, RecursionError) as problem:
        raise RowFailure(f"malformed JSON ({problem}): {text!r:.80}") from None
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise RowFailure(f"a number in {text!r:.80} is out of range")
    return from_python(value, type)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a key is repeated")
    return unique
