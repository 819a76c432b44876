"""Fields of structs, items of lists, and JSON in plain Python."""

from __future__ import annotations

from penstock.expr.nodes.nested import Field, JsonValue, ListItem, ListLength, extract_json, parse_path
from penstock.expr.program import Function, Instruction, Rules


def _json(node: JsonValue, out: Instruction) -> Function:
    steps = parse_path(node.path)
    return lambda text: extract_json(text, steps, node.type)


def _list_item(node: ListItem, out: Instruction) -> Function:
    return lambda items: items[node.index] if -len(items) <= node.index < len(items) else None


RULES: Rules = {
    Field: lambda node, out: lambda struct: struct[node.name],
    ListLength: lambda node, out: len,
    ListItem: _list_item,
    JsonValue: _json,
}
