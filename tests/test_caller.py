"""The user's own line and functions, as errors name them."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import penstock as ps
from penstock.caller import find_call_site, find_definition, name_of
from tests.support.trades import TRADES


def line() -> int:
    """The line that calls this."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def plain(row: Any) -> Any:
    return row


class Scorer:
    def __call__(self, row: Any) -> Any:
        return row


def test_a_step_knows_the_line_that_wrote_it() -> None:
    graph = ps.PipeGraph("shop")
    graph.source(ps.read.rows([], schema=TRADES), name="trades")
    wrote = line() - 1
    where = graph.steps["trades"].where
    assert where is not None
    assert (where.file, where.line) == ("tests/test_caller.py", wrote)


def test_each_verb_of_a_chain_knows_its_own_line() -> None:
    graph = ps.PipeGraph("shop")
    first = line() + 1
    pipe = (
        graph.source(ps.read.rows([], schema=TRADES), name="a")
        .filter(ps.col("paid"), name="b")
        .with_columns(x=ps.col("n"), name="c")
    )
    places = [step.where.line for step in pipe.graph.steps.values() if step.where is not None]
    assert places == sorted(set(places))
    assert all(first < place <= first + 4 for place in places)


def test_a_call_from_outside_is_found_through_our_own_frames() -> None:
    where = find_call_site()
    assert where is not None
    assert (where.file, where.line) == ("tests/test_caller.py", line() - 2)


def test_functions_are_named_and_found_where_they_are_written() -> None:
    partial = functools.partial(plain)
    assert (name_of(plain), name_of(partial), name_of(Scorer())) == ("plain", "plain", "Scorer")
    for function in (plain, partial):
        where = find_definition(function)
        assert where is not None
        assert (where.file, where.line) == ("tests/test_caller.py", plain.__code__.co_firstlineno)
    scorer = find_definition(Scorer())
    assert scorer is not None
    assert scorer.line == Scorer.__call__.__code__.co_firstlineno


def test_a_wrapped_function_is_found_where_it_was_written() -> None:
    @functools.wraps(plain)
    def wrapper(row: Any) -> Any:
        return plain(row)

    where = find_definition(wrapper)
    assert where is not None
    assert where.line == plain.__code__.co_firstlineno


def test_builtins_have_a_name_and_no_place() -> None:
    assert name_of(len) == "len"
    assert find_definition(len) is None
    assert find_definition(7) is None
