"""Lists and JSON on arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure
from penstock.expr import compute as pc
from penstock.expr.arrow.columnar_value import ColumnarValue
from penstock.expr.arrow.lower import Function, lower_node
from penstock.expr.nodes.nested import JsonValue, ListItem, ListLength, extract_json, parse_path
from penstock.expr.program import Instruction
from penstock.expr.values import from_plain


@lower_node.register
def _list_length(node: ListLength, instruction: Instruction) -> Function:
    return lambda lists: pc.list_value_length(lists).cast(pa.int64())


@lower_node.register
def _list_item(node: ListItem, instruction: Instruction) -> Function:
    def item(lists: pa.ListArray) -> pa.Array:
        offsets = lists.offsets.to_numpy()
        starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        places = (starts if node.index >= 0 else ends) + node.index
        missing = (places < starts) | (places >= ends) | lists.is_null().to_numpy(zero_copy_only=False)
        return lists.values.take(pa.array(np.where(missing, 0, places), mask=missing))

    return item


@lower_node.register
def _json(node: JsonValue, instruction: Instruction) -> Function:
    steps = parse_path(node.path)

    def found(text: pa.Array) -> ColumnarValue:
        encoded = text.dictionary_encode()
        values, failed = _extract_distinct(encoded.dictionary, steps, instruction.type)
        flags = pa.array(failed, pa.bool_()).take(encoded.indices)
        return ColumnarValue(values.take(encoded.indices), pc.fill_null(flags, False))

    return found


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
