"""Operators on rows one by one: by a function or by expressions.

`Map` and `Accumulate` take a function, `WithColumns` and `Select` expressions, `Filter`, `FlatMap` and
`Split` either. With `state=factory` a row function keeps a state per key and is called as `fn(row, state)`.
An expression sees the row as it arrived: the columns of one step do not see each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import pyarrow as pa

from penstock.errors import FunctionError, GraphError, SchemaError, describe_cause
from penstock.expr import Column, Expr, type_of
from penstock.expr.types import is_row_class, parse_schema
from penstock.operators import function as functions
from penstock.operators.op import ERRORS, IN, LATE, OUT, Op, Stream, columns, join_columns, with_columns

Predicate = Expr | functions.BatchFunction | functions.RowFunction
NamedColumns = Mapping[str, object] | Iterable[tuple[str, object]]


class FunctionOp(Op):
    """The base of operators that call a function, or compute an expression, for each row.

    how    the function or expression, checked
    state  makes the state of a new key, where the function keeps one
    """

    how: functions.Function | Expr = field(init=False, repr=False)

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        object.__setattr__(self, "how", self.resolve())
        compile = getattr(self, "compile", False)
        if compile is not False:
            functions.check_compile(compile, self.how, getattr(self, "state", None), self.verb)

    def resolve(self) -> functions.Function | Expr:
        """Return the function or expression, checked, from what was given."""
        raise NotImplementedError

    def side_ports(self, up: Stream) -> dict[str, Stream]:
        """Return the ports beside `out`; raise when the function cannot be called, or cannot keep state."""
        state, function = getattr(self, "state", None), self.how
        if state is None:
            if isinstance(function, functions.RowFunction):
                functions.require_call(function.call, "row")
            elif isinstance(function, functions.BatchFunction):
                functions.require_call(function.call, "batch")
            return self.errors_port(up)
        if not callable(state):
            raise FunctionError(
                f"state={state!r} is not a function that makes the state of a new key",
                hint="write state=list or state=lambda: 0",
            )
        if not isinstance(function, functions.RowFunction):
            raise FunctionError(
                f"only a row function can keep state, and {self.verb} has {function}",
                hint="use fn(row, state)",
            )
        if up.lost_key is not None:
            raise up.lost_key.refuse(f"{self.verb} with state=", up.schema)
        if not up.key:
            raise GraphError(
                f"{self.verb} with state= needs a key",
                hint='say whose state it is: .key_by("user") before it',
            )
        functions.require_call(function.call, "row", "state")
        return {**functions.late_port(up), **self.errors_port(up)}

    def describe(self) -> str:
        """Return the verb and the function."""
        keeps_state = getattr(self, "state", None) is not None
        return f"{self.verb} {self.how}" + (" with state per key" if keeps_state else "")


class Map(FunctionOp, kind="M", verb="map"):
    """Make a row of every row by a row function or a batch function, which gives the whole new row.

    `compile=True` lets a row function be compiled although its integers then wrap at 64 bits. `keeps` names
    columns that the function returns as they are: the key stays if they are all of it.
    """

    function: object
    schema: object = None
    state: Callable[[], Any] | None = None
    compile: bool = False
    keeps: str | Sequence[str] = ()
    how: functions.BatchFunction | functions.RowFunction = field(init=False, repr=False)

    def resolve(self) -> functions.Function:
        """Return the function with its schema."""
        object.__setattr__(self, "keeps", functions.kept_columns(self.keeps, "map"))
        return functions.as_function(self.function, self.schema, "map")

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns that the function declares; the key is lost unless the function keeps it."""
        up = inputs[IN]
        out = functions.function_output(up, self.how, "map", tuple(self.keeps))
        return {OUT: out, **self.side_ports(up)}


