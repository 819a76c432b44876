"""What flows out of every verb: columns and types, the time, and the key, all known while building."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.timing.units import TimeType
from tests.support.trades import TRADES, timeless, trades

MINUTE = ps.tumbling("1 min")
STAMP = TimeType(pa.timestamp("us"), "us")


@dataclass
class Total:
    user: str
    total: float


class Word(NamedTuple):
    word: str


class Score(TypedDict):
    user: str
    score: float


def total(row: Any) -> Total:
    return Total(row.user, row.price * row.n)


def words(row: Any) -> Iterable[Word]:
    return [Word(tag) for tag in row.tags]


def score(row: Any) -> Score:
    return {"user": row.user, "score": 1.0}


class Scorer:
    """A callable object declares its schema as a function does."""

    def __call__(self, row: Any) -> Total:
        return total(row)


def types(pipe: ps.MultiPipe) -> dict[str, str]:
    return {field.name: str(field.type) for field in pipe.schema}


def test_a_source_gives_the_readers_columns_its_time_and_no_key() -> None:
    pipe = trades()
    assert pipe.schema.equals(TRADES)
    assert (pipe.stream.time, pipe.stream.key) == (STAMP, ())
    assert timeless().stream.time is None


def test_ingest_time_is_a_timestamp_beside_the_columns() -> None:
    pipe = ps.PipeGraph("shop").source(ps.read.rows([], schema=TRADES), time=ps.ingest_time())
    assert pipe.schema.equals(TRADES)
    assert pipe.stream.time == TimeType(pa.timestamp("us", "UTC"), "us")


def test_map_adds_columns_at_the_end_and_replaces_in_place() -> None:
    pipe = trades().with_columns(total=col("price") * col("n"), n=col("n") > 3)
    assert list(types(pipe)) == [*TRADES.names, "total"]
    assert (types(pipe)["n"], types(pipe)["total"]) == ("bool", "double")


def test_map_takes_plain_values_as_literals_and_a_dict_for_names_that_are_options() -> None:
    pipe = trades().with_columns({"name": col("user"), "one": 1})
    assert (types(pipe)["name"], types(pipe)["one"]) == ("string", "int64")


@pytest.mark.parametrize("function", [total, Scorer()])
def test_a_row_function_gives_the_columns_of_its_annotation(function: Any) -> None:
    assert types(trades().map(function)) == {"user": "string", "total": "double"}


def test_a_row_function_may_be_annotated_with_a_named_tuple_or_a_typed_dict() -> None:
    assert types(trades().flat_map(words)) == {"word": "string"}
    assert types(trades().map(score)) == {"user": "string", "score": "double"}


def test_schema_wins_over_the_annotation() -> None:
    assert types(trades().map(total, schema={"x": "int32"})) == {"x": "int32"}


def test_a_batch_function_declares_its_schema_itself_or_through_the_verb() -> None:
    assert types(trades().map(ps.batch(lambda b: b, schema={"x": "int8"}))) == {"x": "int8"}
    assert types(trades().flat_map(ps.batch(lambda b: b), schema={"x": "int8"})) == {"x": "int8"}


def test_flat_map_of_a_list_gives_its_elements_beside_the_other_columns() -> None:
    pipe = trades().flat_map(tags=col("tags"))
    assert list(types(pipe)) == TRADES.names
    assert types(pipe)["tags"] == "string"
    assert types(trades().flat_map(word=col("user").str.split(" ")))["word"] == "string"


def test_select_keeps_the_order_it_is_given() -> None:
    pipe = trades().select("n", "user", twice=col("n") * 2, one=1)
    assert types(pipe) == {"n": "int64", "user": "string", "twice": "int64", "one": "int64"}


def test_filter_and_split_change_no_columns() -> None:
    pipe = trades()
    assert pipe.filter(col("paid")).stream == pipe.stream
    assert all(branch.stream == pipe.stream for branch in pipe.split(col("n"), 2))


def test_accumulate_gives_the_key_and_the_state() -> None:
    keyed = trades().key_by("user", "item")
    pipe = keyed.accumulate(lambda row, state: state + 1, 0, schema={"seen": "int64"})
    assert types(pipe) == {"user": "string", "item": "string", "seen": "int64"}
    assert pipe.stream.key == ("user", "item")
    assert pipe.late.stream == keyed.stream


def test_the_schema_of_a_state_may_come_from_its_first_value() -> None:
    pipe = trades().key_by("item").accumulate(lambda row, state: state, Total("ada", 0.0))
    assert types(pipe) == {"item": "string", "user": "string", "total": "double"}


def test_a_window_gives_key_bounds_and_results() -> None:
    keyed = trades().key_by("user")
    pipe = keyed.window(MINUTE).aggregate(n=ps.count(), revenue=ps.sum("price"))
    assert types(pipe) == {
        "user": "string",
        "window_start": "timestamp[us]",
        "window_end": "timestamp[us]",
        "n": "int64",
        "revenue": "double",
    }
    assert (pipe.stream.key, pipe.stream.time) == (("user",), STAMP)
    assert pipe.late.stream == keyed.stream


def test_windows_by_name_are_labelled_count_windows_numbered_and_early_results_marked() -> None:
    pipe = trades().window(slow=MINUTE, few=ps.count_window(3), early="1 s").aggregate(n=ps.count())
    assert list(types(pipe)) == ["window", "window_start", "window_end", "window_index", "n", "final"]


@pytest.mark.parametrize(("column", "unit"), [("day", None), ("tick", "s"), ("tick", "ns")])
def test_window_bounds_come_back_in_the_type_of_the_time_column(column: str, unit: Any) -> None:
    rows = ps.read.rows([], schema=TRADES)
    pipe = ps.PipeGraph("shop").source(rows, time=column, time_unit=unit, delay="1 d")
    counts = pipe.window(ps.tumbling("7 d")).aggregate(n=ps.count(), last=ps.event_time_max())
    bounds = [counts.schema.field(name).type for name in ("window_start", "window_end", "last")]
    assert bounds == [TRADES.field(column).type] * 3


def test_apply_adds_the_columns_of_its_function_to_the_window() -> None:
    def spread(rows: Any) -> list[Total]:
        return []

    pipe = trades().key_by("item").window(MINUTE).apply(spread, schema=Total)
    assert list(types(pipe)) == ["item", "window_start", "window_end", "user", "total"]


def test_a_join_gives_both_sides_and_an_equal_column_once() -> None:
    left = trades().select("user", "n")
    right = trades(left.graph, name="more").select("user", "price", "n")
    pipe = left.join(right, on="user", within="1 s", suffix="_right")
    assert types(pipe) == {"user": "string", "n": "int64", "price": "double", "n_right": "int64"}
    assert (pipe.stream.time, pipe.stream.key) == (STAMP, ())
    assert (pipe.late.stream, pipe.late_right.stream) == (left.stream, right.stream)


def test_columns_equal_under_two_names_are_both_kept() -> None:
    left = trades().select("user")
    right = trades(left.graph, name="more").select(buyer=col("user"))
    assert list(types(left.join(right, on=ps.equal("user", "buyer"), within="1 s"))) == ["user", "buyer"]


def test_a_table_join_adds_the_other_columns_of_the_table_and_keeps_the_key() -> None:
    table = pa.table({"item": ["x"], "label": ["y"], "weight": [1.5]})
    pipe = trades().key_by("user").join_table(table, on="item")
    assert list(types(pipe))[-2:] == ["label", "weight"]
    assert pipe.stream.key == ("user",)


def test_dead_letters_are_the_row_as_it_came_the_reason_and_the_step() -> None:
    pipe = trades().map(total, on_error="dead_letter")
    assert list(types(pipe.errors)) == [*TRADES.names, "error", "error_step"]
    assert pipe.errors.stream.time == STAMP


def test_a_row_function_may_drop_the_time_column_and_rows_keep_their_time() -> None:
    pipe = trades().map(total)
    assert "at" not in types(pipe)
    assert pipe.stream.time == STAMP
    pipe.window(MINUTE).aggregate(n=ps.count())


def test_filters_and_maps_that_leave_the_key_alone_keep_it() -> None:
    keyed = trades().key_by("user")
    for stored in (
        keyed.filter(col("paid")),
        keyed.with_columns(x=col("n")),
        keyed.select("n", "user"),
        keyed.flat_map(tags=col("tags")),
    ):
        assert stored.stream.key == ("user",)


def test_what_changes_or_drops_the_key_columns_loses_the_key() -> None:
    keyed = trades().key_by("user", "item")
    for lost in (
        keyed.with_columns(user=col("item")),
        keyed.select("user", "n"),
        keyed.select("user", item=col("user")),
        keyed.map(total),
        keyed.flat_map(words),
        keyed.flat_map(item=col("tags")),
    ):
        assert lost.stream.key == ()


def test_key_by_can_compute_a_column() -> None:
    pipe = trades().key_by("user", big=col("n") > 9)
    assert pipe.stream.key == ("user", "big")
    assert types(pipe)["big"] == "bool"


def test_merged_pipes_stay_keyed_only_if_all_have_the_same_key() -> None:
    one, two = trades(), None
    two = trades(one.graph, name="more")
    assert one.key_by("user").merge(two.key_by("user")).stream.key == ("user",)
    assert one.key_by("user").merge(two).stream.key == ()


def test_a_process_operator_gives_what_it_declares_with_the_time_of_its_inputs() -> None:
    class Echo(ps.ProcessOperator):
        def schemas(self, inputs: Any) -> Any:
            return {"out": inputs["in"]}

        async def process(self, ctx: ps.Context) -> None:
            raise AssertionError("never run here")

    pipe = trades().process(Echo())
    assert pipe.schema.equals(TRADES)
    assert (pipe.stream.time, pipe.stream.key) == (STAMP, ())
