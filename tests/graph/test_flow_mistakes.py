"""Splits, merges, sinks, names and side outputs that do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

import penstock as ps
from penstock import GraphError, SchemaError, TimeError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import TRADES, timeless, trades

PAID, OPEN = col("paid"), ~col("paid")
OTHER = trades(ps.PipeGraph("other"))
WRONG: Any = 3  # an argument of the wrong type

SPLITS: list[Mistake] = [
    Mistake("one branch", lambda p: p.split(lambda row: 0, 1), GraphError,
            "two branches or more, and got 1", "split"),
    Mistake("one named branch", lambda p: p.split(paid=PAID), GraphError, "two branches or more, and got 1",
            "split"),
    Mistake("neither form", lambda p: p.split(), GraphError, "a function and a number of branches, or",
            "split"),
    Mistake("both forms", lambda p: p.split(lambda row: 0, 2, a=PAID), GraphError,
            "a function and a number", "split"),
    Mistake("no number", lambda p: p.split(lambda row: 0), GraphError, "a function and a number", "split"),
    Mistake("a text for a number", lambda p: p.split(lambda row: 0, "2"), GraphError,
            "'2' is not a number of branches", "split"),
    Mistake("a branch that is no expression", lambda p: p.split(a=PAID, b=True), GraphError,
            'branch "b" is given True', "split"),
    Mistake("a branch by a function", lambda p: p.split(a=lambda row: True, b=PAID), GraphError,
            'branch "a" is given <function', "split", also="split(fn, 2)"),
    Mistake("a branch called errors", lambda p: p.split(errors=PAID, rest=OPEN), GraphError,
            'a branch cannot be called "errors"', "split"),
    Mistake("a branch called late", lambda p: p.split(late=PAID, rest=OPEN), GraphError,
            'a branch cannot be called "late"', "split"),
    Mistake("an unknown branch", lambda p: p.split(paid=PAID, open=OPEN, name="s")["payd"], GraphError,
            "there is no branch 'payd'", "s", also='did you mean "paid"?'),
    Mistake("an index too far", lambda p: p.split(lambda row: 0, 2, name="s")[2], GraphError,
            "there is no branch 2", "s", also="the branches are 0, 1"),
    Mistake("a split as a stage", lambda p: p.add(ps.Split(lambda row: 0, 2)), GraphError,
            "Split cannot stand behind one pipe", also="graph.operator"),
]  # fmt: skip


def reorder(pipe: ps.MultiPipe) -> ps.MultiPipe:
    """The same columns in another order."""
    return pipe.select(*reversed(TRADES.names))


def by_day(pipe: ps.MultiPipe) -> ps.MultiPipe:
    """The same columns with another time."""
    return pipe.graph.source(ps.read.rows([], schema=TRADES), time="day", delay="1 d", name="by day")


MERGES: list[Mistake] = [
    Mistake("other columns", lambda p: p.merge(p.select("user")), SchemaError, "the same columns",
            also="only the first has item: string, price: double"),
    Mistake("more columns", lambda p: p.merge(p.with_columns(x=col("n"))), SchemaError, "the same columns",
            also="only the second has x: int64"),
    Mistake("another type", lambda p: p.merge(p.with_columns(n=col("price"))), SchemaError,
            "the same columns", also="only the second has n: double"),
    Mistake("another order", lambda p: p.merge(reorder(p)), SchemaError, "the same columns",
            also="in another order"),
    Mistake("time and none", lambda p: p.merge(timeless(p.graph)), TimeError,
            "must agree on time: timestamp[us] meets none"),
    Mistake("two times", lambda p: p.merge(by_day(p)), TimeError, "timestamp[us] meets date32[day]"),
    Mistake("itself", lambda p: p.merge(p), GraphError, "cannot be merged with itself"),
    Mistake("one of several is itself", lambda p: p.merge(p.filter(PAID), p), GraphError, "with itself"),
    Mistake("another graph's pipe", lambda p: p.merge(OTHER), GraphError,
            'a pipe of graph "other" cannot feed a step of graph "shop"'),
    Mistake("nothing", lambda p: p.merge(), GraphError, "merge needs another pipe"),
    Mistake("what is no pipe", lambda p: p.merge(WRONG), GraphError, "merge takes other pipes, and got int"),
    Mistake("a sink", lambda p: p.merge(p.sink(ps.write.memory())), GraphError, "and got SinkHandle"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", SPLITS, ids=str)
def test_a_split_that_cannot_be_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


@pytest.mark.parametrize("mistake", MERGES, ids=str)
def test_a_merge_that_cannot_be_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


AFTER_SINKS: list[Mistake] = [
    Mistake("a verb", lambda p: p.sink(ps.write.memory(), name="end").with_columns(x=col("n")), GraphError,
            'nothing comes after a sink: .with_columns on sink "end"', "end"),
    Mistake("a verb on a Sink object", lambda p: p.add(ps.Sink(ps.write.memory(), name="end")).select("n"),
            GraphError, 'nothing comes after sink "end"', "end"),
    Mistake("its columns", lambda p: p.add(ps.Sink(ps.write.memory(), name="end")).schema, GraphError,
            'nothing comes after sink "end"', "end"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", AFTER_SINKS, ids=str)
def test_nothing_comes_after_a_sink(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_a_sink_found_by_name_has_no_verbs_either() -> None:
    pipe = trades()
    pipe.sink(ps.write.memory(), name="end")
    with pytest.raises(GraphError, match='nothing comes after sink "end"'):
        pipe.graph["end"].filter(PAID)
    with pytest.raises(GraphError, match='nothing comes after sink "end"'):
        pipe.graph["end"].collect("reference")


NAMES: list[Mistake] = [
    Mistake("a name twice", lambda p: p.filter(PAID, name="trades"), GraphError,
            'there are two steps named "trades"', "trades",
            also="the first one is at tests/support/trades.py"),
    Mistake("a number as name", lambda p: p.filter(PAID, name=WRONG), GraphError, "3 cannot name a step",
            "3"),
    Mistake("an empty name", lambda p: p.filter(PAID, name=" "), GraphError, "' ' cannot name a step", " "),
    Mistake("a line break in a name", lambda p: p.filter(PAID, name="a\nb"), GraphError,
            "'a\\nb' cannot name a step", "a\nb"),
    Mistake("an unknown step", lambda p: p.graph["trade"], GraphError, 'there is no step "trade"',
            also='did you mean "trades"?'),
    Mistake("a graph without a name", lambda p: ps.PipeGraph(""), GraphError, "a graph needs a plain name"),
    Mistake("a name of two lines", lambda p: ps.PipeGraph("a\nb"), GraphError, "a graph needs a plain name"),
    Mistake("a graph with a number", lambda p: ps.PipeGraph(WRONG), GraphError, "and got 3"),
    Mistake("an unknown composition", lambda p: ps.PipeGraph("x", composition=WRONG), GraphError,
            "composition=3 is unknown", also="'combined', 'dedicated', 'centralised'"),
    Mistake("what is no operator", lambda p: p.add(WRONG), GraphError, "add takes an operator object"),
    Mistake("a function as operator", lambda p: p.chain(len), GraphError, "chain takes an operator object"),
    Mistake("a source in the middle", lambda p: p.add(ps.Source(ps.read.rows([{"n": 1}]))), GraphError,
            "Source cannot stand behind one pipe", also="add_source"),
    Mistake("a join behind one pipe", lambda p: p.add(ps.StreamJoin("n", "1 s")), GraphError,
            "StreamJoin cannot stand behind one pipe", also="graph.operator"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", NAMES, ids=str)
def test_a_step_needs_a_name_and_a_place_of_its_own(mistake: Mistake) -> None:
    check_refusal(mistake)


SIDES: list[Mistake] = [
    Mistake("late rows of a filter", lambda p: p.filter(PAID).late, GraphError, 'step "filter" has no .late',
            "filter", also="windows, joins"),
    Mistake("late rows of a source", lambda p: p.late, GraphError, 'step "trades" has no .late', "trades"),
    Mistake("late rows of a right side", lambda p: p.late_right, GraphError, "no .late_right", "trades"),
    Mistake("errors of a step that fails", lambda p: p.filter(PAID).errors, GraphError,
            'step "filter" has no .errors', "filter", also='on_error="dead_letter"'),
    Mistake("late rows of a merged pipe", lambda p: p.merge(p.filter(PAID)).late, GraphError,
            "a merged pipe has no .late"),
    Mistake("late rows of state without time",
            lambda p: timeless().key_by("user").accumulate(lambda r, s: s, 0, schema={"c": "int64"}).late,
            GraphError, 'step "accumulate" has no .late', "accumulate"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", SIDES, ids=str)
def test_a_side_output_that_is_not_there_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


class Limiter(ps.ProcessOperator):
    """An operator with a control port."""

    outputs: ClassVar[Mapping[str, Any]] = {"out": {"n": "int64"}}
    control = ("limit",)

    async def process(self, ctx: ps.Context) -> None:
        raise AssertionError("never run here")


LOOPS: list[tuple[str, Callable[[ps.MultiPipe], object], type[ps.PenstockError], str]] = [
    ("a data port", lambda p: p.feed_back("limiter", "in"), GraphError, 'port "in" of step "limiter" cannot'),
    ("a step without control", lambda p: p.feed_back("trades", "in"), GraphError,
            'port "in" of step "trades"'),
    ("a port that is not there", lambda p: p.feed_back("limiter", "x"), GraphError,
            'port "x" of step "limiter"'),
    ("an unknown step", lambda p: p.feed_back("limitr", "limit"), GraphError, 'there is no step "limitr"'),
    ("other columns than before", lambda p: p.with_columns(m=col("n")).feed_back("limiter", "limit"),
     SchemaError, "is fed rows of other columns already"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "build", "kind", "fact"), LOOPS, ids=[loop[0] for loop in LOOPS])
def test_a_loop_closes_only_through_a_control_port(
    mistake: str, build: Callable[[ps.MultiPipe], object], kind: type[ps.PenstockError], fact: str
) -> None:
    pipe = trades().process(Limiter(), name="limiter")
    pipe.feed_back("limiter", "limit")
    with pytest.raises(ps.PenstockError) as caught:
        build(pipe)
    assert type(caught.value) is kind
    assert fact in caught.value.fact
    assert caught.value.hint
    assert str(caught.value.where).startswith("tests/graph/test_flow_mistakes.py:")
