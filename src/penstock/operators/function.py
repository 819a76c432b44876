"""Users' functions: the rows they see, the three kinds a step can take, how they are declared and checked.

An expression is data that each engine runs natively. A batch function works on a whole RecordBatch. A row
function gets a read-only `Row`, with the columns as attributes, null as None and timestamps as datetime, and
gives a dict, a dataclass or a NamedTuple with all the columns of its schema, no more and no fewer. That
schema is declared, by annotation or by `schema=`; it is never found by running the function.

Invariant: rows reach a state per key in the order (time, seq), once the watermark has passed them. So a row
that comes behind the watermark can no longer be put in order: it is late, and goes to the step's `.late`.
"""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeVar

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.connect.conversion import fields_of, plain_value
from penstock.errors import FunctionError, RowFailure, SchemaError, Where, describe_cause, nearest_first
from penstock.expr import Expr, lit, type_of
from penstock.expr.types import is_row_class, parse_schema
from penstock.expr.values import to_python
from penstock.frozen import Frozen
from penstock.operators.op import LATE, Stream

Callee = TypeVar("Callee")


class Expressions(Frozen):
    """Columns to add or replace, in order, all computed from the row as it arrived."""

    columns: tuple[tuple[str, Expr], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return tuple(name for name, _ in self.columns)

    def types(self, schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
        """Return the columns and their types."""
        return [(name, type_of(expr, schema)) for name, expr in self.columns]

    def __str__(self) -> str:
        return ", ".join(f"{name}={expr}" for name, expr in self.columns)


class UserFunction(Frozen):
    """A function of the user's: what to call, the columns that it declares, its name and its line."""

    call: Callable[..., Any]
    schema: pa.Schema | None
    name: str
    where: Where | None

    def __str__(self) -> str:
        return f"{'batch' if isinstance(self, BatchFunction) else 'row'} function {self.name}"


class RowFunction(UserFunction):
    """A function of one row (and, where the step keeps state, of the state of its key)."""


class BatchFunction(UserFunction):
    """A function from RecordBatch to RecordBatch (or, in a filter, to a boolean array)."""


Function = Expressions | BatchFunction | RowFunction


def batch(fn: Callable[..., Any], *, schema: object = None) -> BatchFunction:
    """Mark a function as working on whole batches: RecordBatch in, RecordBatch out.

    The output has as many rows as the input in `map`, any number in `flat_map`; in `filter` the
    function gives a boolean array. In a `join` it takes two batches, `fn(left, right)`, whose rows are
    candidate pairs, and gives a boolean array. `schema=` declares the columns of the output.
    """
    if not callable(fn):
        raise FunctionError(
            f"{fn!r} is not a function",
            where=find_call_site(),
            hint="ps.batch(fn, schema=...) takes a function of a RecordBatch",
        )
    try:
        require_call(fn, "left", "right")
    except FunctionError:  # not for a join, so for all else
        require_call(fn, "batch")
    declared = None if schema is None else parse_schema(schema)
    return BatchFunction(fn, declared, name_of(fn), find_definition(fn))


def row_function(fn: object, *, schema: object = None, many: bool = False) -> RowFunction:
    """Return a row function with its schema, from `schema=` or from the return annotation.

    `many=True`: the function gives an iterable of rows, so the annotation is `Iterable[Row]`.
    """
    if not callable(fn):
        raise FunctionError(
            f"{fn!r} is neither an expression nor a function",
            hint='use col("a") * 2, ps.batch(fn), or a function of a row',
        )
    declared = parse_schema(schema) if schema is not None else _annotated_schema(fn, many=many)
    return RowFunction(fn, declared, name_of(fn), find_definition(fn))


def as_function(
    function: object, schema: object, verb: str, *, many: bool = False
) -> BatchFunction | RowFunction:
    """Return what a step is given as a row function or a batch function, with its schema."""
    if function is None:
        raise FunctionError(f"{verb} has nothing to do", hint=f"give a function: .{verb}(fn, schema=...)")
    if isinstance(function, Expr | Mapping | Expressions):
        is_column = isinstance(function, Expr)
        raise FunctionError(
            f"{verb} takes a function, and got {function if is_column else 'columns'}",
            hint=f"for expressions: .with_columns(total={function if is_column else '...'})",
        )
    if not isinstance(function, BatchFunction | RowFunction):
        return row_function(function, schema=schema, many=many)
    if schema is None:
        return function
    if isinstance(function, BatchFunction) and function.schema is None:
        return batch(function.call, schema=schema)
    raise FunctionError(
        f"{verb} is given schema= and nothing to declare with it",
        detail="ps.batch(fn, schema=...) declares its own",
        hint="leave schema= out",
    )


def as_expressions(columns: Iterable[tuple[str, object]], verb: str) -> Expressions:
    """Return checked expressions from names and values; plain values become literals."""
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


def own_copy(callee: Callee) -> Callee:
    """Return a copy of a callable object or operator for one replica of one run.

    A plain function or class is returned itself: it has no state that a copy would separate.
    """
    if isinstance(callee, FunctionType | BuiltinFunctionType | type):
        return callee
    try:
        return copy.deepcopy(callee)
    except Exception as cause:
        raise FunctionError(
            f"{name_of(callee)} cannot be copied, and every replica works on a copy of its own",
            where=find_definition(callee),
            detail=describe_cause(cause),
            hint="make what it holds on its first call, or give it a __deepcopy__",
        ) from cause


def require_call(fn: Callable[..., Any], *arguments: str) -> None:
    """Raise if a function surely cannot be called with these arguments, or gives a co-routine.

    What cannot be inspected (builtins, C functions) is trusted.
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


def require_schema(function: BatchFunction | RowFunction, verb: str) -> pa.Schema:
    """Return the declared schema, or raise the error that says how to declare one."""
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


def require_bool(expr: Expr, schema: pa.Schema, who: str) -> None:
    """Raise a SchemaError unless an expression is a predicate."""
    type_ = type_of(expr, schema)
    if not pa.types.is_boolean(type_):
        raise SchemaError(
            f"{who} must be true or false, and {expr} is {type_}",
            hint=f"compare it with something: {expr} > 0",
        )


def check_compile(compile: object, function: Function | Expr, state: object, verb: str) -> None:
    """Raise unless `compile=` is True or False, and True only where there is something to compile."""
    if not isinstance(compile, bool):
        raise FunctionError(
            f"compile={compile!r:.80} is not True or False", hint="leave compile= out, or write compile=True"
        )
    if compile and (state is not None or not isinstance(function, RowFunction)):
        other = "a function with state" if state is not None else str(function)
        raise FunctionError(
            f"compile=True is for row functions without state, and {verb} has {other}",
            detail="expressions and batch functions run on whole columns already",
            hint="leave compile= out",
        )


def late_port(up: Stream) -> dict[str, Stream]:
    """Return the `late` port of a step that needs order; a stream without time is in order as it comes."""
    return {} if up.time is None else {LATE: up}


def keep_key(up: Stream, changed: Iterable[str], schema: pa.Schema) -> Stream:
    """Return the stream with another schema: still keyed unless one of its key columns is changed."""
    down = up.with_schema(schema)
    if not set(changed) & set(up.key):
        return down
    names = ", ".join(f'"{name}"' for name in up.key if name in set(changed))
    return down.lose_key(f"{names} has other values behind it")


def kept_columns(keeps: object, verb: str) -> tuple[str, ...]:
    """Return the columns that a function is declared to pass on as they are: one name, or several."""
    names = (keeps,) if isinstance(keeps, str) else tuple(keeps) if isinstance(keeps, list | tuple) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise FunctionError(
            f"keeps={keeps!r:.80} names no columns",
            hint=f'say {verb}(fn, keeps="user"), or several in a list',
        )
    return names


def function_output(
    up: Stream, function: BatchFunction | RowFunction, verb: str, keeps: tuple[str, ...]
) -> Stream:
    """Return the stream behind a function: the columns it declares, keyed if it keeps those of the key."""
    schema = require_schema(function, verb)
    up.require(*keeps)
    for name in keeps:
        before = up.schema.field(name).type
        after = schema.field(name).type if name in schema.names else None
        if after != before:
            returns = f'has no column "{name}"' if after is None else f'has "{name}" as {after}'
            raise SchemaError(
                f'{verb} is said to keep column "{name}" of type {before}, and its output {returns}',
                hint="declare it in the schema as it is, or leave it out of keeps=",
            )
    missing = [f'"{name}"' for name in up.key if name not in schema.names]
    down = replace(up, schema=schema)
    if missing:
        return down.lose_key(f"{function} returns no column {', '.join(missing)}")
    if set(up.key) <= set(keeps):
        return down
    names = ", ".join(f'"{name}"' for name in up.key)
    return down.lose_key(
        f"{function} may have changed it; a function that returns it as it is can say so: "
        f"{verb}(fn, keeps={f'[{names}]' if len(up.key) > 1 else names})"
    )


def _annotated_schema(fn: Callable[..., Any], *, many: bool) -> pa.Schema | None:
    """Return the schema of a return annotation; None unless it is a dataclass, NamedTuple or TypedDict."""
    row = return_annotation(fn)
    if many and typing.get_origin(row) in (list, tuple, Iterable, Iterator, Generator):
        row = typing.get_args(row)[0]
    return parse_schema(row) if is_row_class(row) else None


def return_annotation(fn: Callable[..., Any]) -> object:
    """Return what a function, or the call of an object, is annotated to return; None if nothing is known."""
    target = fn if hasattr(fn, "__code__") or hasattr(fn, "func") else type(fn).__call__
    try:
        return typing.get_type_hints(getattr(target, "func", target)).get("return")
    except (NameError, TypeError, AttributeError):
        return None


class Row:
    """One row, read only: `row.price`, `row["price"]`, `dict(row)`.

    A column whose name the row needs itself (`keys`) or that begins with `_` is reached as `row["keys"]`.
    """

    __slots__ = ("_schema", "_values")
    _schema: pa.Schema
    _values: Mapping[str, object]

    def __init__(self, values: Mapping[str, object], schema: pa.Schema) -> None:
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_schema", schema)

    def __getitem__(self, name: str) -> Any:  # so that typed programs can compute with it
        try:
            value = self._values[name]
        except KeyError:
            names = ", ".join(nearest_first(name, self._values))
            raise KeyError(f'no column "{name}"; the columns are {names}') from None
        return to_python(value, self._schema.field(name).type)

    def __getattr__(self, name: str) -> Any:
        # Dunder look-ups by the interpreter (copy, pickle, inspect) must not be read as columns.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as missing:
            raise AttributeError(missing.args[0]) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"rows are read only; return a new row instead of setting {name!r}")

    def __reduce__(self) -> tuple[type[Row], tuple[Mapping[str, object], pa.Schema]]:
        # Copying would set attributes on an empty row, which is read only.
        return Row, (self._values, self._schema)

    def keys(self) -> list[str]:
        """Return the column names, so that `dict(row)` and `{**row, "new": 1}` work."""
        return list(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={self[name]!r}" for name in self._values)
        return f"Row({inside})"


def plain_row(result: object, schema: pa.Schema) -> dict[str, object]:
    """Return what a function gave as plain values of its schema; raise a RowFailure when it does not fit."""
    fields = {name: result[name] for name in result} if isinstance(result, Row) else fields_of(result)
    if fields is None:
        raise RowFailure(f"gave {type(result).__name__} {result!r:.80}, not a dict, dataclass or NamedTuple")
    missing = [name for name in schema.names if name not in fields]
    extra = [name for name in fields if name not in schema.names]
    if missing or extra:
        wrong = [f"lacks {', '.join(missing)}"] if missing else []
        wrong += [f"has unknown {', '.join(map(str, extra))}"] if extra else []
        raise RowFailure(f"gave a row that {' and '.join(wrong)}; its schema is {', '.join(schema.names)}")
    return {field.name: plain_value(fields[field.name], field) for field in schema}
