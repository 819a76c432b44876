"""Fields of structs, items of lists, and JSON on arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue
from penstock.expr.nodes.nested import Field, JsonValue, ListItem, ListLength, extract_json, parse_path
from penstock.expr.program import Function, Instruction, Rules
from penstock.expr.values import from_plain


def _field(node: Field, out: Instruction) -> Function:
    place = out.operands[0].get_field_index(node.name)
    return lambda structs: pc.struct_field(structs, [place])


def _list_item(node: ListItem, out: Instruction) -> Function:
    def item(lists: pa.ListArray) -> pa.Array:
        offsets = lists.offsets.to_numpy()
        starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        places = (starts if node.index >= 0 else ends) + node.index
        missing = (places < starts) | (places >= ends) | lists.is_null().to_numpy(zero_copy_only=False)
        return lists.values.take(pa.array(np.where(missing, 0, places), mask=missing))

    return item


def _json(node: JsonValue, out: Instruction) -> Function:
    steps = parse_path(node.path)

    def extract(text: pa.Array) -> ColumnarValue:
        encoded = text.dictionary_encode()
        values, failed = _extract_distinct(encoded.dictionary, steps, out.type)
        flags = pa.array(failed, pa.bool_()).take(encoded.indices)
        return ColumnarValue(values.take(encoded.indices), pc.fill_null(flags, False))

    return extract


def _extract_distinct(
    texts: pa.Array, steps: tuple[str | int, ...], type: pa.DataType
) -> tuple[pa.Array, list[bool]]:
    """Applies the rule for one text to each distinct text: Arrow has no kernel that reads JSON per row."""
    values: list[object] = []
    failed: list[bool] = []
    for text in texts.to_pylist():
        try:
            values.append(extract_json(text, steps, type))
            failed.append(False)
        except RowFailure:
            values.append(None)
            failed.append(True)
    return from_plain(values, type), failed


RULES: Rules = {
    Field: _field,
    ListLength: lambda node, out: lambda lists: pc.list_value_length(lists).cast(pa.int64()),
    ListItem: _list_item,
    JsonValue: _json,
}
