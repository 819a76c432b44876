"""Verbs that bring rows together by key and time: key_by, window, join, join_table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, Unpack

from penstock.caller import find_call_site
from penstock.connect.protocol import Reader
from penstock.errors import GraphError, nearest_first
from penstock.expr import Expr
from penstock.graph.steps import locate_errors
from penstock.graph.verbs.pipe import STEP_OPTIONS, Pipe, locate_verb, refuse_unknown
from penstock.graph.verbs.windows import PatternName, WindowedPipe
from penstock.operators.columns import WithColumns
from penstock.operators.op import Op
from penstock.operators.table_join import TableJoin
from penstock.operators.window_specs import SlidingSpec, WindowSpec
from penstock.options import Cuda, StepOptions
from penstock.timing.duration import Duration

WINDOW_OPTIONS = ("device", "early", "lateness", "partial", "pattern", *STEP_OPTIONS)


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

    def window(
        self,
        window: WindowSpec | None = None,
        /,
        *,
        lateness: Duration = "0 s",
        early: Duration | None = None,
        partial: bool = False,
        pattern: PatternName = "auto",
        device: Literal["auto", "cpu", "cuda"] | Cuda = "auto",
        **named: Any,
    ) -> WindowedPipe[Self]:
        """Group rows into windows; end it with `.aggregate(...)` or `.apply(fn)`.

        Several windows by name share the work: `window(fast=ps.tumbling("1 s"), slow=ps.tumbling("1 h"))`
        gives results with a column `window`. The options of `ps.StepOptions` go beside them.

        lateness  how long after its end a window still takes rows in; its result is emitted only then
        early     emit unfinished results at this interval of the clock; adds a column `final`
        partial   let count windows that are not full be emitted at the end
        pattern   "auto", "keyed", "parallel", "paned" or "map_reduce": how the work is spread
        device    "auto", "cpu" or "cuda": where windows are kept; "auto" takes a CUDA device if there is one.
                  `ps.options.Cuda(...)` is "cuda" with limits of your own
        """
        windows = {n: v for n, v in named.items() if n not in STEP_OPTIONS or isinstance(v, WindowSpec)}
        options = {n: v for n, v in named.items() if n not in windows}
        with locate_verb("window", options):
            _refuse_misspelt(windows)
            if (window is None) == (not windows):
                raise GraphError(
                    "window takes one window, or several by name",
                    hint='window(ps.tumbling("10 s")), or window(fast=..., slow=...)',
                )
        options |= {"lateness": lateness, "early": early, "partial": partial, "device": device}
        return WindowedPipe(self, window if window is not None else windows, pattern=pattern, options=options)

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
        with locate_verb(StreamJoin.verb, options):
            if not isinstance(right, Pipe):
                raise GraphError(
                    f"join takes another pipe, and got {type(right).__name__}", hint="for tables: join_table"
                )
            inputs = (self.as_input(LEFT, self.graph), right.as_input(RIGHT, self.graph))
        name = options.get("name")
        return self._at(
            self.graph.steps.add(make, stem=StreamJoin.verb, name=name, inputs=inputs, fuse=False)
        )

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


def _refuse_misspelt(windows: Mapping[str, object]) -> None:
    """Raises a GraphError for a keyword that is no window: it was meant as an option."""
    for name, value in windows.items():
        if not isinstance(value, WindowSpec):
            options = nearest_first(name, WINDOW_OPTIONS)
            raise GraphError(
                f"window has no option {name}=, and {value!r} is not a window",
                detail=f"the options are {', '.join(options)}",
                hint=f'did you mean {options[0]}=? Windows are ps.tumbling("10 s"), ps.sliding(...), ...',
            )


def _reader_of(table: object) -> Reader:
    from penstock import read

    return read.rows(table) if isinstance(table, (list, tuple)) else read.table(table)
