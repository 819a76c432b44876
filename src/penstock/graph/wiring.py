"""Match pipes with the ports of an operator, by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import GraphError
from penstock.graph.multipipe import MultiPipe
from penstock.operators.op import Op
from penstock.operators.process import Process
from penstock.operators.split import Split
from penstock.plan.step import Input

if TYPE_CHECKING:
    from penstock.graph.pipegraph import PipeGraph


def not_a_pipe(given: object, verb: str) -> GraphError:
    """The error for something else where a pipe belongs."""
    hints = {
        "collect": "graph.collect(views, views.late)",
        "operator": "graph.operator(op, inputs=[a, b], control=[c])",
    }
    return GraphError(f"{verb} takes pipes, and got {type(given).__name__}", hint=hints[verb])


def wire(
    op: Op, inputs: Sequence[MultiPipe], control: Sequence[MultiPipe], graph: PipeGraph
) -> tuple[Input, ...]:
    """Match pipes with ports by position."""
    n_control = len(op.operator.control) if isinstance(op, Process) else 0
    ports = op.ports[: len(op.ports) - n_control]
    for given in (inputs, control):
        if not isinstance(given, Sequence):
            raise not_a_pipe(given, "operator")
        for pipe in given:
            if not isinstance(pipe, MultiPipe):
                raise not_a_pipe(pipe, "operator")
    if len(inputs) != len(ports):
        raise GraphError(
            f"{len(inputs)} inputs were given, and the operator has {len(ports)}: {', '.join(ports)}",
            hint="give one pipe per input port, in order",
        )
    if len(control) > n_control:
        raise GraphError(
            f"{len(control)} control inputs were given, and the operator has {n_control}",
            hint='declare them in the class: control = ("limit",)',
        )
    whole = [pipe._one_operator() if isinstance(op, Split) else pipe for pipe in inputs]
    fed = [pipe.as_input(port, graph) for port, pipe in zip(ports, whole, strict=True)]
    fed += [
        pipe.as_input(port, graph, control=True)
        for port, pipe in zip(op.ports[len(ports) :], control, strict=False)
    ]
    return tuple(fed)
