"""Map, Filter and FlatMap: operators that call a function for each row or for each batch.

With `state=factory` a row function keeps a state per key and is called as `fn(row, state)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import FunctionError, SchemaError
from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.function import (
    BatchFunction,
    Expressions,
    Function,
    RowFunction,
    as_expressions,
    as_function,
    check_compile,
    has_state,
    keep_key,
    late_port,
    require_bool,
    require_schema,
    row_function,
)
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream, with_columns

Predicate = Expr | BatchFunction | RowFunction


@dataclass(frozen=True, slots=True)
class Map(Op):
    """Make a row of every row by a row function or a batch function, which gives the whole new row.

    `compile=True` lets a row function be compiled although its integers then wrap at 64 bits.
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
        if self.compile is not False:
            check_compile(self.compile, self.how, self.state, "map")

    @property
    def how(self) -> BatchFunction | RowFunction:
        """Return the checked function."""
        assert isinstance(self.function, BatchFunction | RowFunction), "made so by __post_init__"
        return self.function

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns that the function declares, without a key."""
        up = inputs[IN]
        out = up.with_schema(require_schema(self.how, "map")).without_key()
        late = late_port(up) if has_state(self.state, up, self.how, "map") else {}
        return {OUT: out, **late, **self.errors_port(up)}

    def describe(self) -> str:
        """Return the verb and the function."""
        return f"map {self.how}" + (" with state per key" if self.state is not None else "")


@dataclass(frozen=True, slots=True)
class Filter(Op):
    """Drop the rows for which the predicate is false or null; they are counted as filtered.

    `compile=True` lets a row function be compiled although its integers then wrap at 64 bits.
    """

    predicate: object
    state: Callable[[], Any] | None = None
    compile: bool = False

    kind: ClassVar[str] = "F"
    verb: ClassVar[str] = "filter"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if not isinstance(self.predicate, Predicate):
            object.__setattr__(self, "predicate", row_function(self.predicate))
        if self.compile is not False:
            check_compile(self.compile, self.how, self.state, "filter")

    @property
    def how(self) -> Predicate:
        """Return the checked predicate."""
        assert isinstance(self.predicate, Predicate), "made so by __post_init__"
        return self.predicate

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the same columns, still keyed."""
        up = inputs[IN]
        if isinstance(self.how, Expr):
            require_bool(self.how, up.schema, "a filter")
        late = late_port(up) if has_state(self.state, up, self.how, "filter") else {}
        return {OUT: up, **late, **self.errors_port(up)}

    def describe(self) -> str:
        """Return the verb and the predicate."""
        return f"filter {self.how}" + (" with state per key" if self.state is not None else "")


@dataclass(frozen=True, slots=True)
class FlatMap(Op):
    """Make rows of a row: a function gives an iterable of them, an expression gives a list.

    `flat_map(word=col("line").str.split(" "))` gives one row per element, the other columns repeated.
    """

    function: object
    schema: object = None
    state: Callable[[], Any] | None = None

    kind: ClassVar[str] = "FM"
    verb: ClassVar[str] = "flat_map"

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        function: Function
        if isinstance(self.function, Mapping):
            function = as_expressions(self.function.items(), "flat_map")
            if self.schema is not None:
                raise FunctionError(
                    "flat_map is given schema= and nothing to declare with it",
                    detail="an expression has a type of its own",
                    hint='leave schema= out; for a column of that name: .flat_map({"schema": ...})',
                )
            if len(function.columns) != 1:
                raise FunctionError(
                    "flat_map takes one list column at a time",
                    hint="write two flat_maps, or a function that gives rows",
                )
        else:
            function = as_function(self.function, self.schema, "flat_map", many=True)
        object.__setattr__(self, "function", function)

    @property
    def how(self) -> Function:
        """Return the checked function or expression."""
        assert isinstance(self.function, Function), "made so by __post_init__"
        return self.function

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns that the function declares, or the list column with its elements."""
        up = inputs[IN]
        late = late_port(up) if has_state(self.state, up, self.how, "flat_map") else {}
        return {OUT: self._output(up), **late, **self.errors_port(up)}

    def _output(self, up: Stream) -> Stream:
        if not isinstance(self.how, Expressions):
            return up.with_schema(require_schema(self.how, "flat_map")).without_key()
        ((name, type_),) = self.how.types(up.schema)
        if not pa.types.is_list(type_):
            raise SchemaError(
                f"flat_map needs a list, and {self.how.columns[0][1]} is {type_}",
                hint='make a list, e.g. col("line").str.split(" "), or use with_columns',
            )
        return keep_key(up, (name,), with_columns(up.schema, [(name, type_.value_type)]))

    def describe(self) -> str:
        """Return the verb and the function."""
        return f"flat_map {self.how}" + (" with state per key" if self.state is not None else "")