class Filter(FunctionOp, kind="F", verb="filter"):
    """Drop the rows for which the predicate is false or null; they are counted as filtered.

    `compile=True` lets a row function be compiled although its integers then wrap at 64 bits.
    """

    predicate: object
    state: Callable[[], Any] | None = None
    compile: bool = False
    how: Predicate = field(init=False, repr=False)

    def resolve(self) -> Predicate:
        """Return the predicate as an expression or a function."""
        return (
            self.predicate
            if isinstance(self.predicate, Predicate)
            else functions.row_function(self.predicate)
        )

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the same columns, still keyed."""
        up = inputs[IN]
        if isinstance(self.how, Expr):
            functions.require_bool(self.how, up.schema, "a filter")
        return {OUT: up, **self.side_ports(up)}


class FlatMap(FunctionOp, kind="FM", verb="flat_map"):
    """Make rows of a row: a function gives an iterable of them, an expression gives a list.

    `flat_map(word=col("line").str.split(" "))` gives one row per element, the other columns repeated. `keeps`
    is that of `Map`.
    """

    function: object
    schema: object = None
    state: Callable[[], Any] | None = None
    keeps: str | Sequence[str] = ()
    how: functions.Function = field(init=False, repr=False)

    def resolve(self) -> functions.Function:
        """Return the function with its schema, or the one list column."""
        object.__setattr__(self, "keeps", functions.kept_columns(self.keeps, "flat_map"))
        if not isinstance(self.function, Mapping):
            return functions.as_function(self.function, self.schema, "flat_map", many=True)
        column = functions.as_expressions(self.function.items(), "flat_map")
        for option, value in (("schema", self.schema), ("keeps", self.keeps or None)):
            if value is not None:
                raise FunctionError(
                    f"flat_map is given {option}= and nothing to declare with it",
                    detail="an expression has a type of its own, and the other columns stay as they are",
                    hint=f'leave {option}= out; for a column of that name: .flat_map({{"{option}": ...}})',
                )
        if len(column.columns) != 1:
            raise FunctionError(
                "flat_map takes one list column at a time",
                hint="write two flat_maps, or a function that gives rows",
            )
        return column

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns that the function declares, or the list column with its elements."""
        up = inputs[IN]
        beside = self.side_ports(up)
        if not isinstance(self.how, functions.Expressions):
            return {OUT: functions.function_output(up, self.how, "flat_map", tuple(self.keeps)), **beside}
        ((name, type_),) = self.how.types(up.schema)
        if not pa.types.is_list(type_):
            raise SchemaError(
                f"flat_map needs a list, and {self.how.columns[0][1]} is {type_}",
                hint='make a list, e.g. col("line").str.split(" "), or use with_columns',
            )
        out = functions.keep_key(up, (name,), with_columns(up.schema, [(name, type_.value_type)]))
        return {OUT: out, **beside}


class WithColumns(FunctionOp, kind="M", verb="with_columns"):
    """Add columns, or replace those of the same name: `WithColumns({"total": col("price") * col("n")})`."""

    columns: NamedColumns
    how: functions.Expressions = field(init=False, repr=False)

    def resolve(self) -> functions.Function:
        """Return the columns as expressions."""
        columns = self.columns
        if isinstance(columns, Expr | str) or callable(columns):
            raise FunctionError(
                f"{columns!s:.80} makes a column, and nothing says its name"
                if isinstance(columns, Expr)
                else f"{columns!r:.80} is not a mapping from names to expressions",
                hint='name the columns: {"total": col("a") * 2}; for a function use map',
            )
        pairs = columns.items() if isinstance(columns, Mapping) else columns
        how = functions.as_expressions(pairs, self.verb)
        object.__setattr__(self, "columns", how.columns)  # what was given may be an iterator
        return how

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the old columns and the new ones; the key stays unless one of its columns is replaced."""
        up = inputs[IN]
        schema = with_columns(up.schema, self.how.types(up.schema))
        return {OUT: functions.keep_key(up, self.how.names, schema), **self.errors_port(up)}


class Select(WithColumns, verb="select"):
    """Keep only these columns, in this order: `Select({"user": col("user"), "c": col("price") * 100})`."""

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the columns selected; the key stays if its columns are all passed on as they are."""
        up = inputs[IN]
        for name in self.how.names:
            if self.how.names.count(name) > 1:
                raise SchemaError(
                    f'select gives column "{name}" twice', hint="leave one out, or give it another name"
                )
        up.require(*(name for _, expr in self.how.columns for name in expr.columns()))
        as_they_are = {
            name for name, expr in self.how.columns if isinstance(expr, Column) and expr.name == name
        }
        schema = pa.schema([pa.field(name, type_) for name, type_ in self.how.types(up.schema)])
        return {OUT: functions.keep_key(up, set(up.key) - as_they_are, schema), **self.errors_port(up)}


