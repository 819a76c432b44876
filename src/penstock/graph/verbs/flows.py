"""Verbs that divide and unite flows: key_by, join, join_table, split, merge, union, sink, feed_back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, Self, TypeVar, Unpack

from penstock.caller import find_call_site
from penstock.connect.protocol import Reader, Writer
from penstock.errors import GraphError, SchemaError, TimeError, nearest_first
from penstock.expr import Expr
from penstock.graph.steps import locate_errors
from penstock.graph.verbs.pipe import Pipe, refuse_unknown, split_options
from penstock.operators.ends import Sink
from penstock.operators.op import IN, Op, Stream
from penstock.operators.rows import Relay, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.options import StepOptions
from penstock.plan.plan import Ref
from penstock.timing.units import Duration
from penstock.timing.windows import SlidingSpec

AnyPipe = TypeVar("AnyPipe", bound=Pipe)


class Branches(Generic[AnyPipe]):
    """The branches of a split: by name or index, or unpacked: `a, b = pipe.split(fn, 2)`."""

    def __init__(self, pipes: dict[str, AnyPipe], step: str) -> None:
        self._pipes = pipes
        self._step = step

    def __getitem__(self, branch: str | int) -> AnyPipe:
        pipe = self._pipes.get(str(branch))
        if pipe is None:
            names = nearest_first(str(branch), self._pipes)
            raise GraphError(
                f"there is no branch {branch!r}",
                step=self._step,
                where=find_call_site(),
                detail=f"the branches are {', '.join(names)}",
                hint=f'did you mean "{names[0]}"?',
            )
        return pipe

    def __iter__(self) -> Iterator[AnyPipe]:
        return iter(self._pipes.values())

    def __len__(self) -> int:
        return len(self._pipes)


class SinkHandle:
    """The end of a pipe; nothing comes after it."""

    def __init__(self, step: str) -> None:
        self.step = step

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise GraphError(
            f'nothing comes after a sink: .{name} on sink "{self.step}"',
            step=self.step,
            where=find_call_site(),
            hint="put it before .sink(...)",
        )

    def __repr__(self) -> str:
        return f"SinkHandle({self.step!r})"


class FlowVerbs(Pipe):
    """Which rows come together, and where they go."""

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

    def split(self, function: object = None, n: int | None = None, /, **named: Any) -> Branches[Self]:
        """Send rows to branches: `split(fn, 2)` by index, `split(view=expr, click=expr)` by predicate.

        The function gives an index, several, or None: several mean a copy each, none counts as unrouted.
        The options of `ps.StepOptions` go beside the branches; a keyword with an expression is a branch.
        """
        branches, options = split_options(named)
        if function is not None:
            refuse_unknown(Split.verb, {n: v for n, v in branches.items() if not isinstance(v, Expr)})
        with locate_errors(options.get("name") or Split.verb, find_call_site()):
            if (function is None) == (not branches) or (function is not None and n is None):
                raise GraphError(
                    "split takes a function and a number of branches, or branches by name",
                    hint='split(fn, 2), or split(view=col("type") == "view", click=col("type") == "click")',
                )
            op = Split(function, n if n is not None else branches, **options)
        pipe = self._behind_one_operator()._add_op(lambda: op, stem=Split.verb, name=op.name, fuse=True)
        step = pipe.feeds[0].step
        return Branches({port: type(self)(self.graph, (Ref(step, port),)) for port in op.names}, step)

    def merge(self, *pipes: Self) -> Self:
        """Unite pipes into one with the rows of all, in WindFlow's word; the same as `union`.

        The pipes must have the same columns and the same kind of time. They may be branches of one split,
        which end there, or pipes of different sources.
        """
        return self._unite("merge", pipes)

    def union(self, *pipes: Self) -> Self:
        """Unite pipes into one with the rows of all, duplicates included: SQL's UNION ALL.

        The pipes must have the same columns and the same kind of time. The same as `merge`.
        """
        return self._unite("union", pipes)

    def _unite(self, verb: str, pipes: tuple[Self, ...]) -> Self:
        with locate_errors(None, find_call_site()):
            if not pipes:
                raise GraphError(f"{verb} needs another pipe", hint=f"a.{verb}(b)")
            stream = self.stream
            for pipe in pipes:
                if not isinstance(pipe, Pipe):
                    raise GraphError(
                        f"{verb} takes other pipes, and got {type(pipe).__name__}",
                        hint=f"a.{verb}(b), with a and b of one graph",
                    )
                pipe.as_input(IN, self.graph)
                _require_same_columns(stream, pipe.stream)
            feeds = tuple(ref for pipe in (self, *pipes) for ref in pipe.feeds)
            if len(set(feeds)) < len(feeds):
                raise GraphError(
                    "a pipe cannot be merged with itself",
                    detail=f"the feeds are {', '.join(map(str, feeds))}",
                    hint="for every row twice, let a map between make them different pipes",
                )
            same_key = all(pipe.stream.key == stream.key for pipe in pipes)
        return type(self)(self.graph, feeds, stream if same_key else stream.without_key())

    def sink(self, writer: Writer, **options: Unpack[StepOptions]) -> SinkHandle:
        """Write the rows out."""
        return SinkHandle(self._add_step(Sink, writer, **options).feeds[0].step)

    def feed_back(self, to: str, port: str) -> None:
        """Close a loop: send rows to a control port of an earlier step, which takes them a round later."""
        with locate_errors(None, find_call_site()):
            self.graph.steps.feed_back(to, port, self.feeds, self.stream)

    def _behind_one_operator(self) -> Self:
        """Return a pipe of one operator, which a split can divide: behind a relay if need be."""
        first = self.graph.steps[self.feeds[0].step]
        if len(self.feeds) == 1 and not isinstance(first.op, Split):
            return self
        return self._add_step(Relay)


def _require_same_columns(left: Stream, right: Stream) -> None:
    first = [(field.name, field.type) for field in left.schema]
    second = [(field.name, field.type) for field in right.schema]
    if first != second:
        missing = [f"{name}: {type_}" for name, type_ in first if (name, type_) not in second]
        added = [f"{name}: {type_}" for name, type_ in second if (name, type_) not in first]
        differences = [f"only the first has {', '.join(missing)}"] if missing else []
        differences += [f"only the second has {', '.join(added)}"] if added else []
        raise SchemaError(
            "merged pipes must have the same columns in the same order",
            detail="; ".join(differences) or "the same columns come in another order",
            hint="bring them into one form first: .select(...)",
        )
    if left.time != right.time:
        raise TimeError(
            f"merged pipes must agree on time: {left.time or 'none'} meets {right.time or 'none'}",
            hint="give both sources time= of one type",
        )


def _reader_of(table: object) -> Reader:
    from penstock import read

    return read.rows(table) if isinstance(table, (list, tuple)) else read.table(table)
