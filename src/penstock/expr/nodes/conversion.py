"""Casts, fields of structs, items of lists, and scalars out of JSON text.

There are only those casts on which all engines can agree to the last bit; what does not fit fails the row.

- int to int: in range. int to float: the nearest float64 (float32 through it). bool to number: 1 and 0.
- float to int: towards zero; NaN and out of range fail. decimal to float64: the nearest.
- text to int: `[+-]?digits`, in range. text to float: decimal digits with `.` and `e`, or NaN, Infinity.
- text to bool: true and false in any case; back: true, false. int to text: decimal digits.
- text to date: YYYY-MM-DD. text to timestamp: a date, then `T` or a space, HH:MM, :SS, up to nine decimals
  (rounded down to six), then Z or ±HH:MM (UTC if missing); back in one fixed form, for the years 1 to 9999.
- date to timestamp: midnight; back: rounded down. A zone is a label: a cast to another keeps the instant.

JSON is read at a dotted path such as "user.id", "items[0].price" or "[2]". What is missing, or null, is null.
Malformed text (also NaN, Infinity and a repeated key, which JSON leaves open) and a value of another type
fail the row: text is never read as a number, nor a fraction as an int. `extract_json` is the rule for one
text; all lowerings use it, because Arrow has no kernel for it and Spark's accepts more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NoReturn

import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure, SchemaError, nearest_first
from penstock.expr.node import Expr, is_int32, method_text
from penstock.expr.nodes.forms import MethodCall, quote
from penstock.expr.program import INT64, STRING, Instruction, Requirement, Signature, is_numeric
from penstock.expr.types import parse_type
from penstock.expr.values import from_python, type_name
from penstock.frozen import Frozen

Kind = Callable[[pa.DataType], bool]

INTEGER_TEXT = r"[+-]?[0-9]+"
FLOAT_TEXT = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|NaN|[+-]?Infinity"
DAY_TEXT = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_HOUR, _SIXTY = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"
ZONE_TEXT = rf"(?:Z|[+-]{_HOUR}:{_SIXTY})"
MOMENT_TEXT = rf"{DAY_TEXT}(?:[T ]{_HOUR}:{_SIXTY}(?::{_SIXTY}(?:\.[0-9]{{1,9}})?)?{ZONE_TEXT}?)?"
"""What is well formed, in the regular expressions that Python, Arrow and Java have in common.

They say all of a time but the length of months.
"""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31 in days since 1970
_PATH = re.compile(r"(?:[^.\[\]]+|\[\d+\])(?:\.[^.\[\]]+|\[\d+\])*")
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Cast(MethodCall, method="cast"):
    """The value as another type."""

    type: pa.DataType

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Require a type that has a rule for the cast."""
        source = operands[0].type
        if kind.is_null(source):
            return Signature((self.type,), self.type)
        if find_cast(source, self.type) is None:
            raise SchemaError(
                f"{self} cannot turn {type_name(source)} into {type_name(self.type)}",
                detail="only casts on which all engines agree exist",
                hint=_cast_hint(source, self.type),
            )
        return Signature((source,), self.type)


CASTS: dict[str, tuple[Kind, Kind]] = {
    "integer to integer": (kind.is_signed_integer, kind.is_signed_integer),
    "float to integer": (kind.is_floating, kind.is_signed_integer),
    "number to float": (is_numeric, kind.is_floating),
    "bool to number": (kind.is_boolean, is_numeric),
    "bool to text": (kind.is_boolean, kind.is_string),
    "integer to text": (kind.is_signed_integer, kind.is_string),
    "moment to text": (kind.is_timestamp, kind.is_string),
    "day to text": (kind.is_date32, kind.is_string),
    "text to integer": (kind.is_string, kind.is_signed_integer),
    "text to float": (kind.is_string, kind.is_floating),
    "text to bool": (kind.is_string, kind.is_boolean),
    "text to moment": (kind.is_string, kind.is_timestamp),
    "text to day": (kind.is_string, kind.is_date32),
    "text to binary": (kind.is_string, kind.is_binary),
    "day to moment": (kind.is_date32, kind.is_timestamp),
    "moment to day": (kind.is_timestamp, kind.is_date32),
    "moment to moment": (kind.is_timestamp, kind.is_timestamp),
    "decimal to float": (kind.is_decimal128, kind.is_float64),
}
"""The casts between unlike types; every lowering has a rule for each, for "same" and for wider decimals."""


