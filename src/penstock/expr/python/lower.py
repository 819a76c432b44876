"""Functions of one row of plain values, generated as text: expressions, and checks of the types of rows.

`lower_python` writes a typed program as the text of one Python function and compiles it. Following the
program at run time would cost several calls for each of its instructions. Operators that cannot fail stand in
the text itself, all others are calls of the function that their rule returns. Whether an instruction can give
null or fail is known from those before it, so most checks are left out.

Every instruction is computed, also for branches that are not taken. A failure is an exception as long as no
node handles failures itself; where one does, a failure is a value (`FailedValue`) until that node, or the
end.

`compile_row_check` writes the checks of all columns into one function: column by column they would cost
several calls for every row. A value passes if it is its own plain value (`values.py`) and its Python type
alone shows that. It is on the row path of the in-process engine (`python -m bench runtime`, tuple at a
time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from textwrap import indent
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as kind

from penstock import expr as nodes
from penstock.errors import RowFailure
from penstock.expr.node import Expr, InputHandling
from penstock.expr.program import Function, Instruction, Lowering, resolve
from penstock.expr.python import conversion, rules
from penstock.expr.values import float32, integer_range

# Why: the name lies under our own folder, so that stack traces show users their own frames only.
_FILE_NAME = f"{__file__} (generated)"

RULES = Lowering("plain Python", "expr/python/", rules.RULES | conversion.RULES)
"""From a node and its instruction to the function that computes it from plain values.

Which inputs reach the function is said by `node.input_handling`. It raises RowFailure to fail the row.
"""

_SIGNS = (nodes.Add, nodes.Subtract, nodes.Multiply)
_TEXTS: dict[type, str] = {
    nodes.Not: "not {0}",
    nodes.IsNull: "{0} is None",
    nodes.IsNotNull: "{0} is not None",
}


def lower_python(expr: Expr, schema: pa.Schema) -> Callable[[Mapping[str, object]], object]:
    """Return a function from a row's plain values to the expression's plain value; it raises RowFailure.

    >>> from penstock.expr import col
    >>> lower_python(col("a") + 1, pa.schema({"a": pa.int64()}))({"a": 41})
    42
    """
    program = resolve(expr, schema)
    writer = _ProgramWriter(program)
    text = "\n".join(writer.write(place) for place in range(len(program)))
    last = len(program) - 1
    if last in writer.may_fail:
        text += f"\nif type(v{last}) is FailedValue:\n    raise RowFailure(v{last}.reason)"
    text = f"def value_of(row):\n{indent(text, '    ')}\n    return v{last}\n"
    return compile_function("value_of", text, writer.namespace)


def compile_function(name: str, text: str, namespace: Mapping[str, object] | None = None) -> Function:
    """Return the function of that name which a text defines.

    text       our own: what users wrote is in it as `repr` only
    namespace  the names that it uses
    """
    names: dict[str, Any] = dict(namespace or {})
    exec(compile(text, _FILE_NAME, "exec"), names)  # noqa: S102  # see above
    function: Function = names[name]
    return function


class _ProgramWriter:
    """Writes one statement per instruction, and keeps what is known of the values.

    namespace    the names that the statements use
    may_be_null  the instructions whose value may be null
    may_fail     the instructions whose value may be a `FailedValue`
    """

    def __init__(self, program: Sequence[Instruction]) -> None:
        self._program = program
        self._catches = any(step.node.input_handling is InputHandling.FAILURES for step in program)
        self.namespace: dict[str, object] = {
            "FailedValue": rules.FailedValue,
            "RowFailure": RowFailure,
            "float32": float32,
        }
        self.may_be_null: set[int] = set()
        self.may_fail: set[int] = set()

    def write(self, place: int) -> str:
        """Return the statement that assigns the value of the instruction at `place`."""
        instruction = self._program[place]
        node = instruction.node
        if isinstance(node, nodes.Column):
            self.may_be_null.add(place)
            return f"v{place} = row[{node.name!r}]"
        if isinstance(node, nodes.Literal):
            if node.value is None:
                self.may_be_null.add(place)
            value = node.value
            if kind.is_float32(instruction.type) and isinstance(value, float):
                value = float32(value)
            self.namespace[f"c{place}"] = value
            return f"v{place} = c{place}"
        self.namespace[f"f{place}"] = RULES[type(node)](node, instruction)
        inputs = [f"v{at}" for at in instruction.inputs]
        call = f"v{place} = f{place}({', '.join(inputs)})"
        inline = _inline_text(instruction, [self._program[at] for at in instruction.inputs])
        if inline is None:
            self.may_be_null.add(place)
            return self._write_guards(place, self._write_call(place, call))
        if node.input_handling is InputHandling.STRICT and self.may_be_null.intersection(instruction.inputs):
            self.may_be_null.add(place)
        statement = f"v{place} = {inline.format(*inputs)}"
        if isinstance(node, _SIGNS) and kind.is_signed_integer(instruction.type):
            low, high = integer_range(instruction.type)
            overflow = indent(self._write_call(place, call), "    ")  # the rule raises and says what is wrong
            statement += f"\nif not {low} <= v{place} <= {high}:\n{overflow}"
        return self._write_guards(place, statement)

    def _write_call(self, place: int, call: str) -> str:
        """Complete a call of the instruction's rule: its result is rounded, and its failure caught."""
        if kind.is_float32(self._program[place].type):
            call += f"\nif type(v{place}) is float:\n    v{place} = float32(v{place})"
        if not self._catches:
            return call
        self.may_fail.add(place)
        handler = f"except RowFailure as failure:\n    v{place} = FailedValue(failure.reason)"
        return f"try:\n{indent(call, '    ')}\n{handler}"

    def _write_guards(self, place: int, statement: str) -> str:
        """Put checks before a statement that hand on failures and nulls, unless the node handles them."""
        instruction = self._program[place]
        handling = instruction.node.input_handling
        guards = []
        if handling is not InputHandling.FAILURES:
            failing = [at for at in instruction.inputs if at in self.may_fail]
            guards += [(f"type(v{at}) is FailedValue", f"v{at}") for at in failing]
            self.may_fail |= {place} if failing else set()
        if handling is InputHandling.STRICT:
            nullable = [at for at in dict.fromkeys(instruction.inputs) if at in self.may_be_null]
            is_null = " or ".join(f"v{at} is None" for at in nullable)
            guards += [(is_null, "None")] if nullable else []
        if not guards:
            return statement
        text = "\nel".join(f"if {check}:\n    v{place} = {value}" for check, value in guards)
        return f"{text}\nelse:\n{indent(statement, '    ')}"


