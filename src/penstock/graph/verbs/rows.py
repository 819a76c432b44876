"""Verbs that make rows of rows: with_columns, select, filter, map, flat_map, accumulate, process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import and_
from typing import Any, Self, Unpack

from penstock.caller import find_call_site
from penstock.errors import FunctionError
from penstock.expr import Column, Expr, col
from penstock.graph.steps import locate_errors
from penstock.graph.verbs.pipe import Pipe, refuse_unknown, split_options
from penstock.operators.process import Process, ProcessOperator
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, Select, WithColumns
from penstock.options import StepOptions
from penstock.plan.plan import Ref


class RowVerbs(Pipe):
    """Rows to rows."""

    __slots__ = ()

    def with_columns(self, columns: Mapping[str, object] | None = None, /, **named: Any) -> Self:
        """Add columns, or replace those of the same name: `with_columns(total=col("price") * col("n"))`.

        Plain values are constants. The options of `ps.StepOptions` go beside the columns; a keyword with an
        expression is always a column, and a mapping takes any name: `with_columns({"name": "x"})`.
        """
        more, options = split_options(named)
        return self._add_step(WithColumns, {**(columns or {}), **more}, **options)

    def select(self, *columns: str | Expr, **named: Any) -> Self:
        """Keep only these columns, in this order; `select("a", total=col("b") + 1)` computes some.

        The options of `ps.StepOptions` go beside the columns, as in `with_columns`.
        """
        more, options = split_options(named)
        with locate_errors(options.get("name") or Select.verb, find_call_site()):
            selected = [_column(column) for column in columns]
            if not selected and not more:
                raise FunctionError("select keeps no column", hint='name some: .select("a", "b")')
        return self._add_step(Select, [*selected, *more.items()], **options)

    def filter(
        self,
        predicate: object,
        /,
        *more: Expr,
        state: Callable[[], Any] | None = None,
        compile: bool = False,
        **options: Unpack[StepOptions],
    ) -> Self:
        """Keep the rows for which an expression, several, or one function is true; null is not true."""
        if more and not all(isinstance(part, Expr) for part in (predicate, *more)):
            raise FunctionError(
                "filter takes one function, or any number of expressions",
                step=options.get("name") or Filter.verb,
                where=find_call_site(),
                hint="write two steps: .filter(fn).filter(expression)",
            )
        whole = reduce(and_, more, predicate)
        return self._add_step(Filter, whole, state, compile, **options)

    def map(
        self,
        function: object = None,
        /,
        *,
        schema: object = None,
        state: Callable[[], Any] | None = None,
        compile: bool = False,
        **options: Unpack[StepOptions],
    ) -> Self:
        """Make one row of every row by a function, which gives the whole new row.

        After `key_by` and with `state=factory` it is called as `fn(row, state)`. `compile=True` accepts that
        integers wrap at 64 bits, so that a function of them can be compiled; floats and bools need no such
        permission. `with_columns` computes single columns by expressions.
        """
        return self._add_step(Map, function, schema, state, compile, **options)

    def flat_map(
        self,
        function: object = None,
        /,
        *,
        schema: object = None,
        state: Callable[[], Any] | None = None,
        **named: Any,
    ) -> Self:
        """Make none, one or several rows of every row.

        A function gives an iterable of rows; `flat_map(word=col("line").str.split(" "))` gives one row
        per element of a list. The options of `ps.StepOptions` go beside the column, as in `with_columns`.
        """
        column, options = split_options(named)
        if column and function is not None:
            # A keyword that is no expression beside a function was meant as an option.
            refuse_unknown(FlatMap.verb, {n: v for n, v in column.items() if not isinstance(v, Expr)})
            with locate_errors(options.get("name") or FlatMap.verb, find_call_site()):
                raise FunctionError(
                    "flat_map takes a function or a column, not both",
                    detail=f"got a function and {', '.join(column)}",
                    hint=f"write two steps: .flat_map(fn).flat_map({next(iter(column))}=...)",
                )
        return self._add_step(FlatMap, column or function, schema, state, **options)

    def accumulate(
        self,
        function: Callable[[Any, Any], Any],
        init: object,
        *,
        schema: object = None,
        **options: Unpack[StepOptions],
    ) -> Self:
        """Keep a state per key, updated by `fn(row, state)`; every new state goes out with its key."""
        return self._add_step(Accumulate, function, init, schema, **options)

    def process(self, operator: ProcessOperator, **options: Unpack[StepOptions]) -> Self:
        """Run an operator with its own driver loop; for several ports use `graph.operator`."""
        refuse_unknown(Process.verb, options)
        with locate_errors(options.get("name") or Process.verb, find_call_site()):
            op = Process(operator, **options)
            if len(operator.inputs) != 1:
                raise FunctionError(
                    f"{type(operator).__name__} has inputs {', '.join(operator.inputs)}",
                    hint="attach it with graph.operator(op, inputs=[a, b])",
                )
            outputs = op.outputs({operator.inputs[0]: self.stream})
            if len(outputs) > 1:
                raise FunctionError(
                    f"{type(operator).__name__} has outputs {', '.join(outputs)}",
                    hint="attach it with graph.operator(op, inputs=[pipe])",
                )
            inputs = (self.as_input(operator.inputs[0], self.graph),)
        step = self.graph.steps.add(lambda: op, stem=op.verb, name=op.name, inputs=inputs, fuse=False)
        return type(self)(self.graph, (Ref(step, next(iter(outputs))),))


def _column(column: object) -> tuple[str, Expr]:
    """Return a column that select keeps; what has no name is refused with what to write instead."""
    if isinstance(column, Column):
        return column.name, column
    if isinstance(column, Expr):
        name = str(next(iter(column.columns()), "total"))
        raise FunctionError(
            f"select is given {column}, which has no name", hint=f"name the column: .select({name}={column})"
        )
    if isinstance(column, list | tuple):
        raise FunctionError(
            f"select takes columns by name, and got {column!r:.80}",
            hint=f".select({', '.join(map(repr, column))})",
        )
    expr = col(column)  # type: ignore[arg-type]  # refused by col unless it is text
    return str(column), expr
