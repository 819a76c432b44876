"""Stages of steps without state, against the reference engine: rows, times, places, accounts, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.expr import col
from penstock.operators.function import batch
from penstock.operators.op import Op
from penstock.operators.rows import Filter, FlatMap, Map, Relay, Select, Split, WithColumns
from penstock.operators.table_join import TableJoin
from penstock.stages.rows.batch import Batch
from penstock.stages.table_join import TableIndex
from tests.support.stage_steps import Case, Driven, agree, by_stage, case, cases

LAW = settings(deadline=None, max_examples=25)
POLICIES = st.sampled_from(["fail", "skip", "dead_letter"])
PAIR = {"k": "string", "w": "int64"}


def double(row: Any) -> dict[str, Any]:
    return {"k": row.k, "w": row.v * 2}


def positive(row: Any) -> Any:
    return None if row.v is None else row.v > 0 if row.v != 3 else "three"


def repeat(row: Any) -> Iterable[dict[str, Any]]:
    for number in range(row.v):
        yield {"k": row.word, "w": 10 // (number - 3)}


class RowNumbers:
    """A callable object with a state of its own, which every replica has a copy of."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, row: Any) -> dict[str, Any]:
        self.n += 1
        return {"k": str(self.n), "w": self.n // (row.v or 0)}


def widen(rows: pa.RecordBatch) -> pa.RecordBatch:
    result = pc.multiply_checked(rows.column("v"), 2)
    return pa.RecordBatch.from_arrays([rows.column("word"), result], names=["k", "w"])


def not_huge(rows: pa.RecordBatch) -> pa.Array:
    return pc.greater(pc.add_checked(rows.column("v"), 1), 0)


def only_some(rows: pa.RecordBatch) -> pa.RecordBatch:
    return widen(rows).filter(pc.greater(rows.column("v"), 0))


def branch(row: Any) -> Any:
    return [0, 2, 0] if row.v == 1 else row.v


STEPS: Mapping[str, Callable[..., Op]] = {
    "map columns": lambda **o: WithColumns({"w": col("v") + 1, "k": col("v") / 2, "n": 3}, **o),
    "map cast": lambda **o: WithColumns({"word": col("word").cast("int64")}, **o),
    "map rows": lambda **o: Map(double, PAIR, **o),
    "map by an object": lambda **o: Map(RowNumbers(), PAIR, **o),
    "map batches": lambda **o: Map(batch(widen, schema=PAIR), **o),
    "select": lambda **o: Select((("x", col("x")), ("w", col("v") * col("v"))), **o),
    "filter": lambda **o: Filter(col("v") * 2 > 0, **o),
    "filter rows": lambda **o: Filter(positive, **o),
    "filter batches": lambda **o: Filter(batch(not_huge), **o),
    "flat_map list": lambda **o: FlatMap({"items": col("items")}, **o),
    "flat_map words": lambda **o: FlatMap({"part": col("word").str.split(" ")}, **o),
    "flat_map rows": lambda **o: FlatMap(repeat, PAIR, **o),
    "flat_map batches": lambda **o: FlatMap(batch(widen, schema=PAIR), **o),
    "flat_map fewer": lambda **o: FlatMap(batch(only_some, schema=PAIR), **o),
    "split by name": lambda **o: Split(None, {"up": col("v") + 1 > 0, "odd": col("x") > 0.0}, **o),
    "split by number": lambda **o: Split(col("v"), 3, **o),
    "split by function": lambda **o: Split(branch, 3, **o),
    "relay": Relay,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
@LAW
@given(st.data(), POLICIES)
def test_a_stage_does_what_the_reference_engine_does(name: str, data: st.DataObject, policy: str) -> None:
    if name == "relay":
        policy = "fail"
    agree(data.draw(cases(STEPS[name](on_error=policy))))


@LAW
@given(st.data(), st.sampled_from(["split by name", "split by number", "split by function"]))
def test_rows_for_branches_that_nobody_reads_are_unrouted(data: st.DataObject, name: str) -> None:
    op = STEPS[name](on_error="skip")
    assert isinstance(op, Split)
    read = data.draw(st.lists(st.sampled_from(op.names), min_size=1, unique=True))
    agree(data.draw(cases(op, read=tuple(read))))


TABLE = pa.table(
    {
        "x": pa.array([1.5, float("nan"), 0.0, None], pa.float64()),
        "word": pa.array(["7", "two", None, "7"]),
        "found": pa.array([1, 2, 3, 4]),
    }
)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("on", ["x", "word", ("x", "word")])
@LAW
@given(st.data())
def test_a_table_join_finds_what_the_reference_engine_finds(how: str, on: Any, data: st.DataObject) -> None:
    names = [on] if isinstance(on, str) else list(on)
    table = TABLE.select([*names, "found"]).slice(0, 3)
    agree(data.draw(cases(TableJoin(ps.read.table(table), on, how))))


def test_null_matches_nothing_and_both_zeros_are_one_key() -> None:
    rows = [("a", 0, 1, x) for x in (None, float("nan"), -0.0, 2.0)]
    op = TableJoin(ps.read.table(TABLE.select(["x", "found"])), "x", "left")
    result = by_stage(case(op, rows)).rows["out"]
    assert [("'found': 2" in row, "'found': 3" in row) for row in result].count((True, False)) == 1
    assert [("'found': 2" in row, "'found': 3" in row) for row in result].count((False, True)) == 1
    assert sum("'found': None" in row for row in result) == 2


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_table_without_rows_matches_nothing(how: str) -> None:
    op = TableJoin(ps.read.table(TABLE.select(["word", "found"]).slice(0, 0)), "word", how)
    agree(case(op, [("a", 0, 1, 1.0, "7")], [("a", 1, 1, 1.0, None)]))


def test_keys_that_the_table_does_not_have_are_not_kept() -> None:
    index = TableIndex({"word": pa.array(["a", "b"])})
    assert index.find(
        Batch(pa.RecordBatch.from_pydict({"word": ["b", "z", None, "a"]}), np.zeros(4, np.int64))
    ).tolist() == [1, -1, -1, 0]
    assert index._keys.n_live == 2


def test_a_row_that_fails_midway_in_flat_map_gives_no_rows_at_all() -> None:
    result = by_stage(case(FlatMap(repeat, PAIR, on_error="skip"), [("a", 0, 5), ("a", 0, 2)]))
    assert len(result.rows["out"]) == 2
    assert result.accounts.errors == 1


def wrong(value: Any) -> Callable[[pa.RecordBatch], Any]:
    def gives(rows: pa.RecordBatch) -> Any:
        return value(rows) if callable(value) else value

    return gives


@pytest.mark.parametrize(
    "op",
    [
        Map(batch(wrong(3), schema=PAIR)),
        Map(batch(wrong(lambda rows: rows), schema=PAIR)),
        Map(batch(wrong(lambda rows: widen(rows).slice(1)), schema=PAIR), on_error="skip"),
        FlatMap(batch(wrong(None), schema=PAIR), on_error="skip"),
        Filter(batch(wrong([True]))),
        Filter(batch(wrong(lambda rows: rows.column("v"))), on_error="skip"),
        Filter(batch(wrong(lambda rows: pa.chunked_array([pa.array([True])]))), on_error="dead_letter"),
        Map(batch(wrong(lambda rows: 1 // 0), schema=PAIR)),
    ],
)
def test_a_batch_function_that_gives_the_wrong_thing_stops_the_run_as_in_the_reference_engine(op: Op) -> None:
    stopped = case(op, [("a", 0, 1), ("b", 1, 2)])
    agree(stopped)
    error = by_stage(stopped).error
    assert error is not None
    assert "test_map.py" in error


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: Map(lambda row: 3, PAIR, **o),
        lambda **o: Map(lambda row: {"k": row.k}, PAIR, **o),
        lambda **o: Map(lambda row: {"k": 3, "w": 3}, PAIR, **o),
        lambda **o: Filter(lambda row: "yes", **o),
        lambda **o: FlatMap(lambda row: {"k": "a", "w": 1}, PAIR, **o),
        lambda **o: FlatMap(lambda row: [3], PAIR, **o),
        lambda **o: Split(lambda row: "left", 2, **o),
        lambda **o: Split(lambda row: 2, 2, **o),
        lambda **o: Split(lambda row: True, 2, **o),
        lambda **o: Split(col("v") + 6, 2, **o),
        lambda **o: WithColumns({"w": col("v") / 0}, **o),
        lambda **o: Split(None, {"up": col("v") / 0 > 1, "down": col("v") > 0}, **o),
        lambda **o: Map(lambda row: {"k": row.name, "w": 1}, PAIR, **o),
    ],
)
@pytest.mark.parametrize("policy", ["fail", "dead_letter"])
def test_what_a_function_gives_is_checked_as_in_the_reference_engine(
    make: Callable[..., Op], policy: str
) -> None:
    agree(case(make(on_error=policy), [("a", 0, 1), ("b", 1, 2)]))


def explain_stage(op: Op) -> list[str]:
    stage: Any = Driven(case(op)).new_stage()
    return list(stage.explain())


def test_stages_say_how_they_work() -> None:
    assert explain_stage(STEPS["filter"]()) == ["the predicate runs as Arrow kernels"]
    assert explain_stage(STEPS["map batches"]()) == ["batch function widen gets whole batches"]
    assert explain_stage(STEPS["flat_map rows"]()) == ["row function repeat runs in Python, row by row"]
    assert all(explain_stage(make()) for make in STEPS.values())


def test_an_empty_batch_calls_no_function() -> None:
    agree(Case(Map(batch(wrong(3), schema=PAIR)), []))
    agree(case(Map(batch(wrong(3), schema=PAIR)), []))