def find_cast(source: pa.DataType, wanted: pa.DataType) -> str | None:
    """Return the name of the rule from one type to the other; None if there is none."""
    if source == wanted:
        return "same"
    if kind.is_decimal128(source) and kind.is_decimal128(wanted):
        whole = wanted.precision - wanted.scale >= source.precision - source.scale
        return "wider decimal" if wanted.scale >= source.scale and whole else None
    return next((name for name, (left, right) in CASTS.items() if left(source) and right(wanted)), None)


def _cast_hint(source: pa.DataType, wanted: pa.DataType) -> str:
    if kind.is_floating(source) and kind.is_string(wanted):
        return "engines print floats differently; round and cast to int64 first, or print in a row function"
    if kind.is_boolean(wanted):
        return "ask a question instead, for example != 0"
    if is_numeric(source) and (kind.is_timestamp(wanted) or kind.is_date32(wanted)):
        return 'say the unit: from_epoch(col("t"), "ms")'
    if (kind.is_timestamp(source) or kind.is_date32(source)) and is_numeric(wanted):
        return 'say the unit: .dt.epoch("us"), or .dt.epoch("d") for a date'
    if kind.is_decimal(source):
        return 'go through .cast("float64")'
    names = ("bool", "int64", "float64", "string", "binary", "date", "timestamp")
    targets = [name for name in names if find_cast(source, parse_type(name))]
    return f"from {type_name(source)} one can cast to {', '.join(targets) or 'nothing else'}"


class Field(MethodCall, method="field"):
    """One field of a struct."""

    name: str

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
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


class ListFunction(MethodCall, accessor="list."):
    """A function of a list."""

    requirement = Requirement(kind.is_list, "a list", 'make one with .str.split(",")')


class ListLength(ListFunction, method="length", result_type=INT64):
    """The number of items."""


class ListItem(ListFunction, method="item"):
    """The item at an index, which counts from the end when negative; null if there is none."""

    index: int

    def __post_init__(self) -> None:
        if not is_int32(self.index):
            raise SchemaError(
                f"a list has no item {self.index!r}", hint=".list.item(0) is the first, -1 the last"
            )

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Require a list; the result has its items' type."""
        self.requirement.check(self, operands)
        return Signature((operands[0].type,), operands[0].type.value_type)


class Lists(Frozen):
    """The functions of lists: what `.list` offers."""

    of: Expr

    def length(self) -> Expr:
        """Return the number of items."""
        return ListLength(self.of)

    def item(self, index: int) -> Expr:
        """Return one item, from the end when negative; null if there is none."""
        return ListItem(self.of, index)


class JsonValue(MethodCall, method="json"):
    """The scalar at `path` in JSON text, as `type`."""

    path: str
    type: pa.DataType
    requirement = Requirement(kind.is_string, "text", "use .field(name) for a struct")

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not _PATH.fullmatch(self.path):
            raise SchemaError(
                f"{self.path!r} is not a path into JSON", hint='use one such as "user.id" or "items[0].price"'
            )
        if not (is_numeric(self.type) or kind.is_boolean(self.type) or kind.is_string(self.type)):
            name = type_name(self.type)
            raise SchemaError(
                f"JSON has no {name}",
                detail="it has text, numbers, true and false",
                hint=f'take text and cast it: .json("{self.path}", "string").cast("{name}")',
            )

    def signature(self, operands: tuple[Instruction, ...]) -> Signature:
        """Text in, the type named out."""
        self.requirement.check(self, operands)
        return Signature((STRING,), self.type)


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
