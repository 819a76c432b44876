"""How users' functions are called: with what, checked before a run, and on whose copy.

Every run, and every replica in it, works on its own copies of callable objects; a plain function is
shared, because it has no state that a copy would separate.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.errors import FunctionError, GraphError, SchemaError, Where, describe_cause
from penstock.expr import Expr, type_of
from penstock.expr.schema import parse_schema
from penstock.frozen import dataclass
from penstock.operators.op import LATE
from penstock.operators.stream import Stream

Held = TypeVar("Held")


def need_call(fn: Callable[..., Any], *arguments: str) -> None:
    """Raise if a function surely cannot be called with so many values, or gives a co-routine.

    What cannot be looked into (builtins, C functions) is believed.
    """
    call = f"fn({', '.join(arguments)})"
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise FunctionError(
            f"{name_of(fn)} is async, and rows do not wait for it",
            where=find_definition(fn),
            hint=f"write a plain function, def {call}; ps.ProcessOperator has a loop that may wait",
        )
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as problem:
        raise FunctionError(
            f"{name_of(fn)}{signature} cannot be called as {call}",
            where=find_definition(fn),
            detail=str(problem),
            hint=f"let it take {' and '.join(arguments)}",
        ) from None


def own_copy(held: Held) -> Held:
    """A callable object or operator of this replica's own; plain functions and classes as they are."""
    if isinstance(held, FunctionType | BuiltinFunctionType | type):
        return held
    try:
        return copy.deepcopy(held)
    except Exception as cause:
        raise FunctionError(
            f"{name_of(held)} cannot be copied, and every replica works on a copy of its own",
            where=find_definition(held),
            detail=describe_cause(cause),
            hint="make what it holds on its first call, or give it a __deepcopy__",
        ) from cause


# The three kinds of function a step can take: expressions, batch functions, row functions.
#
# An expression is data that each engine runs natively. A batch function works on a whole RecordBatch. A
# row function is any callable on a `Row`. The schema of what a function gives is declared, by annotation
# or by `schema=`; it is never found by running the function.