def _inline_text(instruction: Instruction, inputs: Sequence[Instruction]) -> str | None:
    """Return the text of an operator that cannot fail on its inputs; None where its rule must be called."""
    node, is_integer = instruction.node, kind.is_signed_integer(instruction.type)
    if isinstance(node, nodes.Comparison):
        is_safe = all(map(_has_no_nan, instruction.operands))
    elif isinstance(node, _SIGNS):
        is_safe = is_integer or kind.is_float64(instruction.type)
    elif isinstance(node, nodes.FloorDivide | nodes.Modulo):
        divisor = inputs[1].node
        # Why: the least integer divided by -1 overflows, and division by zero fails.
        is_positive = (
            isinstance(divisor, nodes.Literal) and isinstance(divisor.value, int) and divisor.value > 0
        )
        is_safe = is_integer and is_positive
    else:
        return _TEXTS.get(type(node))
    return f"{{0}} {node.operator} {{1}}" if is_safe else None


def _has_no_nan(type_: pa.DataType) -> bool:
    tests = (kind.is_signed_integer, kind.is_boolean, kind.is_string, kind.is_binary, kind.is_temporal)
    return any(test(type_) for test in tests)


RowCheck = Callable[[Any], Any]
"""From a row of a user to a new dict of plain values, or to what `otherwise` returns for it."""

_CHECKS = {
    pa.bool_(): "type({0}) is bool",
    pa.float64(): "type({0}) is float",
    pa.string(): "type({0}) is str and {0}.isascii()",
    pa.binary(): "type({0}) is bytes",
    **{
        type_: f"type({{0}}) is int and {low} <= {{0}} <= {high}"
        for type_ in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
        for low, high in [integer_range(type_)]
    },
}


