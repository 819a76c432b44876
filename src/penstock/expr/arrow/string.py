"""Text on arrays."""

from __future__ import annotations

import pyarrow as pa

from penstock.expr import compute as pc
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
from penstock.expr.program import Function, Instruction, Rules


def _slice(node: Slice, out: Instruction) -> Function:
    def slice_text(text: pa.Array) -> pa.Array:
        tail = pc.utf8_slice_codeunits(text, start=node.start)
        return tail if node.length is None else pc.utf8_slice_codeunits(tail, start=0, stop=node.length)

    return slice_text


RULES: Rules = {
    Lower: lambda node, out: pc.ascii_lower,
    Upper: lambda node, out: pc.ascii_upper,
    Length: lambda node, out: lambda text: pc.utf8_length(text).cast(pa.int64()),
    Contains: lambda node, out: lambda text: pc.match_substring(text, node.pattern),
    StartsWith: lambda node, out: lambda text: pc.starts_with(text, node.pattern),
    EndsWith: lambda node, out: lambda text: pc.ends_with(text, node.pattern),
    Split: lambda node, out: lambda text: pc.split_pattern(text, node.pattern),
    Replace: lambda node, out: lambda text: pc.replace_substring(text, node.pattern, node.replacement),
    Strip: lambda node, out: lambda text: pc.utf8_trim(text, characters=node.characters),
    Slice: _slice,
    Concat: lambda node, out: lambda *texts: pc.binary_join_element_wise(*texts, ""),
}
