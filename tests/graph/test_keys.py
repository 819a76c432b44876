"""Keys are explicit: they stay by declaration, or a step that needs one is refused with the ways out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import penstock as ps
from penstock import FunctionError, GraphError, SchemaError, col
from tests.support.mistakes import Mistake, check_refusal
from tests.support.trades import trades

MINUTE = ps.tumbling("1 min")
USERS = {"user": "string", "n": "int64"}
COUNT = {"n": ps.count()}


def tag(row: Any) -> Any:
    return {"user": row.user, "n": row.n}


def tag_with_state(row: Any, seen: list[int]) -> Any:
    return {"user": row.user, "n": row.n}


def repeat(row: Any) -> Any:
    return [tag(row), tag(row)]


def whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["user", "n"])


def users() -> Any:
    return trades().key_by("user")


def join(pipe: Any, **options: Any) -> Any:
    """A join of the pipe with its own rows."""
    other = pipe.graph["filter"] if "filter" in pipe.graph.steps else pipe.keyless().filter(col("n") > 0)
    return pipe.join(other, on="item", within="1 min", suffix="_right", **options)


class Push(ps.ProcessOperator):
    outputs: ClassVar[Mapping[str, Any]] = {"out": USERS}

    async def process(self, ctx: ps.Context) -> None:
        while await ctx.wait_for_all({"in": 1}):
            await ctx.outputs["out"].push(tag(ctx.inputs["in"].pop()))


LOSSES: dict[str, Any] = {
    "a row function": lambda p: p.map(tag, schema=USERS),
    "a function with state": lambda p: p.map(tag_with_state, schema=USERS, state=list),
    "a batch function": lambda p: p.map(ps.batch(whole, schema=USERS)),
    "a flat_map": lambda p: p.flat_map(repeat, schema=USERS),
    "a flat_map with state": lambda p: p.flat_map(lambda row, state: [tag(row)], schema=USERS, state=list),
    "a function that keeps another column": lambda p: p.map(tag, schema=USERS, keeps="n"),
    "an own loop": lambda p: p.process(Push()),
    "another value": lambda p: p.with_columns(user=col("item")),
    "a select that changes it": lambda p: p.select("n", user=col("item")),
    "a list of it": lambda p: p.flat_map(user=col("tags")),
    "a full join": lambda p: join(p, how="full"),
    "a join of an unkeyed left": lambda p: (
        p.keyless().filter(col("n") > 0).join(p, on="item", within="1 min", suffix="_right")
    ),
    "a merge with rows without a key": lambda p: p.merge(p.keyless().filter(col("n") > 0)),
    "a merge with another key": lambda p: p.union(p.filter(col("n") > 0).key_by("item")),
}
NEEDS: dict[str, Any] = {
    "a window": lambda p: p.window(MINUTE).aggregate(COUNT),
    "a function of windows": lambda p: p.window(ps.session("1 s")).apply(
        lambda rows: None, schema={"m": int}
    ),
    "state": lambda p: p.filter(lambda row, state: True, state=list),
    "accumulate": lambda p: p.accumulate(lambda row, n: n + 1, 0, schema={"count": "int64"}),
    "a routing": lambda p: p.filter(col("n") > 0, routing="key_by"),
}


@pytest.mark.parametrize("need", NEEDS.values(), ids=NEEDS)
@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_a_step_that_needs_a_key_is_refused_behind_one_that_may_have_changed_it(lose: Any, need: Any) -> None:
    behind = lose(users())
    with pytest.raises(GraphError, match="does not know its key: the rows had the key") as caught:
        need(behind)
    assert caught.value.hint == 'say .key_by("user") before it, or .keyless() to take all rows together'
    need(behind.key_by("user"))


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_keyless_makes_a_window_over_all_rows(lose: Any) -> None:
    windows = lose(users()).keyless().window(MINUTE).aggregate(COUNT)
    assert windows.stream.key == ()
    assert windows.schema.names == ["window_start", "window_end", "n"]


def test_a_key_that_was_dropped_is_missed_by_name() -> None:
    dropped = users().select("n", "at")
    mistake = Mistake(
        "dropped",
        lambda p: users().select("n", "at").window(MINUTE).aggregate(COUNT),
        GraphError,
        'a window does not know its key: the rows had the key user before step "select"',
        "window",
        'behind it there is no column "user" say .key_by(...) a column it has before it, or .keyless()',
    )
    check_refusal(mistake)
    assert dropped.keyless().window(MINUTE).aggregate(COUNT).stream.key == ()


def test_the_error_says_where_the_key_was_lost_and_how_the_function_may_keep_it() -> None:
    error = check_refusal(
        Mistake(
            "lost",
            lambda p: p.key_by("user").map(tag, schema=USERS, name="tags").filter(col("n") > 0)
            .window(MINUTE, name="views").aggregate(COUNT),
            GraphError,
            'a window does not know its key: the rows had the key user before step "tags" at ',
            "views",
            "row function tag may have changed it; a function that returns it as it is can say so: "
            'map(fn, keeps="user")',
        )
    )  # fmt: skip
    assert "test_keys.py" in error.fact


def test_a_key_of_several_columns_is_named_whole() -> None:
    lost = trades().key_by("user", "item").map(tag, schema=USERS)
    with pytest.raises(GraphError, match="had the key user, item before") as caught:
        lost.window(MINUTE).aggregate(COUNT)
    assert caught.value.detail == 'row function tag returns no column "item"'
    both = trades().key_by("user", "n").map(tag, schema=USERS, keeps="user")
    with pytest.raises(GraphError) as caught:
        both.window(MINUTE).aggregate(COUNT)
    assert str(caught.value.detail).endswith('map(fn, keeps=["user", "n"])')


KEPT: dict[str, Any] = {
    "map": lambda p: p.map(tag, schema=USERS, keeps="user"),
    "several columns": lambda p: p.map(tag, schema=USERS, keeps=["user", "n"]),
    "state": lambda p: p.map(tag_with_state, schema=USERS, state=list, keeps="user"),
    "batch": lambda p: p.map(ps.batch(whole, schema=USERS), keeps=("user",)),
    "flat_map": lambda p: p.flat_map(repeat, schema=USERS, keeps="user"),
    "filter by a function": lambda p: p.filter(lambda row: row.n > 0),
    "filter with state": lambda p: p.filter(lambda row, state: True, state=list),
    "split": lambda p: p.split(lambda row: row.n % 2, 2)[0],
    "union": lambda p: p.union(p.filter(col("n") > 0)),
    "join": join,
    "left join": lambda p: join(p, how="left"),
    "semi join": lambda p: join(p, how="semi"),
    "late": lambda p: p.window(MINUTE).aggregate(COUNT).late,
    "late state": lambda p: p.filter(lambda row, state: True, state=list).late,
    "errors": lambda p: p.filter(lambda row: True, on_error="dead_letter").errors,
    "key_by again": lambda p: p.map(tag, schema=USERS).key_by("user"),
}


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_the_key_stays_where_its_columns_do_by_declaration(keep: Any) -> None:
    assert keep(users()).window(ps.session("1 s")).aggregate(COUNT).stream.key == ("user",)


def test_a_stream_that_never_had_a_key_is_one_group() -> None:
    windows = trades().map(tag, schema=USERS).window(MINUTE).aggregate(COUNT)
    assert windows.stream.key == ()


WRONG_KEEPS = [
    Mistake(
        "no such column",
        lambda p: p.map(tag, schema=USERS, keeps="usr"),
        SchemaError,
        'there is no column "usr"',
        "map",
        'did you mean "user"?',
    ),
    Mistake(
        "not returned",
        lambda p: p.flat_map(repeat, schema=USERS, keeps=["user", "item"]),
        SchemaError,
        'flat_map is said to keep column "item" of type string, and its output has no column "item"',
        "flat_map",
        "declare it in the schema as it is",
    ),
    Mistake(
        "another type",
        lambda p: p.map(lambda row: {"n": 1.0}, schema={"n": float}, keeps="n"),
        SchemaError,
        'map is said to keep column "n" of type int64, and its output has "n" as double',
        "map",
        "leave it out of keeps=",
    ),
    Mistake(
        "not a name",
        lambda p: p.map(tag, schema=USERS, keeps=3),
        FunctionError,
        "keeps=3 names no columns",
        "map",
        'keeps="user"',
    ),
    Mistake(
        "for an expression",
        lambda p: p.flat_map(tags=col("tags"), keeps="user"),
        FunctionError,
        "flat_map is given keeps= and nothing to declare with it",
        "flat_map",
        "the other columns stay as they are",
    ),
]


@pytest.mark.parametrize("mistake", WRONG_KEEPS, ids=str)
def test_what_a_function_is_said_to_keep_must_be_there_before_and_behind(mistake: Mistake) -> None:
    check_refusal(mistake)


def test_rows_are_sent_to_their_key_anew_behind_a_function_that_only_says_it_keeps_it() -> None:
    keyed = users().filter(lambda row, state: True, state=list, parallelism=2)
    direct = keyed.window(ps.session("1 s"), name="direct").aggregate(COUNT)
    said = keyed.map(tag, schema=USERS, keeps="user").window(ps.session("1 s"), name="said").aggregate(COUNT)
    assert direct.graph.steps["direct"].routing == "forward"
    assert said.graph.steps["said"].routing == "key_by"


def test_explain_says_the_key_and_where_it_is_lost() -> None:
    graph = users().graph
    pipe = graph["trades"].key_by("user").filter(col("n") > 0, name="positive")
    tags = pipe.map(tag, schema=USERS, name="tags")
    tags.filter(col("n") > 1, name="more").sink(ps.write.memory())
    tags.keyless().window(MINUTE, name="all").aggregate(COUNT).sink(ps.write.memory())
    lines = [line.strip() for line in graph.explain().splitlines()]
    keys = [line for line in lines if line.startswith("key  ")]
    assert keys[0] == "key         user"
    assert keys[1].startswith("key         user, lost behind this step: row function tag may have changed it")
    assert keys[2:] == [
        "key         user, lost behind tags",  # what is filtered
        "key         user, lost behind tags",  # and what is written of it
        "key         none: all rows are one group",
    ]
    steps = {step["name"]: step for step in json.loads(graph.explain(format="json"))["steps"]}
    assert steps["positive"]["gives"]["out"]["key"] == ["user"]
    assert steps["tags"]["gives"]["out"]["lost_key"] == ["user"]
    assert steps["all"]["gives"]["out"]["lost_key"] is None