def has_exact_check(type_: pa.DataType) -> bool:
    """Return whether values of a type can be checked by their Python type."""
    return type_ in _CHECKS


@cache
def exact_type_check(type_: pa.DataType) -> Callable[[object], bool]:
    """Return a function that says whether a value, not None, has exactly a type; never for other types."""
    return compile_function("check", f"check = lambda value: {write_type_check('value', type_)}")


def compile_row_check(
    schema: pa.Schema, otherwise: RowCheck, first: str = "pass", namespace: Mapping[str, object] | None = None
) -> RowCheck:
    """Return a function from a dict with exactly the columns of a schema to a new one; None is null.

    otherwise  is called with everything else
    first      statements to run before, which may set `row`
    namespace  the names that these use
    """
    columns = tuple((field.name, _CHECKS.get(field.type)) for field in schema)
    names = {"otherwise": otherwise, **(namespace or {})}
    check: RowCheck = _compile_maker(columns, first, tuple(names))(*names.values())
    return check


@cache
def _compile_maker(
    columns: tuple[tuple[str, str | None], ...], first: str, names: tuple[str, ...]
) -> Callable[..., RowCheck]:
    """Return a function that binds the names, for columns with a name and a check each."""
    reads = [f"v{at} = row[{name!r}]" for at, (name, _) in enumerate(columns)]
    pairs = [f"{name!r}: v{at}" for at, (name, _) in enumerate(columns)]
    checks = [_write_check(f"v{at}", check) for at, (_, check) in enumerate(columns)]
    text = f"""
def make({", ".join(names)}):
    def check(row):
        {first}
        if type(row) is dict and len(row) == {len(columns)}:
            try:
                {"; ".join(reads) or "pass"}
            except KeyError:
                return otherwise(row)
            if {" and ".join(checks) or "True"}:
                return {{{", ".join(pairs)}}}
        return otherwise(row)
    return check
"""
    return compile_function("make", text)


def compile_row_reader(schema: pa.Schema) -> Callable[[Iterable[object]], list[list[Any]] | None]:
    """Return a function from dicts with exactly the columns of a schema to a list of values per column.

    It returns None where one of them is another: there `compile_row_check` has more to say.
    """
    text = write_row_split(schema)
    loop = f"""
def read(rows):
    {"; ".join(f"{name} = []" for name in text.lists)}
    {text.begin}
    for row in rows:
{indent(text.split, " " * 8)}
        return None
    return [{", ".join(text.lists)}]
"""
    read: Callable[[Iterable[object]], list[list[Any]] | None] = compile_function("read", loop)
    return read


class RowSplitText(NamedTuple):
    """The body of a loop that appends the values of `row` to a list per column.

    lists  the names of the lists
    begin  a statement before the loop
    split  appends the values of a dict that passes the check and continues the loop; else goes on behind it
    add    appends the values of a dict that need not be checked
    """

    lists: tuple[str, ...]
    begin: str
    split: str
    add: str


def write_row_split(schema: pa.Schema, then: str = "pass") -> RowSplitText:
    """Return the text for rows of a schema with at least one column; `then` follows what is appended."""
    lists = tuple(f"list{at}" for at in range(len(schema)))
    reads = "; ".join(f"v{at} = row[{name!r}]" for at, name in enumerate(schema.names))
    checks = " and ".join(_write_check(f"v{at}", _CHECKS.get(field.type)) for at, field in enumerate(schema))
    adds = "; ".join(f"add{at}(v{at})" for at in range(len(schema)))
    split = f"""
if type(row) is dict and len(row) == {len(schema)}:
    try:
        {reads}
        if {checks}:
            {adds}; {then}
            continue
    except KeyError:
        pass
"""
    begin = "; ".join(f"add{at} = {name}.append" for at, name in enumerate(lists))
    return RowSplitText(lists, begin, split, f"{reads}; {adds}; {then}")


def write_type_check(value: str, type_: pa.DataType) -> str:
    """Return the text that is true where a value, not None, has exactly a type; "False" for other types."""
    return _CHECKS.get(type_, "False").format(value)


def _write_check(value: str, check: str | None) -> str:
    return f"({value} is None)" if check is None else f"({value} is None or {check.format(value)})"
