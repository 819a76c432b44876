"""Map, filter, flat_map and select, by expressions, batch functions and row functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock import col
from tests.conformance.case import Case, cut
from tests.conformance.engines import everywhere

FEATURE = "Map, filter, flat_map and select"
WINDOW = "window_start window_end"


@dataclass
class Price:
    v: int
    price: float


class PriceTuple(NamedTuple):
    v: int
    price: float


class Typed(TypedDict):
    v: int
    price: float


def test_map_adds_columns_by_expressions(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (2,)], [(None,)]).with_columns(double=col("v") * 2, one=1)
    case.gives(rows, "v double one", (1, 2, 1), (2, 4, 1), (None, None, 1))


def test_all_columns_of_a_map_are_computed_from_the_row_as_it_came(case: Case) -> None:
    rows = case.untimed_source("a:int64 b:int64", [(1, 10), (2, 20)]).with_columns(a=col("b"), b=col("a"))
    case.gives(rows, "a b", (10, 1), (20, 2))


@everywhere
def test_a_row_function_may_give_a_dataclass(case: Case) -> None:
    def set_price(row: Any) -> Price:
        return Price(row.v, row.v / 2)

    case.gives(case.untimed_source("v", [(1,), (2,)]).map(set_price), "v price", (1, 0.5), (2, 1.0))


def test_a_row_function_may_give_a_named_tuple(case: Case) -> None:
    def set_price(row: Any) -> PriceTuple:
        return PriceTuple(row.v, row.v / 2)

    case.gives(case.untimed_source("v", [(1,), (2,)]).map(set_price), "v price", (1, 0.5), (2, 1.0))


def test_a_row_function_may_give_a_typed_dict(case: Case) -> None:
    def set_price(row: Any) -> Typed:
        return {"v": row.v, "price": row.v / 2}

    case.gives(case.untimed_source("v", [(1,), (2,)]).map(set_price), "v price", (1, 0.5), (2, 1.0))


def test_a_row_function_may_give_a_dict_of_a_declared_schema(case: Case) -> None:
    rows = case.untimed_source("v key", [(1, "a"), (None, None)])
    mapped = rows.map(lambda row: {**row, "null": row.v is None}, schema={"v": int, "key": str, "null": bool})
    case.gives(mapped, "v key null", (1, "a", False), (None, None, True))


@everywhere
def test_a_batch_function_maps_whole_batches(case: Case) -> None:
    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pc.multiply(batch["v"], 2)], names=["v"])

    rows = case.untimed_source("v", [(1,), (2,)], [], [(3,)]).map(ps.batch(double, schema={"v": "int64"}))
    case.gives(rows, "v", (2,), (4,), (6,))


def test_filter_keeps_what_is_true_and_null_is_not(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (5,)], [(None,), (7,)]).filter(col("v") > 4, name="f")
    outcome = case.gives(rows, "v", (5,), (7,))
    assert outcome.account("f").filtered == 2


def test_filter_by_a_row_function(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (5,), (7,)]).filter(lambda row: row.v > 4, name="f")
    assert case.gives(rows, "v", (5,), (7,)).account("f").filtered == 1


def test_filter_by_a_batch_function(case: Case) -> None:
    rows = case.untimed_source("v", [(1,), (5,)], [(None,), (7,)])
    filtered = rows.filter(ps.batch(lambda batch: pc.greater(batch["v"], 4)), name="f")
    assert case.gives(filtered, "v", (5,), (7,)).account("f").filtered == 2


def test_flat_map_by_an_expression_gives_a_row_per_item(case: Case) -> None:
    rows = case.untimed_source("line:string v", [("the whale the sea", 1), ("", 2)], [("call", 3)])
    words = rows.flat_map(line=col("line").str.split(" "), name="words")
    outcome = case.gives(
        words, "line v", ("the", 1), ("whale", 1), ("the", 1), ("sea", 1), ("", 2), ("call", 3)
    )
    assert (outcome.account("words").passed, outcome.account("words").rows_out) == (3, 6)


def test_flat_map_gives_no_row_for_an_empty_list_and_none_for_null(case: Case) -> None:
    schema = {"xs": list[int], "v": "int64"}
    rows = case.graph.source(cut("xs v", [([], 1), (None, 2), ([7, None], 3)], schema=schema))
    outcome = case.gives(rows.flat_map(xs=col("xs"), name="f"), "xs v", (7, 3), (None, 3))
    assert outcome.account("f").passed == 3


def test_flat_map_by_a_row_function_gives_any_number_of_rows(case: Case) -> None:
    def times(row: Any) -> Iterator[PriceTuple]:
        return (PriceTuple(row.v, float(i)) for i in range(row.v))

    rows = case.untimed_source("v", [(2,), (0,), (1,)]).flat_map(times, name="f")
    outcome = case.gives(rows, "v price", (2, 0.0), (2, 1.0), (1, 0.0))
    assert outcome.account("f").passed == 3


def test_flat_map_keeps_the_order_of_what_it_gives(case: Case) -> None:
    rows = case.timed_source("t v", [(2, 20), (1, 10)], delay=10)
    parts = rows.flat_map(lambda row: [{"v": row.v + i} for i in (3, 1, 2)], schema={"v": "int64"})
    case.gives(
        parts.window(ps.tumbling(10)).aggregate(vs=ps.collect("v")),
        f"{WINDOW} vs",
        (0, 10, [13, 11, 12, 23, 21, 22]),
    )


def test_flat_map_by_a_batch_function_may_change_the_number_of_rows(case: Case) -> None:
    def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(batch["v"].to_pylist() * 2)], names=["v"])

    rows = case.untimed_source("v", [(1,)], [(2,)]).flat_map(ps.batch(twice, schema={"v": "int64"}))
    case.gives(rows, "v", (1,), (1,), (2,), (2,))


def test_select_keeps_the_named_columns_in_that_order(case: Case) -> None:
    rows = case.untimed_source("key v", [("a", 1), ("b", 2)]).select("v", "key", twice=col("v") * 2)
    case.gives(rows, "v key twice", (1, "a", 2), (2, "b", 4))


def test_a_row_keeps_its_time_when_the_time_column_changes_or_goes(case: Case) -> None:
    rows = case.timed_source("t v", [(5, 1), (15, 2)]).with_columns(t=col("t") * 1000).select("v")
    case.gives(rows.window(ps.tumbling(10)).aggregate(s=ps.sum("v")), f"{WINDOW} s", (0, 10, 1), (10, 20, 2))


class RowNumbers:
    """Numbers the rows it sees: state in the object itself."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, row: Any) -> dict[str, int]:
        self.seen += 1
        return {"v": row.v, "number": self.seen}


