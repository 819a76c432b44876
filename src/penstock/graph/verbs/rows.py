"""Verbs that make rows of rows: map, select, filter, flat_map, accumulate, process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.caller import find_call_site
from penstock.errors import FunctionError
from penstock.expr import Column, Expr, col
from penstock.graph.steps import placed
from penstock.graph.verbs.base import Verbs
from penstock.operators.accumulator import Accumulator
from penstock.operators.filter import Filter
from penstock.operators.flat_map import FlatMap
from penstock.operators.function import expressions
from penstock.operators.map import Map, Select
from penstock.operators.op import Op, Parallelism
from penstock.operators.process import Operator, Process

if TYPE_CHECKING:
    from penstock.graph.multipipe import MultiPipe


class Transforms(Verbs):
    """Rows to rows."""

    __slots__ = ()

    def map(
        self,
        function: object = None,
        /,
        *,
        schema: object = None,
        state: Callable[[], Any] | None = None,
        compile: bool = False,
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        routing: str | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
        **columns: Any,
    ) -> MultiPipe:
        """Make one row of every row.

        `map(total=col("price") * col("n"))` adds or replaces columns by expressions; a dict does the
        same for names that are options here. A function gives the whole new row; after `key_by` and
        with `state=factory` it is called as `fn(row, state)`. `compile=True` accepts that whole numbers
        wrap at 64 bits, so that a function of them can be compiled; floats and bools need no leave.
        `dedicated=True` gives the step a thread of its own in process, so that a function may block.
        """
        return self._then(
            lambda: Map(
                _one_of(function, columns, "map"),
                schema,
                state,
                compile,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                routing=routing,
                on_error=on_error,
                dedicated=dedicated,
            ),
            stem=Map.verb,
            name=name,
        )

    def select(
        self, *names: str, on_error: str = "fail", name: str | None = None, **columns: Any
    ) -> MultiPipe:
        """Keep only these columns, in this order; `select("a", total=col("b") + 1)` computes some."""

        def make() -> Op:
            kept = [(column, _kept(column)) for column in names]
            if not kept and not columns:
                raise FunctionError("select keeps no column", hint='name some: .select("a", "b")')
            computed = expressions(columns, "select").columns if columns else ()
            return Select((*kept, *computed), name=name, on_error=on_error)

        return self._then(make, stem=Select.verb, name=name)

    def filter(
        self,
        predicate: object,
        /,
        *,
        state: Callable[[], Any] | None = None,
        compile: bool = False,
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        routing: str | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
    ) -> MultiPipe:
        """Keep the rows for which an expression or a function is true; null is not true."""
        return self._then(
            lambda: Filter(
                predicate,
                state,
                compile,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                routing=routing,
                on_error=on_error,
                dedicated=dedicated,
            ),
            stem=Filter.verb,
            name=name,
        )

    def flat_map(
        self,
        function: object = None,
        /,
        *,
        schema: object = None,
        state: Callable[[], Any] | None = None,
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        routing: str | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
        **columns: Any,
    ) -> MultiPipe:
        """Make none, one or several rows of every row.

        A function gives an iterable of rows; `flat_map(word=col("line").str.split(" "))` gives one row
        per element of a list.
        """
        return self._then(
            lambda: FlatMap(
                _one_of(function, columns, "flat_map"),
                schema,
                state,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                routing=routing,
                on_error=on_error,
                dedicated=dedicated,
            ),
            stem=FlatMap.verb,
            name=name,
        )

    def accumulate(
        self,
        function: Callable[[Any, Any], Any],
        init: object,
        *,
        schema: object = None,
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
    ) -> MultiPipe:
        """Keep a state per key, moved on by `fn(row, state)`; every new state goes out with its key."""
        return self._then(
            lambda: Accumulator(
                function,
                init,
                schema,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                on_error=on_error,
                dedicated=dedicated,
            ),
            stem=Accumulator.verb,
            name=name,
        )

    def process(
        self,
        operator: Operator,
        *,
        name: str | None = None,
        parallelism: Parallelism = None,
        dedicated: bool = False,
    ) -> MultiPipe:
        """Run an operator with its own driver loop; for several ports use `graph.operator`."""
        with placed(name or Process.verb, find_call_site()):
            made = Process(operator, name=name, parallelism=parallelism, dedicated=dedicated)
            if len(operator.inputs) != 1:
                raise FunctionError(
                    f"{type(operator).__name__} has inputs {', '.join(operator.inputs)}",
                    hint="attach it with graph.operator(op, inputs=[a, b])",
                )
            outputs = made.outputs({operator.inputs[0]: self.stream})
            if len(outputs) > 1:
                raise FunctionError(
                    f"{type(operator).__name__} has outputs {', '.join(outputs)}",
                    hint="attach it with graph.operator(op, inputs=[pipe])",
                )
        (pipe,) = self.graph.operator(made, inputs=[self])  # type: ignore[list-item]  # a MultiPipe
        return pipe


def _kept(column: object) -> Expr:
    """A column that select keeps; expressions and lists are refused with what to write instead."""
    if isinstance(column, Expr):
        named = str(next(iter(column.columns()), "total"))
        hint = f'write .select("{named}")' if isinstance(column, Column) else f".select({named}={column})"
        raise FunctionError(f"select takes columns by name, and got {column}", hint=hint)
    if isinstance(column, list | tuple):
        raise FunctionError(
            f"select takes columns by name, and got {column!r:.80}",
            hint=f".select({', '.join(repr(each) for each in column)})",
        )
    return col(column)  # type: ignore[arg-type]  # refused by col unless it is text


def _one_of(function: object, columns: dict[str, Any], verb: str) -> object:
    if function is not None and columns:
        raise FunctionError(
            f"{verb} takes a function or columns, not both",
            detail=f"got a function and {', '.join(columns)}",
            hint=f"write two steps: .{verb}(fn).{verb}({next(iter(columns))}=...)",
        )
    return columns if function is None else function
