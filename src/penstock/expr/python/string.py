"""Text in plain Python, whose strings are sequences of code points."""

from __future__ import annotations

import string as ascii_tables

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
from penstock.expr.program import Instruction
from penstock.expr.python.lower import Function, lower_node

_LOWER = str.maketrans(ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)
_UPPER = str.maketrans(ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)


@lower_node.register
def _lower(node: Lower, instruction: Instruction) -> Function:
    return lambda text: text.translate(_LOWER)


@lower_node.register
def _upper(node: Upper, instruction: Instruction) -> Function:
    return lambda text: text.translate(_UPPER)


@lower_node.register
def _length(node: Length, instruction: Instruction) -> Function:
    return len


@lower_node.register
def _contains(node: Contains, instruction: Instruction) -> Function:
    return lambda text: node.pattern in text


@lower_node.register
def _starts_with(node: StartsWith, instruction: Instruction) -> Function:
    return lambda text: text.startswith(node.pattern)


@lower_node.register
def _ends_with(node: EndsWith, instruction: Instruction) -> Function:
    return lambda text: text.endswith(node.pattern)


@lower_node.register
def _split(node: Split, instruction: Instruction) -> Function:
    return lambda text: text.split(node.pattern)


@lower_node.register
def _replace(node: Replace, instruction: Instruction) -> Function:
    return lambda text: text.replace(node.pattern, node.replacement)


@lower_node.register
def _strip(node: Strip, instruction: Instruction) -> Function:
    return lambda text: text.strip(node.characters)


@lower_node.register
def _slice(node: Slice, instruction: Instruction) -> Function:
    return lambda text: text[node.start :][: node.length]


@lower_node.register
def _concat(node: Concat, instruction: Instruction) -> Function:
    return lambda *texts: "".join(texts)
