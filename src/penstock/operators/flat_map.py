"""FlatMap: none, one or several rows out for every row in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import FunctionError, SchemaError
from penstock.frozen import dataclass
from penstock.operators.function import (
    Expressions,
    Function,
    as_expressions,
    as_function,
    keep_key,
    late_port,
    need_key,
    need_schema,
)
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream, with_columns


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
            function = as_function(self.function, self.schema, "flat_map", each=True)
        object.__setattr__(self, "function", function)

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
        """The function's columns, or the list column with its elements."""
        up = inputs[IN]
        stateful = need_key(self.state, up, self.how, "flat_map")
        out = self._down(up)
        return {OUT: out, **(late_port(up) if stateful else {}), **self.errors_port(up)}

    def _down(self, up: Stream) -> Stream:
        if not isinstance(self.how, Expressions):
            return up.with_schema(need_schema(self.how, "flat_map")).unkeyed()
        ((name, found),) = self.how.types(up.schema)
        if not pa.types.is_list(found):
            raise SchemaError(
                f"flat_map needs a list, and {self.how.columns[0][1]} is {found}",
                hint='make a list, e.g. col("line").str.split(" "), or use map',
            )
        return keep_key(up, (name,), with_columns(up.schema, [(name, found.value_type)]))

    def describe(self) -> str:
        """The function."""
        return f"flat_map {self.how}" + (" with state per key" if self.state is not None else "")
