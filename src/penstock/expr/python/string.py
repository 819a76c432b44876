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
from penstock.expr.program import Rules

_LOWER = str.maketrans(ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)
_UPPER = str.maketrans(ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)

RULES: Rules = {
    Lower: lambda node, out: lambda text: text.translate(_LOWER),
    Upper: lambda node, out: lambda text: text.translate(_UPPER),
    Length: lambda node, out: len,
    Contains: lambda node, out: lambda text: node.pattern in text,
    StartsWith: lambda node, out: lambda text: text.startswith(node.pattern),
    EndsWith: lambda node, out: lambda text: text.endswith(node.pattern),
    Split: lambda node, out: lambda text: text.split(node.pattern),
    Replace: lambda node, out: lambda text: text.replace(node.pattern, node.replacement),
    Strip: lambda node, out: lambda text: text.strip(node.characters),
    Slice: lambda node, out: lambda text: text[node.start :][: node.length],
    Concat: lambda node, out: lambda *texts: "".join(texts),
}
