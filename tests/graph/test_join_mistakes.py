"""Joins of streams and of tables that cannot be, told before anything runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import FunctionError, GraphError, SchemaError, TimeError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import TRADES, timeless, trades

BACK = timedelta(seconds=-1)
NUMBER: Any = 3  # where a text belongs
TEXT: Any = "3"  # where a number belongs
OTHER = trades(ps.PipeGraph("other"))


def asks(pipe: ps.MultiPipe) -> ps.MultiPipe:
    """A second stream of the graph, with other columns but `user`."""
    schema = {"user": "string", "ask": "float64", "word": "string", "when": "timestamp[us]"}
    return pipe.graph.source(ps.read.rows([], schema=schema), time="when", delay="1 s", name="asks")


def ticks(pipe: ps.MultiPipe) -> ps.MultiPipe:
    """A second stream of the graph whose time is an int."""
    rows = ps.read.rows([], schema={"user": "string", "moment": "int64"})
    return pipe.graph.source(rows, time="moment", time_unit="ms", delay="1 s", name="ticks")


def distance(left: Any, right: Any) -> float:
    """A function that gives no answer."""
    return float(left.price - right.ask)


def both(left: Any, right: Any) -> Any:
    """A function of two batches."""
    return left, right


JOINS: list[Mistake] = [
    Mistake("no bound of time", lambda p: p.join(asks(p), on="user"), TimeError,
            "needs within=, window= or last_rows=", "join", also="last_rows=100"),
    Mistake("two bounds of time", lambda p: p.join(asks(p), on="user", within="1 s",
            window=ps.tumbling("1 s")),
            TimeError, "one of within=, window= and last_rows=, and got within and window", "join"),
    Mistake("time and rows", lambda p: p.join(asks(p), on="user", within="1 s", last_rows=3),
            TimeError, "and got within and last_rows", "join"),
    Mistake("a bound without end", lambda p: p.join(asks(p), on="user", within=timedelta(days=20_000_000)),
            TimeError, "within 20000000 d is too long", "join"),
    Mistake("endless lateness",
            lambda p: p.join(asks(p), on="user", within="1 s", lateness=timedelta(days=20_000_000)),
            TimeError, "lateness 20000000 d is too long", "join"),
    Mistake("no rows", lambda p: p.join(asks(p), on="user", last_rows=0), GraphError,
            "last_rows=0 is not a number of rows", "join"),
    Mistake("no rows of either", lambda p: p.join(asks(p), on="user", last_rows=(0, 0)), GraphError,
            "last_rows=(0, 0) is not a number of rows", "join"),
    Mistake("fewer than no rows", lambda p: p.join(asks(p), on="user", last_rows=(-1, 2)), GraphError,
            "last_rows=(-1, 2) is not a number of rows", "join"),
    Mistake("three numbers of rows", lambda p: p.join(asks(p), on="user", last_rows=(1, 2, 3)), GraphError,
            "last_rows=(1, 2, 3) is not a number of rows", "join"),
    Mistake("half a row", lambda p: p.join(asks(p), on="user", last_rows=1.5), GraphError,
            "last_rows=1.5 is not a number of rows", "join"),
    Mistake("true rows", lambda p: p.join(asks(p), on="user", last_rows=True), GraphError,
            "last_rows=True is not a number of rows", "join"),
    Mistake("rows that wait without end", lambda p: p.join(asks(p), on="user", last_rows=5, how="left"),
            GraphError, 'how="left" with last_rows=5 has no bound of time', "join", also="last_rows=(0, 5)"),
    Mistake("right rows that wait without end",
            lambda p: p.join(asks(p), on="user", last_rows=(3, 1), how="right"), GraphError,
            'how="right" with last_rows=(3, 1) has no bound of time', "join", also="last_rows=(3, 0)"),
    Mistake("both wait without end", lambda p: p.join(asks(p), on="user", last_rows=(0, 1), how="full"),
            GraphError, 'how="full" with last_rows=(0, 1) has no bound of time', "join", also='"inner"'),
    Mistake("a semi join that waits without end",
            lambda p: p.join(asks(p), on="user", last_rows=2, how="semi"), GraphError,
            'how="semi" with last_rows=2 has no bound of time', "join", also="last_rows=(0, 2)"),
    Mistake("an anti join that waits without end",
            lambda p: p.join(asks(p), on="user", last_rows=(1, 0), how="anti"), GraphError,
            'how="anti" with last_rows=(1, 0) has no bound of time', "join", also="last_rows=(0, 5)"),
    Mistake("a negative bound", lambda p: p.join(asks(p), on="user", within=BACK), TimeError,
            "within -1 s is negative", "join"),
    Mistake("one negative bound", lambda p: p.join(asks(p), on="user", within=("1 s", BACK)), TimeError,
            "within -1 s is negative", "join"),
    Mistake("three bounds", lambda p: p.join(asks(p), on="user", within=("1 s", "1 s", "1 s")), TimeError,
            "is not one duration or two", "join"),
    Mistake("a bare bound on a timestamp", lambda p: p.join(asks(p), on="user", within=5), TimeError,
            "within 5 has no unit", "join"),
    Mistake("negative lateness", lambda p: p.join(asks(p), on="user", within="1 s", lateness=BACK), TimeError,
            "lateness -1 s is negative", "join"),
    Mistake("negative lateness in windows",
            lambda p: p.join(asks(p), on="user", window=ps.tumbling("1 s"), lateness=BACK), TimeError,
            "lateness -1 s is negative", "join"),
    Mistake("a sliding window over its own columns",
            lambda p: p.with_columns(window_end=col("n")).join(
                asks(p), on="user", window=ps.sliding("2 s", "1 s")),
            SchemaError, 'a join by sliding windows adds a column "window_end"', "join"),
    Mistake("a session window", lambda p: p.join(asks(p), on="user", window=ps.session("2 s")), TimeError,
            "must be tumbling or sliding", "join"),
    Mistake("text for a window", lambda p: p.join(asks(p), on="user", window="2 s"), TimeError,
            "must be tumbling or sliding", "join"),
    Mistake("no time on the left", lambda p: timeless(p.graph).join(asks(p), on="user", within="1 s"),
            TimeError,
            "the left side of a join needs event time", "join"),
    Mistake("no time on the right", lambda p: p.join(timeless(p.graph), on="user", within="1 s"), TimeError,
            "the right side of a join needs event time", "join"),
    Mistake("two types of time", lambda p: p.join(ticks(p), on="user", within="1 s"), TimeError,
            "the left side's time is timestamp[us] and the right side's is int64 in ms", "join"),
    Mistake("a clash of columns", lambda p: p.join(p, on="user", within="1 s"), SchemaError,
            'both sides have a column "item"', "join", also='suffix="_right"'),
    Mistake("a clash with the suffix too",
            lambda p: p.with_columns(item_r=col("item")).join(p, on="user", within="1 s", suffix="_r"),
            SchemaError, 'both sides have a column "item_r"', "join"),
    Mistake("a column of no side", lambda p: p.join(asks(p), on=col("a") == col("b"), within="1 s"),
            SchemaError, 'col("a") does not say which side', "join", also='ps.left("a") or ps.right("a")'),
    Mistake("a number for an answer",
            lambda p: p.join(asks(p), on=ps.left("price") - ps.right("ask"), within="1 s"), SchemaError,
            'must be true or false, and left("price") - right("ask") is double', "join"),
    Mistake("a text for an answer, in a list",
            lambda p: p.join(asks(p), on=["user", ps.right("word")], within="1 s"), SchemaError,
            'must be true or false, and right("word") is string', "join"),
    Mistake("text beside numbers",
            lambda p: p.join(asks(p), on=ps.left("n") == ps.right("word"), within="1 s"), SchemaError,
            'left("n") == right("word") mixes int64 and string', "join"),
    Mistake("an unknown column of the left",
            lambda p: p.join(asks(p), on=ps.left("prise") > 1, within="1 s"), SchemaError,
            'there is no column "prise" on the left of the join', "join", also='did you mean "price"?'),
    Mistake("a column of the other side",
            lambda p: p.join(asks(p), on=ps.right("price") > 1, within="1 s"), SchemaError,
            'there is no column "price" on the right of the join', "join",
            also='the left has one: ps.left("price")'),
    Mistake("an unknown band of the right",
            lambda p: p.join(asks(p), on=ps.band("price", "asked", 3), within="1 s"), SchemaError,
            'there is no column "asked" on the right of the join', "join", also="the columns are ask, "),
    Mistake("an unknown key of the left",
            lambda p: p.join(asks(p), on=ps.equal("usr", "user"), within="1 s"), SchemaError,
            'there is no column "usr" on the left of the join', "join", also="the columns are user, "),
    Mistake("a key that one side lacks",
            lambda p: p.join(asks(p), on="price", within="1 s"), SchemaError,
            'there is no column "price" on the right of the join', "join",
            also='ps.equal("price", '),
    Mistake("Spark SQL", lambda p: p.join(asks(p), on=ps.spark_expr("a > b", "bool"), within="1 s"),
            SchemaError, "cannot be part of a join's predicate", "join", also="before the join"),
    Mistake("no name of a column", lambda p: ps.left(NUMBER), SchemaError, "3 cannot name a column"),
    Mistake("a function of numbers", lambda p: p.join(asks(p), on=distance, within="1 s"), FunctionError,
            "must be true or false, and distance returns float", "join", also="-> bool"),
    Mistake("a batch function of columns",
            lambda p: p.join(asks(p), on=ps.batch(both, schema={"x": "bool"}), within="1 s"), FunctionError,
            "must be true or false, and batch function both declares columns", "join"),
    Mistake("lists", lambda p: p.with_columns(l=col("user").str.split(" ")).join(
            asks(p).with_columns(m=col("word").str.split(" ")), on=ps.equal("l", "m"), within="1 s"),
            SchemaError, 'column "l" of type list<', "join"),
    Mistake("a number as predicate", lambda p: p.join(asks(p), on=5, within="1 s"), FunctionError,
            "on=5 is not a join predicate", "join"),
    Mistake("no predicate", lambda p: p.join(asks(p), on=[], within="1 s"), FunctionError,
            "on=[] is not a join predicate", "join"),
    Mistake("a bad layout", lambda p: p.join(asks(p), on="user", within="1 s", layout=(0, 2)), GraphError,
            "layout=(0, 2) is not m x n", "join"),
    Mistake("another bad layout", lambda p: p.join(asks(p), on="user", within="1 s", layout="wide"),
            GraphError,
            "layout='wide' is not m x n", "join"),
    Mistake("a pipeline of the last rows",
            lambda p: p.join(asks(p), on="user", last_rows=3, layout="handshake"), GraphError,
            'layout="handshake" does not go with last_rows=', "join"),
    Mistake("one rate", lambda p: p.join(asks(p), on="user", within="1 s", rates=NUMBER), GraphError,
            "rates=3 is not the rows a second of both streams", "join"),
    Mistake("rates of nothing", lambda p: p.join(asks(p), on="user", within="1 s", rates=(0, 5)), GraphError,
            "rates=(0, 5) is not the rows a second", "join"),
    Mistake("a layout against a degree",
            lambda p: p.join(asks(p), on="user", within="1 s", layout=(2, 3), parallelism=4), GraphError,
            "layout=(2, 3) is 6 workers, and parallelism=4", "join"),
    Mistake("an unknown way", lambda p: p.join(asks(p), on="user", within="1 s", how="outer"), GraphError,
            "how='outer' is unknown", "join", also='"full"'),
    Mistake("columns of two types", lambda p: p.join(asks(p), on=ps.equal("n", "word"), within="1 s"),
            SchemaError, '"n" is int64 on the left, and "word" is string', "join"),
    Mistake("a band on texts", lambda p: p.join(asks(p), on=ps.band("user", "word", 3), within="1 s"),
            SchemaError, 'a band needs numbers, and column "user" is string', "join"),
    Mistake("a negative band", lambda p: ps.band("n", -1), SchemaError, "a band of width -1 holds nothing"),
    Mistake("an endless band", lambda p: ps.band("n", float("inf")), SchemaError,
            "a band of width inf leaves nothing out"),
    Mistake("a band of nothing", lambda p: ps.band("n", float("nan")), SchemaError, "width nan"),
    Mistake("a band of text", lambda p: ps.band("n", "m", TEXT), SchemaError, "width '3'"),
    Mistake("a band without a width", lambda p: ps.band("n", "m"), SchemaError, "needs a width"),
    Mistake("another graph's pipe", lambda p: p.join(OTHER, on="user", within="1 s"), GraphError,
            'a pipe of graph "other" cannot feed a step of graph "shop"', "join"),
    Mistake("a table as a pipe", lambda p: p.join(pa.table({"user": ["a"]}), on="user", within="1 s"),
            GraphError, "join takes another pipe, and got Table", "join", also="join_table"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", JOINS, ids=str)
def test_a_join_that_cannot_be_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


class Endless:
    """A reader that never ends."""

    schema = pa.schema([("n", pa.int64()), ("x", pa.int64())])
    bounded = False
    delivery = ps.read.rows([{"n": 1}]).delivery
    keeps_raw = False

    def batches(self) -> Any:
        raise AssertionError("a table is not read before it is known to end")

    def describe(self) -> str:
        return "endless"


ENDLESS = Endless()
NAN = float("nan")
LISTS = pa.table({"n": [[1], [2]], "x": [1, 2]})

TABLES: list[Mistake] = [
    Mistake("two rows of one key", lambda p: p.join_table([{"n": 1, "x": 1}, {"n": 1, "x": 2}], on="n"),
            SchemaError, "the joined table has two rows with n=1", "join_table"),
    Mistake("two NaN keys", lambda p: p.join_table([{"price": NAN, "x": x} for x in "ab"], on="price"),
            SchemaError, "the joined table has two rows with price=nan", "join_table"),
    Mistake("a column of another type", lambda p: p.join_table([{"n": "1", "x": 1}], on="n"), SchemaError,
            'column "n" is int64 in the stream and string in the table', "join_table"),
    Mistake("a clash of columns", lambda p: p.join_table([{"n": 1, "price": 1.0}], on="n"), SchemaError,
            'both have a column "price"', "join_table"),
    Mistake("an unknown way", lambda p: p.join_table([{"n": 1}], on="n", how="right"), GraphError,
            "how='right' is unknown", "join_table", also='"left"'),
    Mistake("nothing for a column", lambda p: p.join_table([{"n": 1}], on=None), SchemaError,
            "None is not the name of a column", "join_table"),
    Mistake("no column", lambda p: p.join_table([{"n": 1}], on=[]), GraphError, "needs a column",
            "join_table"),
    Mistake("a list to look up by", lambda p: p.join_table(LISTS, on="n"), SchemaError,
            'column "n" of type list<', "join_table", also="use a plain column"),
    Mistake("an endless reader", lambda p: p.join_table(ENDLESS, on="n"), GraphError,
            "a joined table must end", "join_table"),
    Mistake("what is no table", lambda p: p.join_table(3, on="n"), SchemaError, "int is not a table",
            "join_table"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", TABLES, ids=str)
def test_a_table_join_that_cannot_be_is_refused(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_null_keys_of_a_table_match_nothing_and_so_may_repeat() -> None:
    table = pa.table({"n": pa.array([None, None, 1]), "x": ["a", "b", "c"]})
    assert trades().join_table(table, on="n").schema.names == [*TRADES.names, "x"]
