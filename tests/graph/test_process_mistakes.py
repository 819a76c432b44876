"""Operators with a driver loop of their own, and graph.operator, used wrongly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import FunctionError, GraphError, SchemaError
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import trades

ONE = {"n": "int64"}
OTHER = trades(ps.PipeGraph("other"))
WRONG: Any = 3


class Loop(ps.ProcessOperator):
    """One input, one output."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": ONE}

    async def process(self, ctx: ps.Context) -> None:
        raise AssertionError("never run here")


class Loopless(ps.ProcessOperator):
    outputs: ClassVar[Mapping[str, Any]] = {"out": ONE}


class Outless(Loop):
    outputs: ClassVar[Mapping[str, Any]] = {}


class Pair(Loop):
    inputs = ("left", "right")


class Fork(Loop):
    outputs: ClassVar[Mapping[str, Any]] = {"small": ONE, "large": ONE}


class LimitedLoop(Loop):
    control = ("limit",)


class Textual(Loop):
    inputs = "in"  # type: ignore[assignment]  # the mistake


class Inless(Loop):
    inputs = ()


class Twins(Loop):
    inputs = ("a",)
    control = ("a",)


class ListedLoop(Loop):
    outputs = ("out",)  # type: ignore[assignment]  # the mistake


MISTAKES = [
    Mistake("a class for an object", lambda p: p.process(Loop), GraphError,
            "is not an operator with its own loop", "process", also="give an object, not the class"),
    Mistake("what is no operator", lambda p: p.process(WRONG), GraphError,
            "3 is not an operator with its own loop", "process", also="subclass ps.ProcessOperator"),
    Mistake("a class in graph.operator", lambda p: p.graph.operator(Loop, inputs=[p]), GraphError,
            "is not an operator with its own loop", "process"),
    Mistake("no loop", lambda p: p.process(Loopless()), GraphError, "Loopless has no driver loop", "process",
            also="async def process"),
    Mistake("no outputs", lambda p: p.process(Outless()), SchemaError, "Outless declares no outputs",
            "process",
            also="outputs ="),
    Mistake("several inputs", lambda p: p.process(Pair()), FunctionError, "Pair has inputs left, right",
            "process", also="graph.operator"),
    Mistake("several outputs", lambda p: p.process(Fork()), FunctionError, "Fork has outputs small, large",
            "process", also="graph.operator"),
    Mistake("too few inputs", lambda p: p.graph.operator(Pair(), inputs=[p], name="pair"), GraphError,
            "1 inputs were given, and the operator has 2: left, right", "pair"),
    Mistake("too many inputs", lambda p: p.graph.operator(Loop(), inputs=[p, p]), GraphError,
            "2 inputs were given, and the operator has 1: in", "process"),
    Mistake("one input for a join", lambda p: p.graph.operator(ps.StreamJoin("n", "1 s", name="j"),
            inputs=[p]),
            GraphError, "1 inputs were given, and the operator has 2", "j"),
    Mistake("control where there is none", lambda p: p.graph.operator(Loop(), inputs=[p], control=[p]),
            GraphError, "1 control inputs were given, and the operator has 0", "process", also="control ="),
    Mistake("too many control inputs",
            lambda p: p.graph.operator(LimitedLoop(), inputs=[p], control=[p, p]), GraphError,
            "2 control inputs were given, and the operator has 1", "process"),
    Mistake("inputs in one text", lambda p: p.process(Textual()), GraphError, "Textual has inputs = 'in'",
            "process", also='inputs = ("in",)'),
    Mistake("no inputs", lambda p: p.graph.operator(Inless(), inputs=[]), GraphError, "Inless has no inputs",
            "process", also="ps.read.generator"),
    Mistake("two ports of one name", lambda p: p.graph.operator(Twins(), inputs=[p]), GraphError,
            "two ports of one name: a, a", "process"),
    Mistake("outputs without schemas", lambda p: p.process(ListedLoop()), SchemaError,
            "ListedLoop declares outputs ('out',)", "process"),
    Mistake("one pipe for a list of them", lambda p: p.graph.operator(Loop(), inputs=p), GraphError,
            "operator takes pipes, and got MultiPipe", "process", also="inputs=[a, b]"),
    Mistake("a number for a pipe", lambda p: p.graph.operator(Pair(), inputs=[p, 3]), GraphError,
            "operator takes pipes, and got int", "process"),
    Mistake("another graph's pipe", lambda p: p.graph.operator(Pair(), inputs=[p, OTHER]), GraphError,
            'a pipe of graph "other" cannot feed', "process"),
    Mistake("a control pipe of another graph",
            lambda p: p.graph.operator(LimitedLoop(), inputs=[p], control=[OTHER]), GraphError,
            'a pipe of graph "other" cannot feed', "process"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_an_operator_that_cannot_be_attached_so_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_an_own_loop_has_no_policy_for_errors() -> None:
    with pytest.raises(GraphError, match='on_error="skip" is not for an operator with its own loop'):
        ps.Process(Loop(), on_error="skip")
