"""Text, lists and JSON on arrays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.expr.arrow.evaluated import Evaluated
from penstock.expr.arrow.rule import Function, kernel, rule
from penstock.expr.failure import RowFailure
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
from penstock.expr.values import from_plain


@rule.register
def _lower(node: Lower, line: Line) -> Function:
    return kernel(pc.ascii_lower)


@rule.register
def _upper(node: Upper, line: Line) -> Function:
    return kernel(pc.ascii_upper)


@rule.register
def _length(node: Length, line: Line) -> Function:
    return lambda text: pc.utf8_length(text).cast(pa.int64())


@rule.register
def _contains(node: Contains, line: Line) -> Function:
    return lambda text: pc.match_substring(text, node.pattern)


@rule.register
def _starts_with(node: StartsWith, line: Line) -> Function:
    return lambda text: pc.starts_with(text, node.pattern)


@rule.register
def _ends_with(node: EndsWith, line: Line) -> Function:
    return lambda text: pc.ends_with(text, node.pattern)


@rule.register
def _split(node: Split, line: Line) -> Function:
    return lambda text: pc.split_pattern(text, node.pattern)


@rule.register
def _replace(node: Replace, line: Line) -> Function:
    return lambda text: pc.replace_substring(text, node.pattern, node.replacement)


@rule.register
def _strip(node: Strip, line: Line) -> Function:
    return lambda text: pc.utf8_trim(text, characters=node.characters)


@rule.register
def _slice(node: Slice, line: Line) -> Function:
    def sliced(text: pa.Array) -> pa.Array:
        tail = pc.utf8_slice_codeunits(text, start=node.start)
        return tail if node.length is None else pc.utf8_slice_codeunits(tail, start=0, stop=node.length)

    return sliced


@rule.register
def _concat(node: Concat, line: Line) -> Function:
    return lambda *texts: pc.binary_join_element_wise(*texts, "")


@rule.register
def _list_length(node: ListLength, line: Line) -> Function:
    return lambda lists: pc.list_value_length(lists).cast(pa.int64())


@rule.register
def _list_item(node: ListItem, line: Line) -> Function:
    def item(lists: pa.ListArray) -> pa.Array:
        offsets = lists.offsets.to_numpy()
        starts, ends = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
        places = (starts if node.index >= 0 else ends) + node.index
        missing = (places < starts) | (places >= ends) | lists.is_null().to_numpy(zero_copy_only=False)
        return lists.values.take(pa.array(np.where(missing, 0, places), mask=missing))

    return item


@rule.register
def _json(node: JsonValue, line: Line) -> Function:
    steps = steps_of(node.path)

    def found(text: pa.Array) -> Evaluated:
        encoded = text.dictionary_encode()
        values, failed = _each_once(encoded.dictionary, steps, line.type)
        flags = pa.array(failed, pa.bool_()).take(encoded.indices)
        return Evaluated(values.take(encoded.indices), pc.fill_null(flags, False))

    return found


def _each_once(
    texts: pa.Array, steps: tuple[str | int, ...], type: pa.DataType
) -> tuple[pa.Array, list[bool]]:
    """The rule for one text, once per distinct text: Arrow has no kernel that reads JSON per row."""
    values: list[object] = []
    failed: list[bool] = []
    for text in texts.to_pylist():
        try:
            values.append(extract(text, steps, type))
            failed.append(False)
        except RowFailure:
            values.append(None)
            failed.append(True)
    return from_plain(values, type), failed
