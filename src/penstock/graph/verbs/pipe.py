"""A point in the graph that rows pass, as the verbs see it, and how a verb adds a step behind it.

Every verb ends in `add_step`: it refuses options that do not exist, makes the operator, and returns the pipe
behind the new step. A keyword of a verb that also names columns, branches or windows is an option only if it
is called like one and its value is none of these: `with_columns(name=col("a"))` computes a column `name`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from penstock.caller import find_call_site
from penstock.errors import GraphError, nearest_first
from penstock.expr import Expr
from penstock.graph.steps import locate_errors
from penstock.operators.op import IN, OUT, Op
from penstock.operators.sink import Sink
from penstock.operators.stream import Stream
from penstock.options import StepOptions
from penstock.plan.plan import Input, Ref

if TYPE_CHECKING:
    from penstock.graph.pipegraph import PipeGraph

STEP_OPTIONS = tuple(StepOptions.__annotations__)


class Pipe:
    """The base of the verbs: graph, feeds and stream of one point, which never change."""

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

    def as_input(self, port: str, graph: PipeGraph, *, control: bool = False) -> Input:
        """Returns this pipe as what feeds a port of a step of `graph`."""
        if self._graph is not graph:
            raise GraphError(
                f'a pipe of graph "{self._graph.name}" cannot feed a step of graph "{graph.name}"',
                hint="build both in one PipeGraph",
            )
        return Input(port, self._feeds, self.stream, control)

    def _add_step(self, kind: type[Op], *arguments: object, **options: Any) -> Self:
        """Adds a step with an operator of this kind and returns the pipe behind it."""
        refuse_unknown(kind.verb, options)
        return self._add_op(lambda: kind(*arguments, **options), stem=kind.verb, name=options.get("name"))

    def _add_op(
        self, make: Callable[[], Op], *, stem: str, name: str | None, fuse: bool | None = None
    ) -> Self:
        """Adds the operator that `make` gives as a step and returns the pipe behind it."""
        inputs = (self.as_input(IN, self._graph),)
        step = self._graph.steps.add(make, stem=stem, name=name, inputs=inputs, fuse=fuse)
        outputs = self._graph.steps[step].outputs
        is_sink = isinstance(self._graph.steps[step].op, Sink)
        return self._at(step, OUT if OUT in outputs or is_sink else next(iter(outputs)))

    def _at(self, step: str, port: str = OUT) -> Self:
        return type(self)(self._graph, (Ref(step, port),))


def refuse_unknown(verb: str, options: Mapping[str, object], known: Iterable[str] = STEP_OPTIONS) -> None:
    """Raises a GraphError that names the nearest option, for an option that does not exist."""
    for name in options:
        if name not in known:
            names = nearest_first(name, known)
            meant = f"did you mean {names[0]}=?"
            if isinstance(options[name], Expr):
                meant = f"for a column: .with_columns({name}=...)"
            raise GraphError(
                f"{verb} has no option {name}=",
                step=str(options.get("name") or verb),
                where=find_call_site(),
                detail=f"the options are {', '.join(names)}",
                hint=meant,
            )


def split_options(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the columns and the options of a verb that takes both as keywords."""
    options = {
        name: value
        for name, value in keywords.items()
        if name in STEP_OPTIONS and not isinstance(value, Expr)
    }
    return {name: value for name, value in keywords.items() if name not in options}, options


def locate_verb(verb: str, options: Mapping[str, Any]) -> Any:
    """Returns the context in which errors of a verb are given its step and the user's line."""
    return locate_errors(options.get("name") or verb, find_call_site())
