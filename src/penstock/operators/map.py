"""Map: one row out for every row in. Select: the same, keeping only the columns named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import FunctionError, SchemaError
from penstock.expr import Column, Expr
from penstock.frozen import dataclass
from penstock.operators.function import (
    BatchFunction,
    Expressions,
    Function,
    batch,
    check_compile,
    expressions,
    keep_key,
    late_port,
    need_key,
    need_schema,
    row_function,
    widened,
)
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class Map(Op):
    """Make a row of every row: by expressions, a batch function, or a row function.

    With `state=factory` the function is called as `fn(row, state)`, with the state of the row's key.
    `compile=True` lets a row function be compiled although its whole numbers then wrap at 64 bits.
    """

    function: object
    schema: object = None
    state: Callable[[], Any] | None = None
    compile: bool = False

    kind: ClassVar[str] = "M"
    verb: ClassVar[str] = "map"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        object.__setattr__(self, "function", as_function(self.function, self.schema, "map"))
        check_compile(self.compile, self.how, self.state, "map")

    @property
    def how(self) -> Function:
        """The function, checked."""
        assert isinstance(self.function, Function), "made so by __post_init__"
        return self.function

    @property
    def stateful(self) -> bool:
        """Whether there is a state per key."""
        return self.state is not None

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """The function's columns; the key stays if its columns are left alone."""
        up = inputs[IN]
        out = self._down(up)
        late = late_port(up) if need_key(self.state, up, self.how, "map") else {}
        return {OUT: out, **late, **self.errors_port(up)}

    def _down(self, up: Stream) -> Stream:
        if isinstance(self.how, Expressions):
            return widened(up, self.how)
        return up.with_schema(need_schema(self.how, "map")).unkeyed()

    def describe(self) -> str:
        """The function."""
        return f"map {self.how}" + (" with state per key" if self.state is not None else "")


@dataclass(frozen=True, slots=True)
class Select(Op):
    """Keep the named columns, in that order; a name may be given an expression."""

    columns: tuple[tuple[str, Expr], ...]

    kind: ClassVar[str] = "M"
    verb: ClassVar[str] = "select"

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """The columns selected; the key stays if its columns are all passed on as they are."""
        up = inputs[IN]
        self._refuse_twice()
        up.require(*(name for _, expr in self.columns for name in expr.columns()))
        kept = {name for name, expr in self.columns if isinstance(expr, Column) and expr.name == name}
        types = Expressions(self.columns).types(up.schema)
        schema = pa.schema([pa.field(name, type_) for name, type_ in types])
        return {OUT: keep_key(up, set(up.key) - kept, schema), **self.errors_port(up)}

    def _refuse_twice(self) -> None:
        names = [name for name, _ in self.columns]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(
                    f'select gives column "{name}" twice', hint="leave one out, or give it another name"
                )

    def describe(self) -> str:
        """The columns."""
        return f"select {Expressions(self.columns)}"


def as_function(given: object, schema: object, verb: str, *, each: bool = False) -> Function:
    """What a step was given, as one of the three kinds of function."""
    if isinstance(given, Expr):
        raise FunctionError(
            f"{given} makes a column, and {verb} is not told its name",
            hint=f"name the column: .{verb}(total={given})",
        )
    if isinstance(given, BatchFunction) and given.schema is None and schema is not None:
        return batch(given.call, schema=schema)
    if isinstance(given, Function | Mapping) and schema is not None:
        raise FunctionError(
            f"{verb} is given schema= and nothing to declare with it",
            detail="expressions have types of their own, and ps.batch(fn, schema=...) declares its own",
            hint=f'leave schema= out; for a column of that name: .{verb}({{"schema": ...}})',
        )
    if isinstance(given, Function):
        return given
    if isinstance(given, Mapping):
        return expressions(given, verb)
    return row_function(given, schema=schema, each=each)
