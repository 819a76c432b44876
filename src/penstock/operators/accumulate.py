"""Accumulate: a state per key that every row moves on; the new state goes out (WindFlow, 2.1)."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from penstock.errors import FunctionError, GraphError, SchemaError, describe_cause
from penstock.expr.types import parse_schema
from penstock.frozen import dataclass
from penstock.operators.function import RowFunction, late_port, require_call, row_function
from penstock.operators.op import IN, OUT, Op
from penstock.operators.stream import Stream, columns, join_columns


@dataclass(frozen=True, slots=True)
class Accumulate(Op):
    """`state = fn(row, state)`, beginning with `init`; one row out per row in: the key and the state.

    A state that is a plain value needs a schema of one column, e.g. `schema={"count": "int64"}`.
    """

    function: object
    init: object
    schema: object = None

    kind: ClassVar[str] = "A"
    verb: ClassVar[str] = "accumulate"
    chainable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        function = row_function(self.function, schema=self.schema)
        if function.schema is None:
            function = dataclasses.replace(function, schema=_schema_of(self.init))
        object.__setattr__(self, "function", function)
        self.new_state()  # a first state that cannot be copied is refused before a run

    @property
    def how(self) -> RowFunction:
        """Return the function, checked."""
        assert isinstance(self.function, RowFunction), "made so by __post_init__"
        return self.function

    @property
    def stateful(self) -> bool:
        """Always."""
        return True

    @property
    def state_schema(self) -> pa.Schema:
        """Return the columns of the state."""
        if self.how.schema is None:
            raise SchemaError(
                f"accumulate({self.how.name}) has no schema for its state",
                where=self.how.where,
                hint='say accumulate(fn, init, schema={"count": "int64"}), or let fn return a dataclass',
            )
        return self.how.schema

    def new_state(self) -> object:
        """Return the state of a key that is seen for the first time: a copy of its own."""
        try:
            return copy.deepcopy(self.init)
        except Exception as cause:
            raise FunctionError(
                f"the first state {self.init!r:.80} cannot be copied, and every key begins with a copy",
                detail=describe_cause(cause),
                hint="begin with plain values, a dataclass or a NamedTuple of them",
            ) from cause

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the key columns and the state's columns, still keyed."""
        up = inputs[IN]
        if not up.key:
            raise GraphError(
                "accumulate needs a key", hint='say whose state it is: .key_by("word") before it'
            )
        require_call(self.how.call, "row", "state")
        key = columns(*((name, up.schema.field(name).type) for name in up.key))
        schema = join_columns(
            [("the key", key), ("the state", self.state_schema)], hint="give the state's column another name"
        )
        return {OUT: Stream(schema, up.time, up.key), **late_port(up), **self.errors_port(up)}

    def describe(self) -> str:
        """Return the function."""
        return f"accumulate {self.how}"


def _schema_of(init: object) -> pa.Schema | None:
    kind = type(init)
    if dataclasses.is_dataclass(kind) or (isinstance(init, tuple) and hasattr(init, "_fields")):
        return parse_schema(kind)
    return None
