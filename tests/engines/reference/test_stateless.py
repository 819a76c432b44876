"""Map, select, filter, flat_map and relay: rows, times, and what becomes of rows that fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import FunctionError
from penstock.expr import col
from penstock.operators.aggregates import collect
from penstock.operators.function import batch as batch_function
from penstock.operators.op import Op, Routing
from penstock.operators.rows import Filter, FlatMap, Map, Relay, Select, WithColumns
from penstock.operators.windows import KeyedWindows
from penstock.plan.plan import Ref
from penstock.timing.windows import count_window
from tests.support.plans import PlanBuilder, PlanRun, errors_port

ROWS = [("a", 1, 10), ("b", 2, 0), ("c", 3, None)]
V = {"v": "int64"}


def through(op: Op, rows: Any = None) -> tuple[PlanRun, Ref]:
    builder = PlanBuilder()
    out = builder.add(op, builder.source(ROWS if rows is None else rows))
    ran = builder.run()
    assert ran.account(out).is_balanced
    return ran, out


def rows_of(op: Op, rows: Any = None) -> list[tuple[Any, ...]]:
    ran, out = through(op, rows)
    return ran.rows(out)


def test_a_map_replaces_columns_in_place_and_adds_others_at_the_end() -> None:
    op = WithColumns(columns={"v": col("v") + 1, "w": col("v")})
    assert rows_of(op) == [("a", 1, 11, 10), ("b", 2, 1, 0), ("c", 3, None, None)]


def test_select_keeps_the_columns_named_in_that_order() -> None:
    op = Select(columns=(("w", col("v")), ("k", col("k"))))
    assert rows_of(op) == [(10, "a"), (0, "b"), (None, "c")]


def test_a_row_function_gives_the_whole_new_row() -> None:
    op = Map(function=lambda row: {"v": (row.v or 0) * 2}, schema=V)
    assert rows_of(op) == [(20,), (0,), (0,)]


def test_a_filter_drops_what_is_false_or_null_and_counts_it() -> None:
    ran, out = through(Filter(predicate=col("v") > 0))
    assert ran.rows(out) == [("a", 1, 10)]
    assert (ran.account(out).passed, ran.account(out).filtered) == (1, 2)


def test_a_filter_function_says_true_false_or_none() -> None:
    assert rows_of(Filter(predicate=lambda row: row.v if row.v is None else row.v > 0)) == [("a", 1, 10)]


def test_a_flat_map_gives_any_number_of_rows_in_the_order_given() -> None:
    def several(row: Any) -> Iterator[dict[str, Any]]:
        for number in range(row.v or 0):
            yield {"v": number}

    assert rows_of(FlatMap(function=several, schema=V), [("a", 1, 2), ("b", 2, 0), ("c", 3, 1)]) == [
        (0,),
        (1,),
        (0,),
    ]


def test_a_flat_map_of_a_list_repeats_the_other_columns_and_a_null_list_has_no_rows() -> None:
    schema = pa.schema([("t", pa.int64()), ("all", pa.list_(pa.int64()))])
    builder = PlanBuilder()
    out = builder.add(
        FlatMap(function={"all": col("all")}), builder.source([(1, [5, 6]), (2, None)], schema=schema)
    )
    ran = builder.run()
    assert ran.rows(out) == [(1, 5), (1, 6)]
    assert ran.account(out).passed == 2


def test_rows_of_a_flat_map_stay_in_the_order_given_when_their_times_are_equal() -> None:
    builder = PlanBuilder()
    rows = builder.source([("a", 1, 3), ("a", 1, 2)])
    flat = builder.add(
        FlatMap(function=lambda row: [{"x": 9 * row.v}, {"x": row.v}], schema={"x": "int64"}), rows
    )
    window = builder.add(KeyedWindows(windows=count_window(4), aggregates={"all": collect("x")}), flat)
    # Without a number of the reader's, index 0 of both rows comes first, and ties go by the columns.
    assert builder.run().rows(window) == [(1, 1, 0, [18, 27, 2, 3])]


def test_a_map_keeps_the_time_of_a_row_though_the_time_column_is_gone() -> None:
    builder = PlanBuilder()
    rows = builder.add(Select(columns=(("v", col("v")),)), builder.source([("a", 7, 1)]))
    out = builder.add(KeyedWindows(windows=count_window(1), aggregates={"all": collect("v")}), rows)
    assert builder.run().rows(out) == [(7, 7, 0, [1])]


def test_a_failing_row_stops_the_run_and_names_step_function_line_and_row() -> None:
    def clean(row: Any) -> dict[str, Any]:
        return {"v": 1 // row.v}

    with pytest.raises(FunctionError) as failure:
        through(Map(function=clean, schema=V, name="tidy"), [("b", 2, 0)])
    assert failure.value.fact.endswith("clean failed on a row")
    assert failure.value.step == "tidy"
    assert "test_stateless.py" in str(failure.value.where)
    assert "ZeroDivisionError" in str(failure.value.detail)
    assert "Row(k='b', t=2, v=0)" in str(failure.value.detail)
    assert "on_error" in str(failure.value.hint)
    assert isinstance(failure.value.__cause__, ZeroDivisionError)


def test_a_failing_expression_stops_the_run_and_is_shown() -> None:
    with pytest.raises(FunctionError, match="expression w=1 // col") as failure:
        through(WithColumns(columns={"w": 1 // col("v")}, name="tidy"), [("b", 2, 0)])
    assert str(failure.value.where) == "program.py:1"


def test_skip_counts_the_rows_that_fail() -> None:
    ran, out = through(WithColumns(columns={"w": 10 // col("v")}, on_error="skip"))
    assert ran.rows(out) == [("a", 1, 10, 1), ("c", 3, None, None)]
    assert (ran.account(out).passed, ran.account(out).errors) == (2, 1)


def test_dead_letter_sends_the_row_as_it_came_with_the_reason_and_the_step() -> None:
    op = Filter(predicate=lambda row: 1 / row.v > 0, on_error="dead_letter", name="f")
    ran, out = through(op)
    assert ran.rows(errors_port(out)) == [
        ("b", 2, 0, "ZeroDivisionError: division by zero", "f"),
        ("c", 3, None, "TypeError: unsupported operand type(s) for /: 'int' and 'NoneType'", "f"),
    ]


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (
            Map(function=lambda row: 5, schema=V, on_error="dead_letter"),
            "not a dict, dataclass or NamedTuple",
        ),
        (Map(function=lambda row: {"v": "x"}, schema=V, on_error="dead_letter"), 'column "v"'),
        (Filter(predicate=lambda row: "yes", on_error="dead_letter"), "gave 'yes', not True or False"),
        (FlatMap(function=lambda row: {"v": 1}, schema=V, on_error="dead_letter"), "not an iterable of rows"),
        (FlatMap(function=lambda row: None, schema=V, on_error="dead_letter"), "not an iterable of rows"),
    ],
)
def test_what_is_not_a_row_of_the_schema_is_a_row_error(op: Op, reason: str) -> None:
    ran, out = through(op, [("a", 1, 1)])
    assert reason in ran.rows(errors_port(out))[0][3]


def test_when_a_flat_map_fails_midway_none_of_its_rows_leave() -> None:
    def broken(row: Any) -> Iterator[dict[str, Any]]:
        yield {"v": 1}
        raise ValueError("no more")

    ran, out = through(FlatMap(function=broken, schema=V, on_error="skip"), [("a", 1, 1)])
    assert ran.rows(out) == []
    assert ran.account(out).errors == 1


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.multiply_checked(batch["v"], 2)], names=["v"])


def test_a_batch_function_maps_the_rows_of_a_round() -> None:
    assert rows_of(Map(function=batch_function(double, schema=V))) == [(20,), (0,), (None,)]


def test_a_batch_function_is_not_called_without_rows() -> None:
    def never(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise AssertionError("called")

    assert rows_of(Map(function=batch_function(never, schema=V)), []) == []


def test_a_batch_function_filters_by_a_boolean_array() -> None:
    op = Filter(predicate=batch_function(lambda batch: pc.greater(batch["v"], 0)))
    assert rows_of(op) == [("a", 1, 10)]


def test_a_batch_function_in_flat_map_gives_any_number_of_rows() -> None:
    op = FlatMap(function=batch_function(lambda batch: double(batch).slice(0, 1), schema=V))
    assert rows_of(op) == [(20,)]


@pytest.mark.parametrize(("keep", "times"), [(2, [(1, 1), (2, 2)]), (1, [(2, 2)])])
def test_rows_of_a_batch_flat_map_have_their_counterparts_time_or_the_last_one(
    keep: int, times: list[tuple[int, int]]
) -> None:
    builder = PlanBuilder()
    op = FlatMap(function=batch_function(lambda batch: double(batch).slice(0, keep), schema=V))
    flat = builder.add(op, builder.source([("a", 1, 1), ("a", 2, 2)]))
    out = builder.add(KeyedWindows(windows=count_window(1), aggregates={"all": collect("v")}), flat)
    assert [row[:2] for row in builder.run().rows(out)] == times


def test_a_batch_function_that_raises_is_tried_row_by_row_when_errors_are_let_by() -> None:
    op = Map(function=batch_function(double, schema=V), on_error="dead_letter")
    ran, out = through(op, [("a", 1, 1), ("b", 2, 2**62), ("c", 3, 3)])
    assert ran.rows(out) == [(2,), (6,)]
    assert [row[:3] for row in ran.rows(errors_port(out))] == [("b", 2, 2**62)]


def test_a_batch_function_that_raises_stops_the_run_otherwise() -> None:
    with pytest.raises(FunctionError, match="double failed on a batch") as failure:
        through(Map(function=batch_function(double, schema=V)), [("b", 2, 2**62)])
    assert "test_stateless.py" in str(failure.value.where)


@pytest.mark.parametrize(
    ("op", "fact"),
    [
        (Map(function=batch_function(lambda b: 1, schema=V), on_error="skip"), "gave int, not a RecordBatch"),
        (
            Map(function=batch_function(lambda b: b, schema=V), on_error="skip"),
            "gave other columns than it declared",
        ),
        (
            Map(function=batch_function(lambda b: double(b)[:1], schema=V), on_error="skip"),
            "gave 1 rows for 3",
        ),
        (
            Filter(predicate=batch_function(lambda b: b["v"]), on_error="skip"),
            "gave int64, not a boolean array",
        ),
        (
            Filter(predicate=batch_function(lambda b: [True]), on_error="skip"),
            "gave list, not a boolean array",
        ),
    ],
)
def test_a_batch_function_that_gives_the_wrong_shape_stops_the_run_whatever_on_error_says(
    op: Op, fact: str
) -> None:
    with pytest.raises(FunctionError, match=fact):
        through(op)


class Counter:
    """A callable object with a state of its own."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, row: Any) -> dict[str, Any]:
        self.calls += 1
        return {"v": self.calls}


def test_a_broadcast_gives_one_copy_per_replica_and_each_replica_has_its_own_callable() -> None:
    counter = Counter()
    builder = PlanBuilder()
    op = Map(function=counter, schema=V)
    out = builder.add(op, builder.source(ROWS[:2]), degree=2, routing=Routing.BROADCAST)
    ran = builder.run()
    assert ran.rows(out) == [(1,), (2,), (1,), (2,)]
    assert (ran.account(out).rows_in, ran.account(out).passed) == (4, 4)
    assert builder.run().rows(out) == ran.rows(out), "a second run starts anew"
    assert counter.calls == 0


def test_any_other_routing_makes_the_degree_invisible() -> None:
    builder = PlanBuilder()
    out = builder.add(Relay(), builder.source(ROWS), degree=3, routing=Routing.REBALANCE)
    assert builder.run().rows(out) == ROWS


def test_a_callable_that_cannot_be_copied_is_refused() -> None:
    class Stubborn(Counter):
        def __deepcopy__(self, memo: object) -> Counter:
            raise TypeError("one of a kind")

    with pytest.raises(FunctionError, match="cannot be copied") as failure:
        through(Map(function=Stubborn(), schema=V))
    assert failure.value.detail == "TypeError: one of a kind"
