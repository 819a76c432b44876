"""Functions without a schema, without a key for their state, or in the wrong place."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import penstock as ps
from penstock import FunctionError, GraphError, SchemaError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import trades

ONE = {"n": "int64"}
THREE: Any = 3  # where a function belongs
NOTHING: Any = None
MINUTE = ps.tumbling("1 min")


def double(row: Any) -> Any:
    return {"n": row.n * 2}


NO_SCHEMA = [
    Mistake("map", lambda p: p.map(lambda row: {"n": 1}), SchemaError, "has no schema", "map"),
    Mistake("flat_map", lambda p: p.flat_map(lambda row: [row]), SchemaError, "has no schema", "flat_map"),
    Mistake("batch map", lambda p: p.map(ps.batch(lambda b: b)), SchemaError, "has no schema", "map"),
    Mistake(
        "accumulate",
        lambda p: p.key_by("user").accumulate(lambda row, state: state, 0),
        SchemaError,
        "has no schema for its state",
        "accumulate",
    ),
    Mistake(
        "apply", lambda p: p.window(MINUTE).apply(lambda rows: None), SchemaError, "has no schema", "window"
    ),
    Mistake(
        "fold",
        lambda p: p.window(MINUTE).aggregate(x=ps.fold(lambda row: 1, lambda a, b: a + b, 0)),
        SchemaError,
        "has no result type",
        "window",
    ),
]


@pytest.mark.parametrize("mistake", NO_SCHEMA, ids=str)
def test_a_function_that_does_not_declare_what_it_gives_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_an_undeclared_function_is_named_by_the_line_that_defines_it() -> None:
    with pytest.raises(SchemaError, match="row function double has no schema") as caught:
        trades().map(double)
    assert caught.value.where is not None
    assert caught.value.where.line == double.__code__.co_firstlineno


STATE = [
    Mistake(
        "map", lambda p: p.map(double, schema=ONE, state=list), GraphError, "map with state= needs", "map"
    ),
    Mistake("filter", lambda p: p.filter(double, state=list), GraphError, "filter with state=", "filter"),
    Mistake(
        "flat_map",
        lambda p: p.flat_map(double, schema=ONE, state=list),
        GraphError,
        "needs a key",
        "flat_map",
    ),
    Mistake(
        "accumulate", lambda p: p.accumulate(double, 0, schema=ONE), GraphError, "needs a key", "accumulate"
    ),
    Mistake(
        "state on a batch function",
        lambda p: p.key_by("user").map(ps.batch(lambda rows: rows, schema=ONE), state=list),
        FunctionError,
        "only a row function can keep state",
        "map",
    ),
    Mistake(
        "state on a predicate",
        lambda p: p.key_by("user").filter(col("n") > 1, state=list),
        FunctionError,
        "only a row function can keep state",
        "filter",
    ),
    Mistake(
        "state on a batch function",
        lambda p: p.key_by("user").map(ps.batch(double, schema=ONE), state=list),
        FunctionError,
        "only a row function can keep state",
        "map",
    ),
    Mistake(
        "a state that is no factory",
        lambda p: p.key_by("user").map(double, schema=ONE, state=0),
        FunctionError,
        "state=0 is not a function",
        "map",
    ),
]


@pytest.mark.parametrize("mistake", STATE, ids=str)
def test_state_needs_a_key_and_a_row_function(mistake: Mistake) -> None:
    check_refusal(mistake)


WRONG_KIND = [
    Mistake("map with nothing", lambda p: p.map(), FunctionError, "map has nothing to do", "map"),
    Mistake("flat_map with nothing", lambda p: p.flat_map(), FunctionError, "nothing to do", "flat_map"),
    Mistake("select with nothing", lambda p: p.select(), FunctionError, "keeps no column", "select"),
    Mistake(
        "a function and columns",
        lambda p: p.map(double, n=col("n")),
        FunctionError,
        'map takes a function, and n=col("n") is a column',
        "map",
        also='.with_columns(n=col("n"))',
    ),
    Mistake(
        "a function for a column",
        lambda p: p.with_columns(n=lambda row: 1),
        FunctionError,
        "column 'n' is given a function",
        "with_columns",
    ),
    Mistake(
        "a function for a selected column",
        lambda p: p.select(n=lambda row: 1),
        FunctionError,
        "column 'n' is given a function",
        "select",
    ),
    Mistake(
        "an expression without a name",
        lambda p: p.map(col("n") * 2),
        FunctionError,
        'map takes a function, and got col("n") * 2',
        "map",
        also='with_columns(total=col("n") * 2',
    ),
    Mistake(
        "text as predicate", lambda p: p.filter("n > 1"), FunctionError, "neither an expression", "filter"
    ),
    Mistake(
        "two lists at once",
        lambda p: p.flat_map(a=col("tags"), b=col("tags")),
        FunctionError,
        "one list column at a time",
        "flat_map",
    ),
    Mistake(
        "columns for map",
        lambda p: p.map({"x": col("n")}),
        FunctionError,
        "map takes a function, and got columns",
        "map",
        also=".with_columns(",
    ),
    Mistake(
        "a schema for a list column",
        lambda p: p.flat_map(schema=ONE, tag=col("tags")),
        FunctionError,
        "nothing to declare",
        "flat_map",
    ),
    Mistake(
        "a second schema",
        lambda p: p.map(ps.batch(lambda rows: rows, schema=ONE), schema=ONE),
        FunctionError,
        "nothing to declare",
        "map",
    ),
    Mistake(
        "a function among several predicates",
        lambda p: p.filter(col("n") > 1, lambda row: True),
        FunctionError,
        "one function, or any number of expressions",
        "filter",
    ),
    Mistake(
        "what is no function",
        lambda p: p.window(MINUTE).apply(3),
        FunctionError,
        "3 is neither",
        "window",
    ),
    Mistake(
        "a batch function that is none",
        lambda p: ps.batch(THREE),
        FunctionError,
        "3 is not a function",
    ),
    Mistake(
        "a fold of what is no function",
        lambda p: ps.fold(THREE, max, 0),
        FunctionError,
        "fold's lift is 3",
    ),
    Mistake(
        "a first state that cannot be copied",
        lambda p: p.key_by("user").accumulate(lambda row, state: state, threading.Lock(), schema=ONE),
        FunctionError,
        "cannot be copied, and every key begins with a copy",
        "accumulate",
    ),
    Mistake(
        "a fold of nothing",
        lambda p: ps.fold(lambda row: 1, NOTHING, 0),
        FunctionError,
        "fold's combine is None",
    ),
]


@pytest.mark.parametrize("mistake", WRONG_KIND, ids=str)
def test_a_function_of_the_wrong_kind_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def both(a: Any, b: Any) -> Any:
    return a, b


def three(a: Any, b: Any, c: Any) -> Any:
    return a, b, c


triple: Any = three
pair: Any = both  # any, because these are mistakes of type
one: Any = double


async def slow(row: Any) -> Any:
    return {"n": row.n}


CALLS = [
    Mistake("map", lambda p: p.map(pair, schema=ONE), FunctionError, "as fn(row)", "map"),
    Mistake("filter", lambda p: p.filter(pair), FunctionError, "as fn(row)", "filter"),
    Mistake("flat_map", lambda p: p.flat_map(pair, schema=ONE), FunctionError, "as fn(row)", "flat_map"),
    Mistake("split", lambda p: p.split(pair, 2), FunctionError, "as fn(row)", "split"),
    Mistake("no arguments", lambda p: p.filter(lambda: True), FunctionError, "as fn(row)", "filter"),
    Mistake(
        "map with state",
        lambda p: p.key_by("user").map(double, state=list, schema=ONE),
        FunctionError,
        "double(row: 'Any') -> 'Any' cannot be called as fn(row, state)",
        "map",
        also="let it take row and state",
    ),
    Mistake(
        "accumulate",
        lambda p: p.key_by("user").accumulate(double, 0, schema=ONE),
        FunctionError,
        "as fn(row, state)",
        "accumulate",
    ),
    Mistake(
        "join",
        lambda p: p.join(p, on=double, within="1 s", suffix="_r"),
        FunctionError,
        "as fn(left, right)",
        "join",
    ),
    Mistake(
        "apply",
        lambda p: p.window(MINUTE).apply(lambda rows, window, more: None, schema=ONE),
        FunctionError,
        "as fn(rows, window)",
        "window",
        also="'more'",
    ),
    Mistake("batch", lambda p: ps.batch(triple), FunctionError, "as fn(batch)"),
    Mistake(
        "map by batch", lambda p: p.map(ps.batch(pair, schema=ONE)), FunctionError, "as fn(batch)", "map"
    ),
    Mistake("filter by batch", lambda p: p.filter(ps.batch(pair)), FunctionError, "as fn(batch)", "filter"),
    Mistake(
        "join by batch",
        lambda p: p.join(p, on=ps.batch(one), within="1 s", suffix="_r"),
        FunctionError,
        "as fn(left, right)",
        "join",
    ),
    Mistake("fold's lift", lambda p: ps.fold(pair, pair, 0), FunctionError, "as fn(row)"),
    Mistake("fold's combine", lambda p: ps.fold(one, one, 0), FunctionError, "as fn(a, b)"),
    Mistake("fold's lower", lambda p: ps.fold(one, pair, 0, pair), FunctionError, "as fn(part)"),
    Mistake("async", lambda p: p.map(slow, schema=ONE), FunctionError, "slow is async", "map"),
]


@pytest.mark.parametrize("mistake", CALLS, ids=str)
def test_a_function_that_cannot_be_called_with_what_it_gets_is_refused_before_a_run(mistake: Mistake) -> None:
    with pytest.raises(FunctionError) as caught:
        mistake.build(trades())
    error = caught.value
    assert mistake.fact in error.fact
    assert (error.step, mistake.also in f"{error.detail} {error.hint}") == (mistake.step, True)
    assert str(error.where).startswith("tests/graph/test_function_mistakes.py:")


def test_builtins_and_functions_with_defaults_are_called_as_they_can_be() -> None:
    assert trades().filter(bool).schema == trades().schema
    assert trades().filter(lambda row, least=1: row.n > least).schema == trades().schema
