"""MultiPipe: a point in the graph that rows pass, with one verb per operator.

A MultiPipe never changes. A verb adds a step and gives the pipe behind it; using one pipe twice sends
every row both ways. The verbs are kept by topic in `transforms.py`, `joins.py` and `flows.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.errors import GraphError
from penstock.graph.run import to_spark
from penstock.graph.verbs.flows import Flows
from penstock.graph.verbs.joins import Joins
from penstock.graph.verbs.rows import Transforms
from penstock.operators.op import ERRORS, IN, LATE, LATE_RIGHT, OUT, Op
from penstock.operators.sink import Sink
from penstock.operators.split import Split
from penstock.operators.stream import Stream
from penstock.plan.plan import Input, Ref

if TYPE_CHECKING:
    from penstock.engines.protocol import Engine
    from penstock.graph.pipegraph import PipeGraph


class MultiPipe(Transforms, Joins, Flows):
    """A stream in the making; see the verbs for what can be done with it."""

    __slots__ = ("_feeds", "_graph", "_stream")

    def __init__(self, graph: PipeGraph, feeds: tuple[Ref, ...], stream: Stream | None = None) -> None:
        self._graph = graph
        self._feeds = feeds
        first = feeds[0]
        self._stream = stream or graph.steps[first.step].outputs.get(first.port)

    @property
    def graph(self) -> PipeGraph:
        """The graph this pipe belongs to."""
        return self._graph

    @property
    def feeds(self) -> tuple[Ref, ...]:
        """The output ports that flow here; several when pipes were merged."""
        return self._feeds

    @property
    def stream(self) -> Stream:
        """Columns, time and key of the rows here."""
        if self._stream is None:
            step = self._feeds[0].step
            raise GraphError(
                f'nothing comes after sink "{step}"',
                step=step,
                where=find_call_site(),
                hint="put the verb on the pipe before the sink",
            )
        return self._stream

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows here."""
        return self.stream.schema

    @property
    def late(self) -> MultiPipe:
        """Rows that came too late for the step that made this pipe."""
        return self._side(
            LATE, "only windows, joins, accumulate and steps with state= on timed streams have late rows"
        )

    @property
    def late_right(self) -> MultiPipe:
        """Rows of the right side that came too late for the join that made this pipe."""
        return self._side(LATE_RIGHT, "only joins have late rows of a right side")

    @property
    def errors(self) -> MultiPipe:
        """Rows that failed in the step that made this pipe, with the reason."""
        return self._side(ERRORS, 'a step sends failed rows there when it is given on_error="dead_letter"')

    def add(self, op: Op) -> MultiPipe:
        """Add an operator object as a stage of its own."""
        _refuse_elsewhere(op, "add")
        return self._then(lambda: op, stem=op.verb, name=op.name, fuse=False)

    def chain(self, op: Op) -> MultiPipe:
        """Fuse an operator object with the step before it where the rules allow, else add it."""
        _refuse_elsewhere(op, "chain")
        return self._then(lambda: op, stem=op.verb, name=op.name, fuse=True)

    def collect(self, engine: str | Engine = "local", **options: Any) -> pa.Table:
        """Run what is upstream of this pipe, write no sink, and give the rows as a table."""
        (table,) = self._graph.collect(self, engine=engine, **options)
        return table

    def to_spark(self, session: Any = None) -> Any:
        """The rows here as a DataFrame of Spark, in `session` or in the one that is running.

        What is upstream is run now if it ends. On a stream (`ps.read.spark`) the DataFrame is one too; steps
        that keep state are refused there.
        """
        return to_spark(self._graph.plan(self), self._feeds, session)

    def as_input(self, port: str, graph: PipeGraph, *, control: bool = False) -> Input:
        """This pipe as what feeds a port of a step of `graph`."""
        if self._graph is not graph:
            raise GraphError(
                f'a pipe of graph "{self._graph.name}" cannot feed a step of graph "{graph.name}"',
                hint="build both in one PipeGraph",
            )
        return Input(port, self._feeds, self.stream, control)

    def _then(
        self, make: Callable[[], Op], *, stem: str, name: str | None, fuse: bool | None = None
    ) -> MultiPipe:
        """The pipe behind a new step."""
        inputs = (self.as_input(IN, self._graph),)
        step = self._graph.steps.add(make, stem=stem, name=name, inputs=inputs, fuse=fuse)
        made = self._graph.steps[step]
        port = OUT if OUT in made.outputs or isinstance(made.op, Sink) else next(iter(made.outputs))
        return MultiPipe(self._graph, (Ref(step, port),))

    def _side(self, port: str, who: str) -> MultiPipe:
        if len(self._feeds) > 1:
            raise GraphError(
                f"a merged pipe has no .{port} of its own",
                where=find_call_site(),
                hint=f"take .{port} before the merge",
            )
        step = self._graph.steps[self._feeds[0].step]
        if port not in step.outputs:
            raise GraphError(
                f'step "{step.name}" has no .{port}', step=step.name, where=find_call_site(), hint=who
            )
        return MultiPipe(self._graph, (Ref(step.name, port),))

    def __repr__(self) -> str:
        columns = (
            ", ".join(f"{field.name}: {field.type}" for field in self._stream.schema) if self._stream else "-"
        )
        return f"MultiPipe({' + '.join(map(str, self._feeds))}: {columns})"


def _refuse_elsewhere(op: object, verb: str) -> None:
    """What cannot stand behind one pipe: no operator at all, or one with other ports."""
    if not isinstance(op, Op):
        raise GraphError(
            f"{verb} takes an operator object, and got {op!r}",
            where=find_call_site(),
            hint=f'pipe.{verb}(ps.Filter(col("price") > 0)); for a function use the verb: pipe.map(fn)',
        )
    hint = {
        "Source": "start another pipe: graph.add_source(source)",
        "WindowJoin": "attach it with graph.operator(join, inputs=[left, right])",
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
