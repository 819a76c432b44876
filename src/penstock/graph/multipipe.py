"""MultiPipe: a point in the graph that rows pass, with one verb per operator.

A MultiPipe never changes. A verb adds a step and returns the pipe behind it; using one pipe twice sends
every row both ways. The verbs are kept by topic in `verbs/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from penstock.caller import find_call_site
from penstock.errors import GraphError
from penstock.graph.run import to_spark
from penstock.graph.verbs.flows import FlowVerbs
from penstock.graph.verbs.rows import RowVerbs
from penstock.graph.verbs.windows import WindowVerbs
from penstock.operators.op import ERRORS, IN, LATE, LATE_RIGHT, Op
from penstock.operators.rows import Split
from penstock.options import CollectSettings
from penstock.plan.plan import Ref

if TYPE_CHECKING:
    from penstock.engines.protocol import Engine


class MultiPipe(RowVerbs, WindowVerbs, FlowVerbs):
    """A stream under construction; see the verbs for what can be done with it."""

    __slots__ = ()

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the rows here."""
        return self.stream.schema

    @property
    def late(self) -> MultiPipe:
        """Rows that came too late for the step that made this pipe."""
        return self._side_output(
            LATE, "only windows, joins, accumulate and steps with state= on timed streams have late rows"
        )

    @property
    def late_right(self) -> MultiPipe:
        """Rows of the right side that came too late for the join that made this pipe."""
        return self._side_output(LATE_RIGHT, "only joins have late rows of a right side")

    @property
    def errors(self) -> MultiPipe:
        """Rows that failed in the step that made this pipe, with the reason."""
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

    def collect(self, engine: str | Engine | None = None, **settings: Unpack[CollectSettings]) -> pa.Table:
        """Run what is upstream of this pipe, write no sink, and return the rows as a table."""
        (table,) = self.graph.collect(self, engine=engine, **settings)
        return table

    def to_spark(self, session: Any = None) -> Any:
        """Return the rows here as a DataFrame of Spark, in `session` or in the one that is running.

        What is upstream is run now if it ends. On a stream (`ps.read.spark`) the DataFrame is one too; steps
        that keep state are refused there.
        """
        return to_spark(self.graph.plan(self), self.feeds, session)

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
