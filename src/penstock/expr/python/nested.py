"""Lists and JSON in plain Python."""

from __future__ import annotations

from penstock.expr.nodes.nested import JsonValue, ListItem, ListLength, extract_json, parse_path
from penstock.expr.program import Instruction
from penstock.expr.python.lower import Function, lower_node


@lower_node.register
def _list_length(node: ListLength, instruction: Instruction) -> Function:
    return len


@lower_node.register
def _list_item(node: ListItem, instruction: Instruction) -> Function:
    return lambda items: items[node.index] if -len(items) <= node.index < len(items) else None


@lower_node.register
def _json(node: JsonValue, instruction: Instruction) -> Function:
    steps = parse_path(node.path)
    return lambda text: extract_json(text, steps, node.type)
