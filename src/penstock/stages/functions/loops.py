"""Loops that call a user's function with every row of a batch, generated as text: one loop for a step.

A loop takes the values of rows column by column, so that no dict is made for a row, and appends what the
function returns to lists, once it is checked. What it has appended before the function fails stays there.

Reuse of rows. The user's row is one object for a whole batch, with new values for every row, as long as
nobody else holds it. A function that keeps a row, or hands it out, has raised the row's count of references,
or that of its values; then the loop leaves both to it and goes on with new ones. So functions see what they
would see with a row object per call. Of a function whose code shows that it reads some columns and does
nothing else with the row, that need not be asked, and only these columns are taken (`python -m bench
runtime`, group rows).
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from functools import cache
from sys import getrefcount
from textwrap import indent
from types import FunctionType
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.expr.python.lower import compile_function, write_row_split, write_type_check
from penstock.operators.function import Row
from penstock.stages.functions.calls import (
    RowLoop,
    RowValidator,
    check_rows,
    check_truth,
    new_object,
    row_type,
)


class Body(NamedTuple):
    """The statements of a loop.

    call    calls the function with `user_row`; sets `row`
    accept  checks `row` and appends it
    lists   the lists that it appends to
    begin   a statement before the loop
    takes_slot  whether the values of a row begin with the slot of its key
    """

    call: str
    accept: str
    lists: tuple[str, ...] = ("list0",)
    begin: str = "add0 = list0.append"
    takes_slot: bool = False


STATELESS = "row = call(user_row)"
WITH_STATE = """
if slot not in states:
    states[slot] = new_state()
state = row = call(user_row, states[slot])
"""
NEW_STATE = "states[slot] = state"  # after the checks: a state that does not fit leaves the old one


def build_map_loop(
    call: Callable[..., object],
    up: pa.Schema,
    validator: RowValidator,
    new_state: Callable[[], Any] | None = None,
) -> RowLoop:
    """Return the loop of a function that returns one row; with `new_state`, one that takes a state too."""
    text = write_row_split(validator.schema)
    body = Body(
        STATELESS if new_state is None else WITH_STATE,
        f"{text.split}\nrow = otherwise(row)\n{text.add}",
        text.lists,
        text.begin,
        new_state is not None,
    )
    return _build(up, body, call=call, otherwise=validator.check_any, new_state=new_state)


def build_filter_loop(
    call: Callable[..., object], up: pa.Schema, new_state: Callable[[], Any] | None = None
) -> RowLoop:
    """Return the loop of a predicate, whose list is of bools."""
    accept = "add0(row if row is True or row is False else check(row))"
    body = Body(STATELESS if new_state is None else WITH_STATE, accept, takes_slot=new_state is not None)
    return _build(up, body, call=call, check=check_truth, new_state=new_state)


def build_loop(
    call: Callable[..., object],
    up: pa.Schema,
    check: Callable[[Any], object],
    new_state: Callable[[], Any] | None = None,
) -> RowLoop:
    """Return the loop of a function whose results `check` makes the elements of one list."""
    call_text = STATELESS if new_state is None else WITH_STATE
    body = Body(call_text, "add0(check(row))", takes_slot=new_state is not None)
    return _build(up, body, call=call, check=check, new_state=new_state)


def build_rows_loop(
    call: Callable[..., object],
    up: pa.Schema,
    validator: RowValidator,
    new_state: Callable[[], Any] | None = None,
) -> RowLoop:
    """Return the loop of a function that returns an iterable of rows, whose list is of lists of rows."""
    call_text = STATELESS if new_state is None else WITH_STATE
    accept = "add0([plain(one) for one in row] if type(row) is list else check(row, validator))"
    body = Body(call_text, accept, takes_slot=new_state is not None)
    names = {"plain": validator.plain, "check": check_rows, "validator": validator, "new_state": new_state}
    return _build(up, body, call=call, **names)


def build_accumulate_loop(
    call: Callable[..., object],
    up: pa.Schema,
    state: pa.Schema,
    columns_of: Callable[[Any], Any],
    new_state: Callable[[], Any],
) -> RowLoop:
    """Return the loop of a function that returns the new state of its key, as a row or as a single value.

    columns_of  returns a state as a dict of plain values, where its type alone does not show that it fits
    """
    text = write_row_split(state, then=NEW_STATE)
    split = text.split
    if len(state) == 1:
        is_plain = write_type_check("row", state.types[0])
        split = f"if {is_plain}:\n    add0(row); {NEW_STATE}; continue\n"
    accept = f"{split}\nrow = columns_of(row)\n{text.add}"
    body = Body(WITH_STATE, accept, text.lists, text.begin, takes_slot=True)
    return _build(up, body, call=call, columns_of=columns_of, new_state=new_state)


def _build(up: pa.Schema, body: Body, *, call: Callable[..., object], **namespace: object) -> RowLoop:
    rows, columns = row_type(up), find_columns_read(call, up)
    names = {"call": call, **namespace, "new": new_object, "kind": rows.type, "put": rows.fill}
    names["count"] = getrefcount
    escapes, columns = columns is None, tuple(up.names) if columns is None else columns
    make = _compile(columns, body, tuple(names), escapes=escapes)
    return RowLoop(make(*names.values()), len(body.lists), columns)


@cache
def _compile(
    columns: tuple[str, ...], body: Body, names: tuple[str, ...], *, escapes: bool
) -> Callable[..., Any]:
    """Return a function that binds the names and returns the loop.

    Why in a function: what a function finds around it, it finds faster than among globals.
    """
    targets = ["slot"] * body.takes_slot + [f"c{at}" for at in range(len(columns))]
    new_row = f"values = dict.fromkeys({columns!r}); user_row = new(kind); put(user_row, values)"
    fill = "; ".join(f"values[{name!r}] = c{at}" for at, name in enumerate(columns))
    leave = f"if count(user_row) != n_row or count(values) != n_values:\n    {new_row}" if escapes else ""
    text = f"""