def test_a_callable_object_is_copied_so_that_every_run_begins_anew(case: Case) -> None:
    numbering = RowNumbers()
    memory = ps.write.memory()
    mapped = case.untimed_source("v", [(5,), (6,)], [(7,)]).map(
        numbering, schema={"v": "int64", "number": "int64"}
    )
    mapped.sink(memory)
    for _ in range(2):
        case.graph.run(case.engine)
        numbers = sorted(row["number"] for row in memory.rows())
        assert numbers in copies_of(case.engine, 3)
    assert numbering.seen == 0


def copies_of(engine: str, n: int) -> list[list[int]]:
    """What one copy that counts n rows, or several that share them, can count; Spark has a copy per task."""
    if engine != "spark":
        return [list(range(1, n + 1))]
    shares = ([first, n - first] for first in range(n // 2 + 1))
    return [sorted(number for share in shared for number in range(1, share + 1)) for shared in shares]


def test_every_replica_has_a_copy_of_a_callable_object(case: Case) -> None:
    rows = case.untimed_source("v", [(5,), (6,)], [(7,)])
    mapped = rows.map(
        RowNumbers(), schema={"v": "int64", "number": "int64"}, routing="broadcast", parallelism=2
    )
    result = sorted((row["v"], row["number"]) for row in case.run(mapped).rows())
    assert result[::2] == result[1::2]
    assert [v for v, _ in result[::2]] == [5, 6, 7]
    assert sorted(number for _, number in result[::2]) in copies_of(case.engine, 3)


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("bool", (True, False, None)),
        ("int8", (-128, 127, None)),
        ("int64", (2**63 - 1, -(2**63), None)),
        ("float32", (0.5, float("inf"), None)),
        ("float64", (float("nan"), -0.0, 5e-324, None)),
        ("string", ("", "e\u0301", "🌊", "\x00", None)),
        ("binary", (b"", b"\x00\xff", None)),
        ("list<int64>", ([], [1, None], None)),
    ],
)
def test_values_of_every_type_pass_through_unchanged(case: Case, type_: str, values: tuple[Any, ...]) -> None:
    types: dict[str, Any] = {"list<int64>": list[int]}
    rows = case.graph.source(
        ps.read.batches([[{"x": value}] for value in values], schema={"x": types.get(type_, type_)})
    )
    expressed = rows.filter(ps.lit(True)).with_columns(y=col("x"))
    functional = expressed.map(lambda row: {"x": row.x, "y": row.y}, schema=expressed.schema)
    case.gives(functional, "x y", *((value, value) for value in values))


def test_a_stream_without_time_runs_through_stateless_steps(case: Case) -> None:
    rows = case.untimed_source("v", [(3,), (1,)], [(2,)])
    case.gives(rows.with_columns(v=col("v") + 1).filter(col("v") > 2), "v", (4,), (3,))
