"""Functions of our own whose text depends on a schema or an expression, and is written when that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import indent
from typing import Any

import pyarrow as pa
import pyarrow.types as kind

from penstock.expr.failure import RowFailure
from penstock.expr.node import Sees
from penstock.expr.nodes.arithmetic import Add, FloorDivide, Modulo, Multiply, Subtract
from penstock.expr.nodes.columns import Column, Literal
from penstock.expr.nodes.comparison import Comparison
from penstock.expr.nodes.conditional import IsNotNull, IsNull, Not
from penstock.expr.program import Line, rule_for
from penstock.expr.python.rule import Failed, rule
from penstock.expr.values import float32, integer_range

_NAME = f"{__file__} (written)"  # under our own folder, so that stacks show users their own frames only


def written_as(name: str, text: str, space: Mapping[str, object] | None = None) -> Callable[..., Any]:
    """The function of that name which a text defines.

    text   our own: what users wrote is in it as `repr` only
    space  the names that it uses
    """
    names: dict[str, Any] = dict(space or {})
    exec(compile(text, _NAME, "exec"), names)  # noqa: S102  # see above
    found: Callable[..., Any] = names[name]
    return found


# A typed program as one Python function, written line by line: calls that do nothing are left out.
#
# Followed line by line at run time, a program costs several calls for each of its lines. Here each line
# becomes a statement: operators that cannot fail stand in it as they are, all others are calls of their
# rule. What a line can be (null, failed) is known from the lines before it, so most checks are never
# written.
#
# A failure is an exception as long as no node judges failures itself; where one does, it is a value.

_SIGNS: dict[type, str] = {Add: "+", Subtract: "-", Multiply: "*"}
_DIVISIONS: dict[type, str] = {FloorDivide: "//", Modulo: "%"}


def written(lines: Sequence[Line]) -> Callable[[Mapping[str, object]], object]:
    """A function from a row's plain values to the value of the last line; it raises RowFailure."""
    writer = _Writer(lines)
    text = "\n".join(writer.statement(place) for place in range(len(lines)))
    last = len(lines) - 1
    if last in writer.fails:
        text += f"\nif type(v{last}) is Failed:\n    raise RowFailure(v{last}.reason)"
    text = f"def value_of(row):\n{indent(text, '    ')}\n    return v{last}\n"
    return written_as("value_of", text, writer.space)


class _Writer:
    """The statements, and what is known of the values that they make.

    space  the names that they use
    nulls  the lines that may be null
    fails  the lines that may be a failure, as a value
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines
        self._travels = any(line.node.sees is Sees.FAILURES for line in lines)
        self.space: dict[str, object] = {"Failed": Failed, "RowFailure": RowFailure, "float32": float32}
        self.nulls: set[int] = set()
        self.fails: set[int] = set()

    def statement(self, place: int) -> str:
        """What makes the value of a line."""
        line = self._lines[place]
        if isinstance(line.node, Column):
            self.nulls.add(place)
            return f"v{place} = row[{line.node.name!r}]"
        if isinstance(line.node, Literal):
            return self._constant(place, line.node.value)
        self.space[f"f{place}"] = rule_for(rule, line.node, line)
        inputs = [f"v{at}" for at in line.inputs]
        call = f"v{place} = f{place}({', '.join(inputs)})"
        inline = _inline(line, [self._lines[at] for at in line.inputs])
        if inline is None:
            self.nulls.add(place)
            return self._guarded(place, self._called(place, call))
        if any(at in self.nulls for at in line.inputs) and line.node.sees is Sees.VALUES:
            self.nulls.add(place)
        made = f"v{place} = {inline.format(*inputs)}"
        if type(line.node) in _SIGNS and kind.is_signed_integer(line.type):
            low, high = integer_range(line.type)
            beyond = indent(self._called(place, call), "    ")  # the rule says what is wrong
            made += f"\nif not {low} <= v{place} <= {high}:\n{beyond}"
        return self._guarded(place, made)

    def _constant(self, place: int, value: object) -> str:
        if value is None:
            self.nulls.add(place)
        if kind.is_float32(self._lines[place].type) and isinstance(value, float):
            value = float32(value)
        self.space[f"c{place}"] = value
        return f"v{place} = c{place}"

    def _called(self, place: int, call: str) -> str:
        """A call of the line's rule."""
        if kind.is_float32(self._lines[place].type):
            call += f"\nif type(v{place}) is float:\n    v{place} = float32(v{place})"
        if not self._travels:
            return call
        self.fails.add(place)
        caught = f"except RowFailure as failure:\n    v{place} = Failed(failure.reason)"
        return f"try:\n{indent(call, '    ')}\n{caught}"

    def _guarded(self, place: int, made: str) -> str:
        """Failures and nulls are handed on, unless the node judges them itself."""
        line = self._lines[place]
        checks = []
        if line.node.sees is not Sees.FAILURES:
            failing = [at for at in line.inputs if at in self.fails]
            checks += [(f"type(v{at}) is Failed", f"v{at}") for at in failing]
            self.fails |= {place} if failing else set()
        if line.node.sees is Sees.VALUES:
            nulls = " or ".join(f"v{at} is None" for at in dict.fromkeys(line.inputs) if at in self.nulls)
            checks += [(nulls, "None")] if nulls else []
        if not checks:
            return made
        text = "\nel".join(f"if {check}:\n    v{place} = {value}" for check, value in checks)
        return f"{text}\nelse:\n{indent(made, '    ')}"


def _inline(line: Line, inputs: Sequence[Line]) -> str | None:
    """The text of an operator that cannot fail on what it gets, None for a call of its rule."""
    node = line.node
    if isinstance(node, Comparison) and all(map(_has_no_nan, line.operands)):
        return f"{{0}} {node.operator} {{1}}"
    if isinstance(node, Not):
        return "not {0}"
    if isinstance(node, IsNull):
        return "{0} is None"
    if isinstance(node, IsNotNull):
        return "{0} is not None"
    if type(node) in _SIGNS and (kind.is_signed_integer(line.type) or kind.is_float64(line.type)):
        return f"{{0}} {_SIGNS[type(node)]} {{1}}"
    if type(node) in _DIVISIONS and kind.is_signed_integer(line.type):
        divisor = inputs[1].node
        # Dividing the least integer by -1 overflows, and by zero there is nothing to divide.
        if isinstance(divisor, Literal) and isinstance(divisor.value, int) and divisor.value > 0:
            return f"{{0}} {_DIVISIONS[type(node)]} {{1}}"
    return None


def _has_no_nan(type_: pa.DataType) -> bool:
    known = (kind.is_signed_integer, kind.is_boolean, kind.is_string, kind.is_binary, kind.is_temporal)
    return any(is_one(type_) for is_one in known)