def make({", ".join(names)}):
    def loop(rows, states, {", ".join(body.lists)}):
        {body.begin}
        {new_row}
        n_row, n_values = count(user_row), count(values)
        for {"".join(f"{name}, " for name in targets) or "_"} in rows:
            {fill or "pass"}
{indent(body.call, " " * 12)}
{indent(leave, " " * 12)}
{indent(body.accept, " " * 12)}
    return loop
"""
    make: Callable[..., Any] = compile_function("make", text)
    return make


_LOADS = ("LOAD_FAST", "LOAD_FAST_BORROW")
_FRAME_READERS = frozenset(
    {"breakpoint", "dir", "eval", "exec", "locals", "vars", "_getframe", "currentframe"}
)
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def find_columns_read(call: Callable[..., object], schema: pa.Schema) -> tuple[str, ...] | None:
    """Return the columns that a function reads from its row, if it surely does nothing else with it.

    None where it may: where the row is more than the object of `row.name` or `row["name"]`, where a frame
    that holds it may live on or be looked into, or where the code is not that of a plain function.

    >>> find_columns_read(lambda row: row.a > 1, pa.schema({"a": pa.int64(), "b": pa.int64()}))
    ('a',)
    """
    if not isinstance(call, FunctionType):
        return None
    code = call.__code__
    # Why no handlers: an exception that is caught, and kept, holds the frame.
    if not code.co_argcount or code.co_flags & _SUSPENDS or getattr(code, "co_exceptiontable", True):
        return None
    if not _FRAME_READERS.isdisjoint(code.co_names):
        return None
    row, columns = code.co_varnames[0], dict[str, None]()
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("RESUME", "CACHE", "NOP")]
    for at, step in enumerate(steps):
        if not _names_variable(step, row):
            continue
        column = _column_behind(steps[at + 1 : at + 3]) if step.opname in _LOADS else None
        if column is None or column not in schema.names or hasattr(Row, column) or column.startswith("_"):
            return None
        columns[column] = None
    return tuple(columns)


def _names_variable(step: dis.Instruction, name: str) -> bool:
    """Return whether an instruction has to do with a local variable, alone or among others."""
    if step.opcode not in dis.haslocal and step.opcode not in dis.hasfree:
        return False
    return name in step.argval if isinstance(step.argval, tuple) else step.argval == name


def _column_behind(steps: list[dis.Instruction]) -> str | None:
    """Return the column that the next instructions read from the row; None if they do something else."""
    first, second = steps[0], steps[-1]
    if first.opname == "LOAD_ATTR" and "self" not in first.argrepr:
        return str(first.argval)
    is_item = first.opname == "LOAD_CONST" and isinstance(first.argval, str)
    if is_item and (second.opname == "BINARY_SUBSCR" or second.argrepr == "[]"):
        return str(first.argval)
    return None
