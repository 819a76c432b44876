"""A point in the graph that rows pass, and the verbs that follow it: rows to rows, and rows to windows.

Every verb ends in `_add_step` or `_add_op`: they refuse options that do not exist, make the operator, and
return the pipe behind the new step. A keyword of a verb that also names columns, branches or windows is an
option only if it is called like one and its value is none of these: `with_columns(name=col("a"))` computes a
column `name`, and a mapping takes any name. The verbs for several pipes are those of `MultiPipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack

from penstock.caller import find_call_site
from penstock.errors import FunctionError, GraphError, nearest_first
from penstock.expr import Column, Expr, col
from penstock.frozen import dataclass
from penstock.graph.steps import locate_errors
from penstock.operators.aggregates import Aggregate
from penstock.operators.choices import on_cuda
from penstock.operators.ends import Sink
from penstock.operators.op import IN, OUT, Op, Stream, degree
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map, Select, WithColumns
from penstock.operators.windows import PATTERNS, as_pattern, choose_pattern, why_not_pattern
from penstock.options import Cuda, StepOptions
from penstock.plan.plan import Input, Ref
from penstock.timing.units import Duration
from penstock.timing.windows import WindowSpec

if TYPE_CHECKING:
    from penstock.graph.pipegraph import PipeGraph

STEP_OPTIONS = tuple(StepOptions.__annotations__)
WINDOW_OPTIONS = ("device", "early", "lateness", "partial", "pattern", *STEP_OPTIONS)
PatternName = Literal["auto", "keyed", "parallel", "paned", "map_reduce"]


class Pipe:
    """One point of a graph, and the verbs that need no other.

    graph  the graph this pipe belongs to
    feeds  the output ports that flow here; several when pipes were merged
    """

    __slots__ = ("_stream", "feeds", "graph")

    def __init__(self, graph: PipeGraph, feeds: tuple[Ref, ...], stream: Stream | None = None) -> None:
        self.graph = graph
        self.feeds = feeds
        self._stream = stream or graph.steps[feeds[0].step].outputs.get(feeds[0].port)

    @property
    def stream(self) -> Stream:
        """Return columns, time and key of the rows here."""
        if self._stream is None:
            step = self.feeds[0].step
            raise GraphError(
                f'nothing comes after sink "{step}"',
                step=step,
                where=find_call_site(),
                hint="put the verb on the pipe before the sink",
            )
        return self._stream

    def as_input(self, port: str, graph: PipeGraph, *, control: bool = False) -> Input:
        """Return this pipe as what feeds a port of a step of `graph`."""
        if self.graph is not graph:
            raise GraphError(
                f'a pipe of graph "{self.graph.name}" cannot feed a step of graph "{graph.name}"',
                hint="build both in one PipeGraph",
            )
        return Input(port, self.feeds, self.stream, control)

    def with_columns(self, columns: Mapping[str, object] | None = None, /, **named: Any) -> Self:
        """Add columns, or replace those of the same name: `with_columns(total=col("price") * col("n"))`.

        Plain values are constants. The options of `ps.StepOptions` go beside the columns; a keyword with an
        expression is always a column, and a mapping takes any name: `with_columns({"name": "x"})`.
        """
        more, options = split_options(named)
        if options and not more and not columns:
            with locate_errors(WithColumns.verb, find_call_site()):
                raise FunctionError(
                    f"with_columns names no column: {', '.join(f'{n}={v!r:.40}' for n, v in options.items())}"
                    " is taken for an option of the step",
                    hint=f"for a column of that name: .with_columns({next(iter(options))}=ps.lit(...))",
                )
        return self._add_step(WithColumns, {**(columns or {}), **more}, **options)

    def select(self, /, *columns: str | Expr, **named: Any) -> Self:
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
        keeps: str | Sequence[str] = (),
        **options: Unpack[StepOptions],
    ) -> Self:
        """Make one row of every row by a function, which gives the whole new row.

        After `key_by` and with `state=factory` it is called as `fn(row, state)`. `compile=True` accepts that
        integers wrap at 64 bits, so that a function of them can be compiled; floats and bools need no such
        permission. `keeps="user"` says that the function returns this column, or several, as it is: only then
        is the pipe behind it still keyed by it. `with_columns` computes single columns by expressions.
        """
        keywords = {"schema": schema, "state": state, "compile": compile, "keeps": keeps, **options}
        for name, value in keywords.items():
            if isinstance(value, Expr):
                with locate_errors(Map.verb, find_call_site()):
                    raise FunctionError(
                        f"map takes a function, and {name}={value} is a column",
                        hint=f"for columns by expressions: .with_columns({name}={value})",
                    )
        return self._add_step(Map, function, schema, state, compile, keeps, **options)

    def flat_map(
        self,
        function: object = None,
        /,
        *,
        schema: object = None,
        state: Callable[[], Any] | Expr | None = None,
        keeps: str | Sequence[str] | Expr = (),
        **named: Any,
    ) -> Self:
        """Make none, one or several rows of every row.

        A function gives an iterable of rows; `flat_map(word=col("line").str.split(" "))` gives one row
        per element of a list. `keeps=` is that of `map`. The options of `ps.StepOptions` go beside the
        column, as in `with_columns`: a keyword with an expression is always a column.
        """
        column, options = split_options(named)
        if isinstance(schema, Expr):
            column["schema"], schema = schema, None
        if isinstance(state, Expr):
            column["state"], state = state, None
        if isinstance(keeps, Expr):
            column["keeps"], keeps = keeps, ()
        if column and function is not None:
            # A keyword that is no expression beside a function was meant as an option.
            refuse_unknown(FlatMap.verb, {n: v for n, v in column.items() if not isinstance(v, Expr)})
            with locate_errors(options.get("name") or FlatMap.verb, find_call_site()):
                raise FunctionError(
                    "flat_map takes a function or a column, not both",
                    detail=f"got a function and {', '.join(column)}",
                    hint=f"write two steps: .flat_map(fn).flat_map({next(iter(column))}=...)",
                )
        return self._add_step(FlatMap, column or function, schema, state, keeps, **options)

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

    def window(
        self,
        window: WindowSpec | Mapping[str, WindowSpec] | None = None,
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
        gives results with a column `window`; a mapping takes any name: `window({"early": ...})`. The options
        of `ps.StepOptions` go beside them.

        lateness  how long after its end a window still takes rows in; its result is emitted only then
        early     emit unfinished results at this interval of the clock; adds a column `final`
        partial   let count windows that are not full be emitted at the end
        pattern   "auto", "keyed", "parallel", "paned" or "map_reduce": how the work is spread
        device    "auto", "cpu" or "cuda": where windows are kept; "auto" takes a CUDA device if there is one.
                  `ps.options.Cuda(...)` is "cuda" with limits of your own
        """
        windows, options = split_options(named, WindowSpec)
        if isinstance(window, Mapping):
            windows, window = {**window, **windows}, None
        with locate_errors(options.get("name") or "window", find_call_site()):
            for name, value in windows.items():
                if not isinstance(value, WindowSpec):
                    known = nearest_first(name, WINDOW_OPTIONS)
                    raise GraphError(
                        f"window has no option {name}=, and {value!r} is not a window",
                        detail=f"the options are {', '.join(known)}",
                        hint=f'did you mean {known[0]}=? Windows are ps.tumbling("10 s"), ...',
                    )
            if (window is None) == (not windows):
                raise GraphError(
                    "window takes one window, or several by name",
                    hint='window(ps.tumbling("10 s")), or window(fast=..., slow=...)',
                )
        options |= {"lateness": lateness, "early": early, "partial": partial, "device": device}
        return WindowedPipe(self, window if window is not None else windows, pattern, options)

    def _add_step(self, kind: type[Op], *arguments: object, **options: Any) -> Self:
        """Add a step with an operator of this kind and return the pipe behind it."""
        refuse_unknown(kind.verb, options)
        return self._add_op(partial(kind, *arguments, **options), stem=kind.verb, name=options.get("name"))

    def _add_op(
        self, make: Callable[[], Op], *, stem: str, name: str | None, fuse: bool | None = None
    ) -> Self:
        """Add the operator that `make` returns as a step and return the pipe behind it."""
        inputs = (self.as_input(IN, self.graph),)
        step = self.graph.steps[self.graph.steps.add(make, stem=stem, name=name, inputs=inputs, fuse=fuse)]
        port = OUT if OUT in step.outputs or isinstance(step.op, Sink) else next(iter(step.outputs))
        return type(self)(self.graph, (Ref(step.name, port),))


