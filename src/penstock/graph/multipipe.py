"""MultiPipe: a point in the graph that rows pass, with one verb per operator.

A MultiPipe never changes. A verb adds a step and returns the pipe behind it; using one pipe twice sends
every row both ways. Here are the verbs that divide and unite flows, and that end them; those of one pipe
alone are in `pipe.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.connect.protocol import Reader, Writer
from penstock.errors import FunctionError, GraphError, SchemaError, TimeError, nearest_first
from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.graph.pipe import Pipe, refuse_unknown, split_options
from penstock.graph.run import refuse_gaps, resolve_engine
from penstock.graph.steps import locate_errors
from penstock.operators.ends import Sink
from penstock.operators.op import ERRORS, IN, LATE, LATE_RIGHT, KeyLoss, Op
from penstock.operators.process import Process, ProcessOperator
from penstock.operators.rows import Relay, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.options import CollectSettings, StepOptions
from penstock.plan.plan import Ref
from penstock.timing.units import Duration
from penstock.timing.windows import SlidingSpec

if TYPE_CHECKING:
    from penstock.engines.protocol import Engine


class MultiPipe(Pipe):
    """A stream under construction; see the verbs for what can be done with it."""

    __slots__ = ()

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the rows here."""
        return self.stream.schema

    @property
    def late(self) -> MultiPipe:
        """Return the rows that came too late for the step that made this pipe."""
        return self._side_output(
            LATE, "only windows, joins, accumulate and steps with state= on timed streams have late rows"
        )

    @property
    def late_right(self) -> MultiPipe:
        """Return the rows of the right side that came too late for the join that made this pipe."""
        return self._side_output(LATE_RIGHT, "only joins have late rows of a right side")

    @property
    def errors(self) -> MultiPipe:
        """Return the rows that failed in the step that made this pipe, with the reason."""
        return self._side_output(
            ERRORS, 'a step sends failed rows there when it is given on_error="dead_letter"'
        )

    def add(self, op: Op) -> MultiPipe:
        """Add an operator object as a stage of its own."""
        _refuse_misplaced(op, "add")
        return self._add_op(lambda: op, stem=op.verb, name=op.name, fuse=False)

    def chain(self, op: Op) -> MultiPipe:
        """Fuse an operator object with the step before it where the rules allow, else add it."""
        _refuse_misplaced(op, "chain")
        return self._add_op(lambda: op, stem=op.verb, name=op.name, fuse=True)

    def process(self, operator: ProcessOperator, **options: Unpack[StepOptions]) -> MultiPipe:
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
        return self.graph.operator(op, inputs=[self])[0]

    def key_by(self, /, *names: str, **columns: Expr) -> MultiPipe:
        """Group rows by columns for the steps that follow; `key_by(big=col("n") > 9)` computes one."""
        key = (*names, *columns)
        with locate_errors(None, find_call_site()):
            if not key:
                raise GraphError("key_by needs a column", hint='key_by("user"), key_by("region", "user")')
            self.stream.require(*(name for name in names if name not in list(columns)))
        pipe = self._add_step(WithColumns, columns) if columns else self
        with locate_errors(None, find_call_site()):
            pipe.stream.require_key(*key)
        return MultiPipe(pipe.graph, pipe.feeds, pipe.stream.with_key(*key))

    def keyless(self) -> MultiPipe:
        """Drop the key: a window that follows takes all rows together, whatever they were grouped by."""
        return MultiPipe(self.graph, self.feeds, self.stream.with_key())

    def join(
        self,
        right: MultiPipe,
        *,
        on: object,
        within: Duration | tuple[Duration, Duration] | None = None,
        window: SlidingSpec | None = None,
        last_rows: int | tuple[int, int] | None = None,
        how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner",
        layout: Literal["auto", "centralised", "handshake"] | tuple[int, int] = "auto",
        suffix: str | None = None,
        lateness: Duration = "0 s",
        rates: tuple[float, float] | None = None,
        **options: Unpack[StepOptions],
    ) -> MultiPipe:
        """Pair rows of two streams that are close in time and fulfil a predicate.

        on         a column name (equality), `ps.equal("a", "b")`, `ps.band("x", 10)`, an expression such as
                   `ps.left("a") > ps.right("b")`, a function of (left, right), `ps.batch(fn)` with a function
                   of two batches, or a list of these that must all hold
        within     how far apart in time: "5 min", or (how much older the left may be, the right)
        window     instead: `ps.tumbling("10 s")` pairs rows of the same window; with `ps.sliding` a pair
                   leaves once for each window that both are in, with window_start and window_end
        last_rows  instead: each row meets the last N rows of the other stream before it, in order of time:
                   100, or (N of the left, N of the right)
        how        "inner"; "left", "right" or "full": rows without a partner leave too, with nulls; "semi":
                   left rows with a partner leave, once; "anti": left rows without one
        layout     (m, n) workers; "auto" chooses; "centralised" and "handshake" are for comparison
        rates      rows a second of the left and of the right, if they are known: `explain()` predicts by them
        """
        from penstock.operators.join_predicate import LEFT, RIGHT
        from penstock.operators.stream_join import StreamJoin

        refuse_unknown(StreamJoin.verb, options)
        with locate_errors(options.get("name") or StreamJoin.verb, find_call_site()):
            if not isinstance(right, Pipe):
                raise GraphError(
                    f"join takes another pipe, and got {type(right).__name__}", hint="for tables: join_table"
                )
            inputs = (self.as_input(LEFT, self.graph), right.as_input(RIGHT, self.graph))
        bounds = (within, window, layout, how, suffix, lateness, last_rows, rates)
        make = partial(StreamJoin, on, *bounds, **options)
        name = options.get("name")
        step = self.graph.steps.add(make, stem=StreamJoin.verb, name=name, inputs=inputs, fuse=False)
        return MultiPipe(self.graph, (Ref(step),))

    def join_table(
        self,
        table: object,
        *,
        on: str | Sequence[str],
        how: Literal["inner", "left"] = "inner",
        **options: Unpack[StepOptions],
    ) -> MultiPipe:
        """Add the columns of the row with the same key in a table: Arrow, pandas, Polars, rows, or a reader.

        The table is read once, at the start. Two table rows with one key are an error.
        """

        def make_in_memory() -> Op:
            from penstock import read

            reader = read.rows(table) if isinstance(table, (list, tuple)) else read.table(table)
            op = TableJoin(reader, on, how, **options)
            if all(name in reader.schema.names for name in op.columns):
                op.load()  # what is already in memory is checked before anything runs
            return op

        refuse_unknown(TableJoin.verb, options)
        make = make_in_memory
        if isinstance(table, Reader):
            make = partial(TableJoin, table, on, how, **options)
        return self._add_op(make, stem=TableJoin.verb, name=options.get("name"))

    def split(self, function: object = None, n: int | None = None, /, **named: Any) -> Branches:
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
        return Branches({port: MultiPipe(self.graph, (Ref(step, port),)) for port in op.names}, step)

    def merge(self, *pipes: MultiPipe) -> MultiPipe:
        """Unite pipes into one with the rows of all, in WindFlow's word; the same as `union`.

        The pipes must have the same columns and the same kind of time. They may be branches of one split,
        which end there, or pipes of different sources.
        """
        return self._unite("merge", pipes)

    def union(self, *pipes: MultiPipe) -> MultiPipe:
        """Unite pipes into one with the rows of all, duplicates included: SQL's UNION ALL.

        The pipes must have the same columns and the same kind of time. The same as `merge`.
        """
        return self._unite("union", pipes)

    def _unite(self, verb: str, pipes: tuple[MultiPipe, ...]) -> MultiPipe:
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
                first = [(field.name, field.type) for field in stream.schema]
                second = [(field.name, field.type) for field in pipe.stream.schema]
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
                if stream.time != pipe.stream.time:
                    times = f"{stream.time or 'none'} meets {pipe.stream.time or 'none'}"
                    raise TimeError(
                        f"merged pipes must agree on time: {times}",
                        hint="give both sources time= of one type",
                    )
            feeds = tuple(ref for pipe in (self, *pipes) for ref in pipe.feeds)
            if len(set(feeds)) < len(feeds):
                raise GraphError(
                    "a pipe cannot be merged with itself",
                    detail=f"the feeds are {', '.join(map(str, feeds))}",
                    hint="for every row twice, let a map between make them different pipes",
                )
            streams = [stream, *(pipe.stream for pipe in pipes)]
            losses = [one.lost_key for one in streams if one.lost_key is not None]
            keys = list(dict.fromkeys(one.key for one in streams))
            if not losses and len(keys) > 1:
                different = " and ".join(", ".join(key) or "none" for key in keys)
                reason = f"pipes with different keys flow together: {different}"
                losses = [KeyLoss(max(keys), reason, verb, find_call_site())]
            if losses:
                stream = replace(stream, key=(), lost_key=losses[0])
        return MultiPipe(self.graph, feeds, stream)

    def sink(self, writer: Writer, **options: Unpack[StepOptions]) -> SinkHandle:
        """Write the rows out."""
        return SinkHandle(self._add_step(Sink, writer, **options).feeds[0].step)

    def feed_back(self, to: str, port: str) -> None:
        """Close a loop: send rows to a control port of an earlier step, which takes them a round later."""
        with locate_errors(None, find_call_site()):
            self.graph.steps.feed_back(to, port, self.feeds, self.stream)

    def _behind_one_operator(self) -> MultiPipe:
        """Return a pipe of one operator, which a split can divide: behind a relay if need be."""
        first = self.graph.steps[self.feeds[0].step]
        if len(self.feeds) == 1 and not isinstance(first.op, Split):
            return self
        return self._add_step(Relay)

    def collect(self, engine: str | Engine | None = None, **settings: Unpack[CollectSettings]) -> pa.Table:
        """Run what is upstream of this pipe, write no sink, and return the rows as a table."""
        (table,) = self.graph.collect(self, engine=engine, **settings)
        return table

    def to_spark(self, session: Any = None) -> Any:
        """Return the rows here as a DataFrame of Spark, in `session` or in the one that is running.

        What is upstream is run now if it ends. On a stream (`ps.read.spark`) the DataFrame is one too; steps
        that keep state are refused there.
        """
        plan = self.graph.plan(self)
        engine: Any = resolve_engine("spark")  # the only one that can
        refuse_gaps(engine, plan)
        return engine.to_spark(plan, self.feeds, session)

    def _side_output(self, port: str, hint: str) -> MultiPipe:
        if len(self.feeds) > 1:
            raise GraphError(
                f"a merged pipe has no .{port} of its own",
                where=find_call_site(),
                hint=f"take .{port} before the merge",
            )
        step = self.graph.steps[self.feeds[0].step]
        if port not in step.outputs:
            raise GraphError(
                f'step "{step.name}" has no .{port}', step=step.name, where=find_call_site(), hint=hint
            )
        return MultiPipe(self.graph, (Ref(step.name, port),))

    def __repr__(self) -> str:
        columns = (
            ", ".join(f"{field.name}: {field.type}" for field in self._stream.schema) if self._stream else "-"
        )
        return f"MultiPipe({' + '.join(map(str, self.feeds))}: {columns})"


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """The branches of a split: by name or index, or unpacked: `a, b = pipe.split(fn, 2)`."""

    _pipes: dict[str, MultiPipe]
    _step: str

    def __getitem__(self, branch: str | int) -> MultiPipe:
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

    def __iter__(self) -> Iterator[MultiPipe]:
        return iter(self._pipes.values())

    def __len__(self) -> int:
        return len(self._pipes)


@dataclass(frozen=True, slots=True, eq=False)
class SinkHandle:
    """The end of a pipe; nothing comes after it."""

    step: str

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


def _refuse_misplaced(op: object, verb: str) -> None:
    """Raise a GraphError for what is no operator, or cannot follow one pipe and give one."""
    if not isinstance(op, Op):
        raise GraphError(
            f"{verb} takes an operator object, and got {op!r}",
            where=find_call_site(),
            hint=f'pipe.{verb}(ps.Filter(col("price") > 0)); for a function use the verb: pipe.map(fn)',
        )
    hint = {
        "Source": "start another pipe: graph.add_source(source)",
        "StreamJoin": "attach it with graph.operator(join, inputs=[left, right])",
        "Split": "attach it with graph.operator(split, inputs=[pipe]), which gives every branch",
        "Process": "attach it with pipe.process(op) or graph.operator(op, inputs=[...])",
    }.get(type(op).__name__)
    if hint is not None and (op.ports != (IN,) or isinstance(op, Split)):
        raise GraphError(
            f"{type(op).__name__} cannot stand behind one pipe and give one",
            step=op.name,
            where=find_call_site(),
            hint=hint,
        )
