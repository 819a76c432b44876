"""Verbs that bring rows together by key: key_by, join, join_table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Self, Unpack

from penstock.caller import find_call_site
from penstock.connect.protocol import Reader
from penstock.errors import GraphError
from penstock.expr import Expr
from penstock.graph.steps import locate_errors
from penstock.graph.verbs.pipe import Pipe, refuse_unknown
from penstock.operators.columns import WithColumns
from penstock.operators.op import Op
from penstock.operators.table_join import TableJoin
from penstock.operators.window_specs import SlidingSpec
from penstock.options import StepOptions
from penstock.plan.plan import Ref
from penstock.timing.duration import Duration


class JoinVerbs(Pipe):
    """Rows that belong together."""

    __slots__ = ()

    def key_by(self, *names: str, **columns: Expr) -> Self:
        """Group rows by columns for the steps that follow; `key_by(big=col("n") > 9)` computes one."""
        key = (*names, *columns)
        with locate_errors(None, find_call_site()):
            if not key:
                raise GraphError("key_by needs a column", hint='key_by("user"), key_by("region", "user")')
            self.stream.require(*(name for name in names if name not in list(columns)))
        pipe = self._add_step(WithColumns, columns) if columns else self
        with locate_errors(None, find_call_site()):
            pipe.stream.require_key(*key)
        return type(self)(pipe.graph, pipe.feeds, replace(pipe.stream, key=key))

    def join(
        self,
        right: Self,
        *,
        on: object,
        within: Duration | tuple[Duration, Duration] | None = None,
        window: SlidingSpec | None = None,
        how: Literal["inner", "left", "right", "full"] = "inner",
        layout: Literal["auto"] | tuple[int, int] = "auto",
        suffix: str | None = None,
        lateness: Duration = "0 s",
        **options: Unpack[StepOptions],
    ) -> Self:
        """Pair rows of two streams that are close in time and fulfil a predicate.

        on      a column name (equality), `ps.equal("a", "b")`, `ps.band("x", 10)`, a function of
                (left, right), or a list of these that must all hold
        within  how far apart in time: "5 min", or (how much older the left may be, the right)
        window  instead: `ps.tumbling("10 s")` pairs rows of the same window
        layout  (m, n) workers; "auto" chooses
        """
        from penstock.operators.stream_join import LEFT, RIGHT, StreamJoin

        def make() -> Op:
            return StreamJoin(on, within, window, layout, how, suffix, lateness, **options)

        refuse_unknown(StreamJoin.verb, options)
        with locate_errors(options.get("name") or StreamJoin.verb, find_call_site()):
            if not isinstance(right, Pipe):
                raise GraphError(
                    f"join takes another pipe, and got {type(right).__name__}", hint="for tables: join_table"
                )
            inputs = (self.as_input(LEFT, self.graph), right.as_input(RIGHT, self.graph))
        name = options.get("name")
        step = self.graph.steps.add(make, stem=StreamJoin.verb, name=name, inputs=inputs, fuse=False)
        return type(self)(self.graph, (Ref(step),))

    def join_table(
        self,
        table: object,
        *,
        on: str | Sequence[str],
        how: Literal["inner", "left"] = "inner",
        **options: Unpack[StepOptions],
    ) -> Self:
        """Add the columns of the row with the same key in a table: Arrow, pandas, Polars, rows, or a reader.

        The table is read once, at the start. Two table rows with one key are an error.
        """

        def make() -> Op:
            op = TableJoin(table if isinstance(table, Reader) else _reader_of(table), on, how, **options)
            if not isinstance(table, Reader) and all(name in op.table.schema.names for name in op.columns):
                op.load()  # what is already in memory is checked before anything runs
            return op

        refuse_unknown(TableJoin.verb, options)
        return self._add_op(make, stem=TableJoin.verb, name=options.get("name"))


def _reader_of(table: object) -> Reader:
    from penstock import read

    return read.rows(table) if isinstance(table, (list, tuple)) else read.table(table)