@dataclass(frozen=True, slots=True)
class Expressions:
    """Columns to add or replace, in order, all computed from the row as it came."""

    columns: tuple[tuple[str, Expr], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the new columns, in order."""
        return tuple(name for name, _ in self.columns)

    def types(self, schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
        """Returns the new columns and their types."""
        return [(name, type_of(expr, schema)) for name, expr in self.columns]

    def __str__(self) -> str:
        return ", ".join(f"{name}={expr}" for name, expr in self.columns)


@dataclass(frozen=True, slots=True)
class BatchFunction:
    """A function from RecordBatch to RecordBatch (or, in a filter, to a boolean array)."""

    call: Callable[[pa.RecordBatch], Any]
    schema: pa.Schema | None
    name: str
    where: Where | None

    def __str__(self) -> str:
        return f"batch function {self.name}"


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of one row (and, where the step keeps state, of the state of its key)."""

    call: Callable[..., Any]
    schema: pa.Schema | None
    name: str
    where: Where | None

    def __str__(self) -> str:
        return f"row function {self.name}"


Function = Expressions | BatchFunction | RowFunction


def batch(fn: Callable[[pa.RecordBatch], Any], *, schema: object = None) -> BatchFunction:
    """Mark a function as working on whole batches: RecordBatch in, RecordBatch out.

    The output has as many rows as the input in `map`, any number in `flat_map`; in `filter` the
    function gives a boolean array. `schema=` declares the columns of the output.
    """
    if not callable(fn):
        raise FunctionError(
            f"{fn!r} is not a function",
            where=find_call_site(),
            hint="ps.batch(fn, schema=...) takes a function of a RecordBatch",
        )
    need_call(fn, "batch")
    declared = None if schema is None else parse_schema(schema)
    return BatchFunction(fn, declared, name_of(fn), find_definition(fn))


def row_function(fn: object, *, schema: object = None, each: bool = False) -> RowFunction:
    """A row function with its schema, from `schema=` or from the return annotation.

    `each=True`: the function gives an iterable of rows, so the annotation is `Iterable[Row]`.
    """
    if not callable(fn):
        raise FunctionError(
            f"{fn!r} is neither an expression nor a function",
            hint='use col("a") * 2, ps.batch(fn), or a function of a row',
        )
    declared = parse_schema(schema) if schema is not None else _annotated(fn, each=each)
    return RowFunction(fn, declared, name_of(fn), find_definition(fn))


def need_schema(function: BatchFunction | RowFunction, verb: str) -> pa.Schema:
    """The declared schema, or the error that says how to declare one."""
    if function.schema is not None:
        return function.schema
    say = f"annotate its return type with a dataclass, or say {verb}(fn, schema=...)"
    if isinstance(function, BatchFunction):
        say = "say ps.batch(fn, schema=...)"
    raise SchemaError(
        f"{function} has no schema",
        where=function.where,
        detail="what a function gives is declared, never found by running it",
        hint=f'{say}, e.g. schema={{"total": "float64"}}',
    )


def check_compile(compile: object, function: Function | Expr, state: object, verb: str) -> None:
    """Raise unless `compile=` is a yes or no, and yes only where there is something to compile."""
    if not isinstance(compile, bool):
        raise FunctionError(
            f"compile={compile!r:.80} is not True or False",
            hint="leave compile= out, or write compile=True",
        )
    if compile and (state is not None or not isinstance(function, RowFunction)):
        told = "a function with state" if state is not None else str(function)
        raise FunctionError(
            f"compile=True is for row functions without state, and {verb} has {told}",
            detail="expressions and batch functions run on whole columns already",
            hint="leave compile= out",
        )


def need_bool(expr: Expr, schema: pa.Schema, what: str) -> None:
    """Check that an expression is a predicate."""
    found = type_of(expr, schema)
    if not pa.types.is_boolean(found):
        raise SchemaError(
            f"{what} must be true or false, and {expr} is {found}",
            hint=f"compare it with something: {expr} > 0",
        )


def keep_key(up: Stream, changed: Iterable[str], schema: pa.Schema) -> Stream:
    """The stream after a map: still keyed when the key columns were left alone."""
    down = up.with_schema(schema)
    return down.unkeyed() if set(changed) & set(up.key) else down


def as_expressions(columns: Iterable[tuple[str, object]], verb: str) -> Expressions:
    """Returns checked expressions from names and values; plain values become literals."""
    from penstock.expr import lit

    named = tuple(columns)
    if not named:
        raise FunctionError(f"{verb} names no column", hint=f'give some: .{verb}(total=col("a") * 2)')
    for name, value in named:
        if callable(value) and not isinstance(value, Expr):
            raise FunctionError(
                f"column {name!r} is given a function, and only expressions make single columns",
                where=find_definition(value),
                hint="return whole rows: .map(fn, schema=...)",
            )
    return Expressions(tuple((name, v if isinstance(v, Expr) else lit(v)) for name, v in named))


def as_function(
    function: object, schema: object, verb: str, *, each: bool = False
) -> BatchFunction | RowFunction:
    """Returns what a step is given as a row function or a batch function, with its schema.

    `each=True`: the function gives an iterable of rows.
    """
    if function is None:
        raise FunctionError(f"{verb} has nothing to do", hint=f"give a function: .{verb}(fn, schema=...)")
    if isinstance(function, Expr | Mapping | Expressions):
        raise FunctionError(
            f"{verb} takes a function, and got {function if isinstance(function, Expr) else 'columns'}",
            hint=f"for expressions: .with_columns(total={function if isinstance(function, Expr) else '...'})",
        )
    if isinstance(function, BatchFunction | RowFunction):
        if schema is None:
            return function
        if isinstance(function, BatchFunction) and function.schema is None:
            return batch(function.call, schema=schema)
        raise FunctionError(
            f"{verb} is given schema= and nothing to declare with it",
            detail="ps.batch(fn, schema=...) declares its own",
            hint="leave schema= out",
        )
    return row_function(function, schema=schema, each=each)


def _annotated(fn: Callable[..., Any], *, each: bool) -> pa.Schema | None:
    target = fn if hasattr(fn, "__code__") or hasattr(fn, "func") else type(fn).__call__
    try:
        given = typing.get_type_hints(getattr(target, "func", target)).get("return")
    except (NameError, TypeError):
        return None
    if each and typing.get_origin(given) in (list, tuple, Iterable, Iterator, Generator):
        given = typing.get_args(given)[0]
    return parse_schema(given) if _is_row_type(given) else None


def _is_row_type(given: object) -> bool:
    return isinstance(given, type) and (
        hasattr(given, "__dataclass_fields__")
        or (issubclass(given, tuple) and hasattr(given, "_fields"))
        or typing.is_typeddict(given)
    )


# State per key: what map, filter, flat_map and accumulate need in order to have it.
#
# Rows reach state in the order (time, seq), once the watermark has passed them. So a row that comes
# behind the watermark can no longer be put in order: it is late, and goes to the step's `.late`.


def need_key(state: object, up: Stream, function: Function | Expr, verb: str) -> bool:
    """Whether the step keeps state; raises when it asks for state and cannot have it, or cannot be called."""
    if state is None:
        if isinstance(function, RowFunction):
            need_call(function.call, "row")
        return False
    if not callable(state):
        raise FunctionError(
            f"state={state!r} is not a function that makes the state of a new key",
            hint="write state=list or state=lambda: 0",
        )
    if not isinstance(function, RowFunction):
        raise FunctionError(
            f"only a row function can keep state, and {verb} has {function}", hint="use fn(row, state)"
        )
    if not up.key:
        raise GraphError(
            f"{verb} with state= needs a key", hint='say whose state it is: .key_by("user") before it'
        )
    need_call(function.call, "row", "state")
    return True


def late_port(up: Stream) -> dict[str, Stream]:
    """The `late` port of a step that needs order; a stream without time is in order as it comes."""
    return {} if up.time is None else {LATE: up.unkeyed()}
