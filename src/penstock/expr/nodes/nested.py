"""Lists: how long they are and what stands where. They are made by `split`, or come in a column."""

from __future__ import annotations

import json
import re
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure, SchemaError, nearest_first
from penstock.expr.node import is_int32, is_nonempty_text, method_text
from penstock.expr.nodes.columns import quote
from penstock.expr.schema import parse_type
from penstock.expr.signature import INT64, STRING, Operand, Signature, is_numeric, require_type
from penstock.expr.surface import Expr
from penstock.expr.values import from_python, type_name
from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Field(Expr):
    """One field of a struct."""

    child: Expr
    name: str

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """The field's type."""
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

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("user").field("id")."""
        return method_text(self.child, parts[0], f"field({quote(self.name)})")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListFunction(Expr):
    """A function of a list."""

    child: Expr

    def element(self, operand: Operand) -> pa.DataType:
        """The type of the list's items; SchemaError if it is no list."""
        require_type(self, operand, kind.is_list, "a list", 'make one with .str.split(",")')
        return operand.type.value_type


class ListLength(ListFunction):
    """The number of items."""

    __slots__ = ()

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """A list in, int64 out."""
        self.element(operands[0])
        return Signature((operands[0].type,), INT64)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("a").list.length()."""
        return method_text(self.child, parts[0], "list.length()")


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
        """A list in, its items' type out."""
        item = self.element(operands[0])
        return Signature((operands[0].type,), item)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("a").list.item(0)."""
        return method_text(self.child, parts[0], f"list.item({self.index})")


@dataclass(frozen=True, slots=True)
class Lists:
    """The functions of lists: what `.list` offers."""

    of: Expr

    def length(self) -> Expr:
        """The number of items."""
        return ListLength(self.of)

    def item(self, index: int) -> Expr:
        """One item, from the end when negative; null if there is none."""
        return ListItem(self.of, index)


# One scalar out of JSON text, at a dotted path such as "user.id", "items[0].price" or "[2]".
#
# What is missing, or null, is null. Malformed text (also NaN, Infinity and a repeated key, which JSON leaves
# open) and a value of another type fail the row: text is never read as a number, nor a fraction as an int.
# `extract` is the rule for one text; both lowerings use it, because Arrow has no kernel for it.

_PATH = re.compile(r"(?:[^.\[\]]+|\[\d+\])(?:\.[^.\[\]]+|\[\d+\])*")
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JsonValue(Expr):
    """The scalar at `path` in JSON text, as `type`."""

    child: Expr
    path: str
    type: pa.DataType

    def signature(self, operands: tuple[Operand, ...]) -> Signature:
        """Text in, the type named out."""
        require_type(self, operands[0], kind.is_string, "text", "use .field(name) for a struct")
        return Signature((STRING,), self.type)

    def text(self, parts: tuple[str, ...]) -> str:
        """As typed: col("body").json("user.id", "int64")."""
        return method_text(self.child, parts[0], f'json({quote(self.path)}, "{type_name(self.type)}")')


def json_target(path: str, type: pa.DataType | str) -> pa.DataType:
    """The declared type of a JSON scalar; the path is checked as well."""
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
    """The path taken apart: names and indices.

    >>> steps_of("items[0].price")
    ('items', 0, 'price')
    """
    return tuple(int(index) if index else name for index, name in _PART.findall(path))


def extract_json(text: str, steps: tuple[str | int, ...], type: pa.DataType) -> object:
    """The plain value at the end of the steps; RowFailure if the text or the value is not right."""
    try:
        found = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys)
    except (ValueError, RecursionError) as problem:
        raise RowFailure(f"malformed JSON ({problem}): {text!r:.80}") from None
    for step in steps:
        if isinstance(step, str):
            found = found.get(step) if isinstance(found, dict) else None
        else:
            found = found[step] if isinstance(found, list) and step < len(found) else None
    if isinstance(found, float) and found in (float("inf"), float("-inf")):
        raise RowFailure(f"a number in {text!r:.80} is out of range")
    return from_python(found, type)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_repeated_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found
