"""Text in the JVM."""

from __future__ import annotations

import re
import string as ascii_tables

from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.spark_value import Inputs, lower_node
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


@lower_node.register
def _lower(node: Lower, instruction: Instruction, inputs: Inputs) -> Column:
    return ascii_lower(inputs[0].value)


@lower_node.register
def _upper(node: Upper, instruction: Instruction, inputs: Inputs) -> Column:
    return F.translate(inputs[0].value, ascii_tables.ascii_lowercase, ascii_tables.ascii_uppercase)


@lower_node.register
def _length(node: Length, instruction: Instruction, inputs: Inputs) -> Column:
    return F.length(inputs[0].value).cast("long")


@lower_node.register
def _contains(node: Contains, instruction: Instruction, inputs: Inputs) -> Column:
    return inputs[0].value.contains(F.lit(node.pattern))


@lower_node.register
def _starts_with(node: StartsWith, instruction: Instruction, inputs: Inputs) -> Column:
    return inputs[0].value.startswith(F.lit(node.pattern))


@lower_node.register
def _ends_with(node: EndsWith, instruction: Instruction, inputs: Inputs) -> Column:
    return inputs[0].value.endswith(F.lit(node.pattern))


@lower_node.register
def _split(node: Split, instruction: Instruction, inputs: Inputs) -> Column:
    # Spark splits by a regular expression; -1 keeps empty texts at the end.
    pattern = _SPECIAL.sub(lambda found: "\\" + found[0], node.pattern)
    return F.split(inputs[0].value, pattern, -1)


@lower_node.register
def _replace(node: Replace, instruction: Instruction, inputs: Inputs) -> Column:
    return F.replace(inputs[0].value, F.lit(node.pattern), F.lit(node.replacement))


@lower_node.register
def _strip(node: Strip, instruction: Instruction, inputs: Inputs) -> Column:
    return F.btrim(inputs[0].value, F.lit(node.characters))


@lower_node.register
def _slice(node: Slice, instruction: Instruction, inputs: Inputs) -> Column:
    text, length = inputs[0].value, _ALL if node.length is None else node.length
    if node.start >= 0:
        return F.substring(text, min(node.start + 1, _ALL), length)
    # Spark counts the length from a start before the text; the tail must be taken first.
    tail = F.substring(text, node.start, _ALL)
    return tail if node.length is None else F.substring(tail, 1, length)


@lower_node.register
def _concat(node: Concat, instruction: Instruction, inputs: Inputs) -> Column:
    return F.concat(*(each.value for each in inputs))


def ascii_lower(text: Column) -> Column:
    """A to Z as a to z; Spark's own lower knows other letters than Python's and Arrow's."""
    return F.translate(text, ascii_tables.ascii_uppercase, ascii_tables.ascii_lowercase)
