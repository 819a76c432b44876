"""Verbs that bring things together by key and time: key_by, window, join, join_table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.caller import find_call_site
from penstock.connect.protocol import Reader
from penstock.errors import GraphError, nearest_first
from penstock.expr import Expr
from penstock.graph.steps import placed
from penstock.graph.verbs.base import Verbs
from penstock.graph.verbs.windows import WindowedPipe
from penstock.operators.cuda import Cuda
from penstock.operators.op import OUT, Op, Parallelism
from penstock.operators.static_join import StaticJoin
from penstock.operators.window import Sliding, WindowSpec
from penstock.plan.plan import Ref
from penstock.timing.duration import Duration

if TYPE_CHECKING:
    from penstock.graph.multipipe import MultiPipe

_WINDOW_OPTIONS = (
    "batch_size", "dedicated", "device", "early", "lateness", "name", "on_error", "parallelism",
    "partial", "pattern",
)  # fmt: skip


class Joins(Verbs):
    """Rows that belong together."""

    __slots__ = ()

    def key_by(self, *names: str, **columns: Expr) -> MultiPipe:
        """Group rows by columns for the steps that follow; `key_by(big=col("n") > 9)` computes one."""
        from penstock.graph.multipipe import MultiPipe

        key = (*names, *columns)
        with placed(None, find_call_site()):
            if not key:
                raise GraphError("key_by needs a column", hint='key_by("user"), key_by("region", "user")')
            self.stream.require(*(name for name in names if name not in list(columns)))
        pipe: Any = self.map(columns) if columns else self  # type: ignore[attr-defined]
        with placed(None, find_call_site()):
            pipe.stream.require_key(*key)
        return MultiPipe(pipe.graph, pipe.feeds, replace(pipe.stream, key=key))

    def window(
        self,
        window: WindowSpec | None = None,
        *,
        lateness: Duration = "0 s",
        early: Duration | None = None,
        partial: bool = False,
        pattern: str = "auto",
        device: str | Cuda = "auto",
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
        **windows: WindowSpec,
    ) -> WindowedPipe:
        """Group rows into windows; end it with `.aggregate(...)` or `.apply(fn)`.

        Several windows by name share the work: `window(fast=ps.tumbling("1 s"), slow=ps.tumbling("1 h"))`
        gives results with a column `window`.

        lateness  how long after its end a window still takes rows in; it leaves only then
        early     give unfinished results so often, by the clock; adds a column `final`
        partial   let count windows that are not full leave at the end
        pattern   "auto", "keyed", "parallel", "paned" or "map_reduce": how the work is spread
        device    "auto", "cpu" or "cuda": where windows are kept; "auto" takes a CUDA device if there is one.
                  `ps.Cuda(...)` is "cuda" with limits of your own
        """
        with placed(name or "window", find_call_site()):
            _refuse_misspelt(windows)
            if (window is None) == (not windows):
                raise GraphError(
                    "window takes one window, or several by name",
                    hint='window(ps.tumbling("10 s")), or window(fast=..., slow=...)',
                )
        return WindowedPipe(
            self,
            window if window is not None else windows,
            pattern=pattern,
            name=name,
            options={
                "lateness": lateness,
                "early": early,
                "partial": partial,
                "device": device,
                "parallelism": parallelism,
                "batch_size": batch_size,
                "on_error": on_error,
                "dedicated": dedicated,
            },
        )

    def join(
        self,
        right: MultiPipe,
        *,
        on: object,
        within: Duration | tuple[Duration, Duration] | None = None,
        window: Sliding | None = None,
        how: str = "inner",
        layout: str | tuple[int, int] = "auto",
        suffix: str | None = None,
        lateness: Duration = "0 s",
        name: str | None = None,
        parallelism: Parallelism = None,
        on_error: str = "fail",
    ) -> MultiPipe:
        """Pair rows of two streams that are close in time and fulfil a predicate.

        on      a column name (equality), `ps.equal("a", "b")`, `ps.band("x", 10)`, a function of
                (left, right), or a list of these that must all hold
        within  how far apart in time: "5 min", or (how much older the left may be, the right)
        window  instead: `ps.tumbling("10 s")` pairs rows of the same window
        layout  (m, n) workers; "auto" chooses
        """
        from penstock.graph.multipipe import MultiPipe
        from penstock.operators.window_join import LEFT, RIGHT, WindowJoin

        def make() -> Op:
            return WindowJoin(
                on,
                within,
                window,
                layout,
                how,
                suffix,
                lateness,
                name=name,
                parallelism=parallelism,
                on_error=on_error,
            )

        with placed(name or WindowJoin.verb, find_call_site()):
            if not isinstance(right, MultiPipe):
                raise GraphError(
                    f"join takes another pipe, and got {type(right).__name__}", hint="for tables: join_table"
                )
            inputs = (self.as_input(LEFT, self.graph), right.as_input(RIGHT, self.graph))
        step = self.graph.steps.add(make, stem=WindowJoin.verb, name=name, inputs=inputs, fuse=False)
        return MultiPipe(self.graph, (Ref(step, OUT),))

    def join_table(
        self,
        table: object,
        *,
        on: str | Sequence[str],
        how: str = "inner",
        name: str | None = None,
        parallelism: Parallelism = None,
        batch_size: int | None = None,
        on_error: str = "fail",
        dedicated: bool = False,
    ) -> MultiPipe:
        """Add the columns of the row with the same key in a table: Arrow, pandas, Polars, rows, or a reader.

        The table is read once, at the start. Two table rows with one key are an error.
        """

        def make() -> Op:
            given = isinstance(table, Reader)
            op = StaticJoin(
                table if isinstance(table, Reader) else _reader(table),
                on,
                how,
                name=name,
                parallelism=parallelism,
                batch_size=batch_size,
                on_error=on_error,
                dedicated=dedicated,
            )
            if not given and all(name in op.table.schema.names for name in op.columns):
                op.load()  # what is already in memory is checked before anything runs
            return op

        return self._then(make, stem=StaticJoin.verb, name=name)


def _refuse_misspelt(windows: Mapping[str, object]) -> None:
    """A keyword that is no window was meant as an option."""
    for name, given in windows.items():
        if not isinstance(given, WindowSpec):
            options = nearest_first(name, _WINDOW_OPTIONS)
            raise GraphError(
                f"window has no option {name}=, and {given!r} is not a window",
                detail=f"the options are {', '.join(options)}",
                hint=f'did you mean {options[0]}=? Windows are ps.tumbling("10 s"), ps.sliding(...), ...',
            )


def _reader(table: object) -> Reader:
    from penstock import read

    return read.rows(table) if isinstance(table, (list, tuple)) else read.table(table)
