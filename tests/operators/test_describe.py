"""One line per operator for explain(): what it does, in the user's own names."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import penstock as ps
from penstock import col
from tests.support.trades import timeless, trades


def whole(batch: Any) -> Any:
    return batch


def score(row: Any, state: Any) -> dict[str, Any]:
    return {"n": 1}


def near(left: Any, right: Any) -> bool:
    return True


def text_of(pipe: ps.MultiPipe) -> str:
    return pipe.graph.steps[pipe.feeds[0].step].op.describe()


def test_sources_say_their_time_and_delay() -> None:
    assert "time at (timestamp[us]), delay 2 s" in text_of(trades())
    assert text_of(timeless()).endswith("; no event time")
    arrival = ps.PipeGraph("x").source(ps.read.rows([{"n": 1}]), time=ps.ingest_time())
    assert "time of arrival" in text_of(arrival)


def test_transforms_say_their_function() -> None:
    keyed = trades().key_by("user")
    assert text_of(keyed.with_columns(x=col("n") * 2)) == 'with_columns x=col("n") * 2'
    assert text_of(keyed.map(score, schema={"n": "int64"}, state=list)) == (
        "map row function score with state per key"
    )
    assert text_of(keyed.filter(col("paid"))) == 'filter col("paid")'
    assert text_of(keyed.filter(near, state=list)) == "filter row function near with state per key"
    assert text_of(keyed.flat_map(tags=col("tags"))) == 'flat_map tags=col("tags")'
    assert text_of(keyed.select("n")) == 'select n=col("n")'
    assert text_of(keyed.accumulate(score, 0, schema={"c": "int64"})) == "accumulate row function score"
    batched = keyed.map(ps.batch(whole, schema={"n": "int64"}))
    assert text_of(batched) == "map batch function whole"


def test_windows_say_their_sizes_results_and_lateness() -> None:
    pipe = trades().window(ps.sliding("10 s", every="1 s"), lateness=timedelta(seconds=1))
    assert text_of(pipe.aggregate(n=ps.count())) == (
        "keyed windows sliding 10 s every 1 s: n=count(); lateness 1 s"
    )
    two = trades().window(a=ps.session("1 s"), b=ps.count_window(3)).aggregate(n=ps.count())
    assert text_of(two) == "keyed windows a: session with gap 1 s, b: count 3: n=count()"
    paned = trades().window(ps.tumbling("1 s"), pattern="paned").aggregate(n=ps.count())
    assert text_of(paned).startswith("paned windows tumbling 1 s")


def test_lateness_in_the_columns_own_unit_is_told_as_it_was_written() -> None:
    pipe = ps.PipeGraph("x").source(ps.read.rows([], schema={"t": int}), time="t", time_unit="ms", delay=5)
    assert text_of(pipe.window(ps.tumbling(100), lateness=20).aggregate(n=ps.count())).endswith(
        "; lateness 20"
    )
    assert text_of(pipe.window(ps.tumbling(100), lateness=0).aggregate(n=ps.count())).endswith("n=count()")


def test_joins_say_their_predicate_and_bound() -> None:
    pipe = trades()
    on = ["user", ps.band("n", 10), ps.band("price", 1.5, strict=True), near]
    assert text_of(pipe.join(pipe, on=on, within=("5 s", "1 min"), suffix="_r")) == (
        "inner join on user and |n - n| <= 10 and |price - price| < 1.5 and near(left, right) "
        "within 5 s, 1 min"
    )
    windowed = pipe.join(pipe, on=ps.equal("user", "item"), window=ps.tumbling("10 s"), suffix="_r")
    assert text_of(windowed) == "inner join on user = item in one window: tumbling 10 s"
    on = [near, ps.left("n") > ps.right("n") + 1, ps.batch(near), "user"]
    counted = pipe.join(pipe, on=on, last_rows=(0, 5), how="anti")
    assert text_of(counted) == (
        'anti join on user and left("n") > right("n") + 1 and near(left, right) and batch near(left, right) '
        "with the last 0, 5 rows"
    )
    table = pipe.join_table([{"item": "x", "label": "y"}], on="item", how="left")
    assert text_of(table).startswith("left join with table ")
    assert text_of(table).endswith(" on item")


def test_splits_say_what_decides() -> None:
    pipe = trades()
    pipe.split(paid=col("paid"), open=~col("paid"), name="named")
    pipe.split(col("n"), 3, name="indexed")
    assert pipe.graph.steps["named"].op.describe().startswith('split paid: col("paid"), open: ')
    assert pipe.graph.steps["indexed"].op.describe() == 'split 3 ways by col("n")'
