"""Columns that are not there, have the wrong type, or come twice: each verb says so as it is written."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import FunctionError, GraphError, SchemaError, TimeError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import TRADES, trades

SEVEN: Any = 7
MINUTE = ps.tumbling("1 min")
W = "with_columns"
ROWS = ps.read.rows([], schema=TRADES)

UNKNOWN = [
    Mistake("with_columns", lambda p: p.with_columns(total=col("prise") * 2), SchemaError, '"prise"', W),
    Mistake("filter", lambda p: p.filter(col("prise") > 2), SchemaError, '"prise"', "filter"),
    Mistake("flat_map", lambda p: p.flat_map(tag=col("prise")), SchemaError, '"prise"', "flat_map"),
    Mistake("select", lambda p: p.select("user", "prise"), SchemaError, '"prise"', "select"),
    Mistake("select computed", lambda p: p.select(x=col("prise")), SchemaError, '"prise"', "select"),
    Mistake("key_by", lambda p: p.key_by("prise"), SchemaError, '"prise"'),
    Mistake("key_by computed", lambda p: p.key_by(big=col("prise") > 9), SchemaError, '"prise"', W),
    Mistake("split", lambda p: p.split(a=col("prise") > 1, b=col("n") > 1), SchemaError, '"prise"', "split"),
    Mistake("split by index", lambda p: p.split(col("prise"), 2), SchemaError, '"prise"', "split"),
    Mistake(
        "aggregate",
        lambda p: p.window(MINUTE).aggregate(x=ps.sum("prise")),
        SchemaError,
        '"prise"',
        "window",
    ),
    Mistake(
        "count of a column",
        lambda p: p.window(MINUTE).aggregate(x=ps.count("prise")),
        SchemaError,
        '"prise"',
        "window",
    ),
    Mistake(
        "fold",
        lambda p: p.window(MINUTE).aggregate(
            x=ps.fold(lambda row: 1, lambda a, b: a + b, 0, columns="prise", type="int64")
        ),
        SchemaError,
        '"prise"',
        "window",
    ),
    Mistake(
        "join on a column",
        lambda p: p.join(p.with_columns(n=col("n")), on="prise", within="1 s", suffix="_r"),
        SchemaError,
        '"prise"',
        "join",
    ),
    Mistake(
        "join on a band",
        lambda p: p.join(p.with_columns(n=col("n")), on=ps.band("prise", 2), within="1 s", suffix="_r"),
        SchemaError,
        '"prise"',
        "join",
    ),
    Mistake(
        "join on a column of the right",
        lambda p: p.join(
            p.with_columns(n=col("n")), on=ps.equal("price", "prise"), within="1 s", suffix="_r"
        ),
        SchemaError,
        '"prise"',
        "join",
    ),
    Mistake(
        "table join",
        lambda p: p.join_table([{"prise": 1.0, "label": "x"}], on="prise"),
        SchemaError,
        '"prise"',
        "join_table",
    ),
    Mistake(
        "operator object with its own key",
        lambda p: p.add(ps.Filter(col("n") > 0, key="prise")),
        SchemaError,
        '"prise"',
        "filter",
    ),
]


@pytest.mark.parametrize("mistake", UNKNOWN, ids=str)
def test_an_unknown_column_is_named_and_the_nearest_one_is_offered_first(mistake: Mistake) -> None:
    error = check_refusal(mistake)
    assert error.detail is not None
    assert "price" in str(error.hint)
    assert "the columns are price, " in error.detail or "in x=" in error.detail


def test_an_unknown_column_of_the_joined_table_lists_the_columns_of_the_table() -> None:
    with pytest.raises(SchemaError) as caught:
        trades().join_table([{"users": "ada", "label": "x"}], on="user")
    assert caught.value.detail == "the columns are users, label"
    assert caught.value.hint == 'did you mean "users"?'


WRONG_TYPES = [
    Mistake(
        "a number compared with text", lambda p: p.filter(col("n") > "9"), SchemaError, "mixes", "filter"
    ),
    Mistake("arithmetic on text", lambda p: p.with_columns(x=col("user") * 2), SchemaError, "string", W),
    Mistake("a filter by a number", lambda p: p.filter(col("n")), SchemaError, "true or false", "filter"),
    Mistake(
        "a branch by a number",
        lambda p: p.split(a=col("n"), b=col("paid")),
        SchemaError,
        'branch "a" must be true or false',
        "split",
    ),
    Mistake("an index that is a float", lambda p: p.split(col("price"), 2), SchemaError, "index", "split"),
    Mistake(
        "rows of what is no list",
        lambda p: p.flat_map(user=col("user")),
        SchemaError,
        "flat_map needs a list",
        "flat_map",
    ),
    Mistake("a list as key", lambda p: p.key_by("tags"), SchemaError, "cannot be a key"),
    Mistake(
        "text as time", lambda p: p.graph.source(ROWS, time="user"), TimeError, "cannot be time", "source"
    ),
]


@pytest.mark.parametrize("mistake", WRONG_TYPES, ids=str)
def test_a_column_of_the_wrong_type_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


NOT_NAMES = [
    Mistake("an expression", lambda p: p.key_by(col("user")), SchemaError, "is not the name of a column"),
    Mistake(
        "a list", lambda p: p.key_by(["user", "n"]), SchemaError, "['user', 'n'] is not", also='"user", "n"'
    ),
    Mistake("a column twice", lambda p: p.key_by("user", "user"), SchemaError, "twice: user, user"),
    Mistake("nothing", lambda p: p.key_by(), GraphError, "key_by needs a column"),
    Mistake("a column selected twice", lambda p: p.select("n", "n"), SchemaError, '"n" twice', "select"),
    Mistake(
        "select what has no name",
        lambda p: p.select(col("n") + 1),
        FunctionError,
        "which has no name",
        "select",
        '.select(n=col("n") + 1)',
    ),
    Mistake("select a list", lambda p: p.select(["n"]), FunctionError, "by name", "select", ".select('n')"),
    Mistake("half a letter", lambda p: p.with_columns({"\ud800": col("n")}), SchemaError, "cannot name", W),
    Mistake(
        "half a letter of a result",
        lambda p: p.window(ps.tumbling("1 s")).aggregate({"\ud800": ps.count()}),
        SchemaError,
        "cannot name",
        "window",
    ),
    Mistake("and computed", lambda p: p.select("n", n=col("n") + 1), SchemaError, '"n" twice', "select"),
]


@pytest.mark.parametrize("mistake", NOT_NAMES, ids=str)
def test_what_cannot_name_columns_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_a_key_that_names_no_column_is_refused_by_the_operator_itself() -> None:
    with pytest.raises(GraphError, match="key=7 is not a column"):
        ps.Filter(col("paid"), key=SEVEN)
    with pytest.raises(GraphError, match="not a column, or several different ones"):
        ps.Filter(col("paid"), key=("user", "user"))


RESULTS = [
    Mistake(
        "an aggregate named like the key",
        lambda p: p.key_by("user").window(MINUTE).aggregate(user=ps.count()),
        SchemaError,
        'column "user" comes twice',
        "window",
        also="the key and once from the results",
    ),
    Mistake(
        "an aggregate named like a window column",
        lambda p: p.window(MINUTE).aggregate(window_start=ps.count()),
        SchemaError,
        '"window_start" comes twice',
        "window",
    ),
    Mistake(
        "a key called window_end",
        lambda p: (
            p.with_columns(window_end=col("n")).key_by("window_end").window(MINUTE).aggregate(c=ps.count())
        ),
        SchemaError,
        '"window_end" comes twice',
        "window",
    ),
    Mistake(
        "a result called final, with early results",
        lambda p: p.window(MINUTE, early="1 s").aggregate(final=ps.count()),
        SchemaError,
        '"final" comes twice',
        "window",
    ),
    Mistake(
        "a state column named like the key",
        lambda p: p.key_by("user").accumulate(lambda row, s: s, 0, schema={"user": "int64"}),
        SchemaError,
        '"user" comes twice',
        "accumulate",
    ),
    Mistake(
        "a column called error, with dead letters",
        lambda p: p.with_columns(error=col("n")).filter(col("paid"), on_error="dead_letter"),
        SchemaError,
        'get a column "error"',
        "filter",
    ),
]


@pytest.mark.parametrize("mistake", RESULTS, ids=str)
def test_names_that_clash_in_a_result_are_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_an_unsigned_64_bit_column_never_gets_into_a_graph() -> None:
    with pytest.raises(SchemaError, match="uint64"):
        ps.read.rows([], schema=pa.schema([("n", pa.uint64())]))
