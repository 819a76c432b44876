"""A point in the graph that rows pass, as the verbs see it, and how a verb adds a step behind it.

Every verb ends in `_add_step` or `_add_op`: they refuse options that do not exist, make the operator, and
return the pipe behind the new step. A keyword of a verb that also names columns, branches or windows is an
option only if it is called like one and its value is none of these: `with_columns(name=col("a"))` computes a
column `name`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from penstock.caller import find_call_site
from penstock.errors import GraphError, nearest_first
from penstock.expr import Expr
from penstock.operators.ends import Sink
from penstock.operators.op import IN, OUT, Op, Stream
from penstock.options import StepOptions
from penstock.plan.plan import Input, Ref

if TYPE_CHECKING:
    from penstock.graph.pipegraph import PipeGraph

STEP_OPTIONS = tuple(StepOptions.__annotations__)


class Pipe:
    """The base of the verbs: one point of a graph.

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


def refuse_unknown(verb: str, options: Mapping[str, object], known: Iterable[str] = STEP_OPTIONS) -> None:
    """Raise a GraphError that names the nearest option, for an option that does not exist."""
    for name, value in options.items():
        if name not in known:
            names = nearest_first(name, known)
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


def split_options(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns and the options of a verb that takes both as keywords."""
    options = {
        name: value
        for name, value in keywords.items()
        if name in STEP_OPTIONS and not isinstance(value, Expr)
    }
    return {name: value for name, value in keywords.items() if name not in options}, options