class Split(Op, kind="SPLIT", verb="split"):
    """Branches "0" to "n-1" by an index, or named branches by a predicate each.

    A row of several branches is copied; a row of none, or of a branch that nobody reads, is counted
    as unrouted.
    """

    function: object = None
    branches: int | Mapping[str, Expr] = 0
    how: Expr | functions.RowFunction | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if isinstance(self.branches, bool) or not isinstance(self.branches, int | Mapping):
            raise GraphError(f"{self.branches!r} is not a number of branches", hint="write pipe.split(fn, 2)")
        if len(self.names) < 2:
            raise GraphError(
                f"a split has two branches or more, and got {len(self.names)}",
                hint="write pipe.split(fn, 2) or pipe.split(view=..., click=...); for one branch use filter",
            )
        for name in self.names:
            if name in (LATE, ERRORS):
                raise GraphError(
                    f'a branch cannot be called "{name}"',
                    detail=f"every step keeps .{name} for its own rows of that kind",
                    hint=f'use another name, e.g. "{name}_rows"',
                )
        function = self.function
        if function is not None and not isinstance(function, Expr | functions.RowFunction):
            function = functions.row_function(function)
            functions.require_call(function.call, "row")
        object.__setattr__(self, "how", function)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the branches in order."""
        if isinstance(self.branches, int):
            return tuple(str(index) for index in range(self.branches))
        return tuple(self.branches)

    @property
    def predicates(self) -> Mapping[str, Expr] | None:
        """Return the predicate of each named branch; None when one function gives the index."""
        return None if isinstance(self.branches, int) else self.branches

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the input, once per branch."""
        up = inputs[IN]
        for name, predicate in (self.predicates or {}).items():
            if not isinstance(predicate, Expr):
                raise GraphError(
                    f'branch "{name}" is given {predicate!r}, not an expression',
                    hint=f'write {name}=col("type") == "{name}", or split(fn, 2) for a function',
                )
            functions.require_bool(predicate, up.schema, f'branch "{name}"')
        if isinstance(self.how, Expr) and not pa.types.is_integer(type_of(self.how, up.schema)):
            raise SchemaError(
                f"a split needs the index of a branch, and {self.how} is {type_of(self.how, up.schema)}",
                hint='name the branches instead: pipe.split(view=col("type") == "view", rest=...)',
            )
        return {**dict.fromkeys(self.names, up), **self.errors_port(up)}

    def describe(self) -> str:
        """Return what decides."""
        if self.predicates is not None:
            return "split " + ", ".join(f"{name}: {predicate}" for name, predicate in self.predicates.items())
        return f"split {len(self.names)} ways by {self.how}"


class Relay(Op, kind="ID", verb="relay"):
    """Pass rows on unchanged: what stands where streams meet and part again with nothing between."""

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the input."""
        return {OUT: inputs[IN]}


class Accumulate(FunctionOp, kind="A", verb="accumulate", chainable=False, stateful=True):
    """`state = fn(row, state)`, beginning with `init`; one row out per row in: the key and the state.

    A state that is a plain value needs a schema of one column, e.g. `schema={"count": "int64"}`.
    """

    function: object
    init: object
    schema: object = None
    how: functions.RowFunction = field(init=False, repr=False)

    def resolve(self) -> functions.RowFunction:
        """Return the function with the schema of the state, from `schema=`, an annotation or `init`."""
        function = functions.row_function(self.function, schema=self.schema)
        if function.schema is None and is_row_class(type(self.init)):
            function = replace(function, schema=parse_schema(type(self.init)))
        self.new_state()  # a first state that cannot be copied is refused before a run
        return function

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
        if up.lost_key is not None:
            raise up.lost_key.refuse("accumulate", up.schema)
        if not up.key:
            raise GraphError(
                "accumulate needs a key", hint='say whose state it is: .key_by("word") before it'
            )
        functions.require_call(self.how.call, "row", "state")
        key = columns(*((name, up.schema.field(name).type) for name in up.key))
        schema = join_columns(
            [("the key", key), ("the state", self.state_schema)], hint="give the state's column another name"
        )
        return {OUT: Stream(schema, up.time, up.key), **functions.late_port(up), **self.errors_port(up)}


def user_function(op: Op) -> functions.BatchFunction | functions.RowFunction | None:
    """Return the function of the user's that a step calls with its rows; None if it has none."""
    if not isinstance(op, FunctionOp | Split):
        return None
    return op.how if isinstance(op.how, functions.BatchFunction | functions.RowFunction) else None