AnyPipe = TypeVar("AnyPipe", bound=Pipe)


@dataclass(frozen=True, slots=True, eq=False)
class WindowedPipe(Generic[AnyPipe]):
    """What `pipe.window(...)` returns: end it with `.aggregate(...)` or `.apply(fn)`."""

    _pipe: AnyPipe
    _windows: WindowSpec | Mapping[str, WindowSpec]
    _pattern: PatternName
    _options: Mapping[str, Any]

    def aggregate(self, aggregates: Mapping[str, Aggregate] | None = None, /, **named: Aggregate) -> AnyPipe:
        """Make one row per key and window: `aggregate(views=ps.count(), revenue=ps.sum("price"))`."""
        if isinstance(aggregates, Mapping):
            named = {**aggregates, **named}
        build = partial(self._build, aggregates=named if aggregates is None or named else aggregates)
        return self._pipe._add_op(build, stem="window", name=self._options.get("name"))

    def apply(self, function: Callable[..., Any], *, schema: object = None) -> AnyPipe:
        """Call `fn(rows)`, or `fn(rows, window)`, on all the rows of a window, in order of time.

        It returns one row, several, or None; key and window columns are added to each. `window` has
        `start`, `end`, `index`, `label` and `key`.
        """
        build = partial(self._build, apply=function, schema=schema)
        return self._pipe._add_op(build, stem="window", name=self._options.get("name"))

    def _build(self, **result: Any) -> Op:
        """Return the operator; `result` has the aggregates, or the function and its schema."""
        if self._pattern != "auto" and self._pattern not in PATTERNS:
            names = ", ".join(f'"{name}"' for name in ("auto", *PATTERNS))
            raise GraphError(f"pattern={self._pattern!r} is unknown", hint=f"use one of {names}")
        op = PATTERNS["keyed" if self._pattern == "auto" else self._pattern](
            self._windows, **result, **self._options
        )
        if self._pattern == "auto":
            if on_cuda(op):
                return as_pattern("keyed", op, because='device="cuda" was asked for')
            # For the replicas that the step asks for, or takes over from the pipe.
            replicas = degree(op.parallelism) or self._pipe.graph.steps.partitioning(self._pipe.feeds).degree
            choice = choose_pattern(op, self._pipe.stream, replicas.most)
            return as_pattern(choice.pattern, op, because=choice.reason)
        refusal = why_not_pattern(self._pattern, op, self._pipe.stream, totally_ordered=True)
        if refusal is not None:
            # A pattern never changes an answer, so one that cannot take the windows is only not followed.
            asked = f'pattern="{self._pattern}" was asked for, but for {refusal[0]} {refusal[1]}'
            return as_pattern("keyed", op, because=asked)
        return op

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # copy and inspect ask for these, and can do without
            raise AttributeError(name)
        raise GraphError(
            f"a windowed pipe has no .{name}",
            step=self._options.get("name") or "window",
            where=find_call_site(),
            hint="end the window first: .aggregate(n=ps.count()) or .apply(fn)",
        )


def refuse_unknown(verb: str, options: Mapping[str, object]) -> None:
    """Raise a GraphError that names the nearest option, for an option that does not exist."""
    for name, value in options.items():
        if name not in STEP_OPTIONS:
            names = nearest_first(name, STEP_OPTIONS)
            hint = f"did you mean {names[0]}=?"
            if isinstance(value, Expr):
                hint = f"for a column: .with_columns({name}=...)"
            raise GraphError(
                f"{verb} has no option {name}=",
                step=str(options.get("name") or verb),
                where=find_call_site(),
                detail=f"the options are {', '.join(names)}",
                hint=hint,
            )


def split_options(keywords: Mapping[str, Any], kind: Any = Expr) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a verb takes by any name, of this kind, and its options, where both are keywords."""
    options = {n: v for n, v in keywords.items() if n in STEP_OPTIONS and not isinstance(v, kind)}
    return {n: v for n, v in keywords.items() if n not in options}, options


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
