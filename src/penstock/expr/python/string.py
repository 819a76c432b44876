"""Text, lists and JSON in plain Python, whose strings are sequences of code points."""

from __future__ import annotations

import string as ascii_tables

from penstock.expr.nodes.nested import JsonValue, ListItem, ListLength, extract, steps_of
from penstock.expr.nodes.string import (
    Concat,
    Contains,
    EndsWith,
    Length,
    Lower,
    Replace,
    Slice,
    Split,
    StartsWith,
    Strip,
    Upper,
)
from penstock.expr.program import Line
from penstock.expr.python.rule import Function, rule

_LOWER = str.maketrans(ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)
_UPPER = str.maketrans(ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)


@rule.register
def _lower(node: Lower, line: Line) -> Function:
    return lambda text: text.translate(_LOWER)


@rule.register
def _upper(node: Upper, line: Line) -> Function:
    return lambda text: text.translate(_UPPER)


@rule.register
def _length(node: Length, line: Line) -> Function:
    return len


@rule.register
def _contains(node: Contains, line: Line) -> Function:
    return lambda text: node.pattern in text


@rule.register
def _starts_with(node: StartsWith, line: Line) -> Function:
    return lambda text: text.startswith(node.pattern)


@rule.register
def _ends_with(node: EndsWith, line: Line) -> Function:
    return lambda text: text.endswith(node.pattern)


@rule.register
def _split(node: Split, line: Line) -> Function:
    return lambda text: text.split(node.pattern)


@rule.register
def _replace(node: Replace, line: Line) -> Function:
    return lambda text: text.replace(node.pattern, node.replacement)


@rule.register
def _strip(node: Strip, line: Line) -> Function:
    return lambda text: text.strip(node.characters)


@rule.register
def _slice(node: Slice, line: Line) -> Function:
    return lambda text: text[node.start :][: node.length]


@rule.register
def _concat(node: Concat, line: Line) -> Function:
    return lambda *texts: "".join(texts)


@rule.register
def _list_length(node: ListLength, line: Line) -> Function:
    return len


@rule.register
def _list_item(node: ListItem, line: Line) -> Function:
    return lambda items: items[node.index] if -len(items) <= node.index < len(items) else None


@rule.register
def _json(node: JsonValue, line: Line) -> Function:
    steps = steps_of(node.path)
    return lambda text: extract(text, steps, node.type)
