"""Text on arrays."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr import compute as pc
from penstock.expr.arrow.lower import Function, kernel, lower_node
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


@lower_node.register
def _lower(node: Lower, instruction: Instruction) -> Function:
    return kernel(pc.ascii_lower)


@lower_node.register
def _upper(node: Upper, instruction: Instruction) -> Function:
    return kernel(pc.ascii_upper)


@lower_node.register
def _length(node: Length, instruction: Instruction) -> Function:
    return lambda text: pc.utf8_length(text).cast(pa.int64())


@lower_node.register
def _contains(node: Contains, instruction: Instruction) -> Function:
    return lambda text: pc.match_substring(text, node.pattern)


@lower_node.register
def _starts_with(node: StartsWith, instruction: Instruction) -> Function:
    return lambda text: pc.starts_with(text, node.pattern)


@lower_node.register
def _ends_with(node: EndsWith, instruction: Instruction) -> Function:
    return lambda text: pc.ends_with(text, node.pattern)


@lower_node.register
def _split(node: Split, instruction: Instruction) -> Function:
    return lambda text: pc.split_pattern(text, node.pattern)


@lower_node.register
def _replace(node: Replace, instruction: Instruction) -> Function:
    return lambda text: pc.replace_substring(text, node.pattern, node.replacement)


@lower_node.register
def _strip(node: Strip, instruction: Instruction) -> Function:
    return lambda text: pc.utf8_trim(text, characters=node.characters)


@lower_node.register
def _slice(node: Slice, instruction: Instruction) -> Function:
    def sliced(text: pa.Array) -> pa.Array:
        tail = pc.utf8_slice_codeunits(text, start=node.start)
        return tail if node.length is None else pc.utf8_slice_codeunits(tail, start=0, stop=node.length)

    return sliced


@lower_node.register
def _concat(node: Concat, instruction: Instruction) -> Function:
    return lambda *texts: pc.binary_join_element_wise(*texts, "")
