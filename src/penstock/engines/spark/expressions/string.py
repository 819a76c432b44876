"""Text in the JVM."""

from __future__ import annotations

import re
import string as ascii_tables

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import Inputs, Rules
from penstock.expr import (
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

_ALL = (1 << 31) - 1  # more characters than a text can have
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


def _split(node: Split, out: Instruction, inputs: Inputs) -> Column:
    # Spark splits by a regular expression; -1 keeps empty texts at the end.
    pattern = _SPECIAL.sub(lambda match: "\\" + match[0], node.pattern)
    return F.split(inputs[0].value, pattern, -1)


def _slice(node: Slice, out: Instruction, inputs: Inputs) -> Column:
    text, length = inputs[0].value, _ALL if node.length is None else node.length
    if node.start >= 0:
        return F.substring(text, min(node.start + 1, _ALL), length)
    # Spark counts the length from a start before the text; the tail must be taken first.
    tail = F.substring(text, node.start, _ALL)
    return tail if node.length is None else F.substring(tail, 1, length)


def ascii_lower(text: Column) -> Column:
    """Returns A to Z as a to z; Spark's own lower knows other letters than Python's and Arrow's."""
    return F.translate(text, ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)


RULES: Rules = {
    Lower: lambda node, out, inputs: ascii_lower(inputs[0].value),
    Upper: lambda node, out, inputs: F.translate(
        inputs[0].value, ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase
    ),
    Length: lambda node, out, inputs: F.length(inputs[0].value).cast("long"),
    Contains: lambda node, out, inputs: inputs[0].value.contains(F.lit(node.pattern)),
    StartsWith: lambda node, out, inputs: inputs[0].value.startswith(F.lit(node.pattern)),
    EndsWith: lambda node, out, inputs: inputs[0].value.endswith(F.lit(node.pattern)),
    Split: _split,
    Replace: lambda node, out, inputs: F.replace(
        inputs[0].value, F.lit(node.pattern), F.lit(node.replacement)
    ),
    Strip: lambda node, out, inputs: F.btrim(inputs[0].value, F.lit(node.characters)),
    Slice: _slice,
    Concat: lambda node, out, inputs: F.concat(*(text.value for text in inputs)),
}
