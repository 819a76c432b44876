"""State per key: order, lateness, and the four steps that have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from penstock.operators.op import Op
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map
from penstock.plan.plan import Ref
from tests.support.plans import PlanBuilder, PlanRun, Rows, batch, errors_port, late_port


def run_state(op: Op, *batches: Rows, delay: int = 0) -> tuple[PlanRun, Ref]:
    builder = PlanBuilder()
    out = builder.add(op, builder.source(*batches, delay=delay), key=("k",))
    ran = builder.run()
    assert ran.account(out).is_balanced
    return ran, out


def running_sum(**options: Any) -> Accumulate:
    return Accumulate(function=lambda row, state: state + row.v, init=0, schema={"sum": "int64"}, **options)


def test_accumulate_gives_the_key_and_the_new_state_for_every_row() -> None:
    ran, out = run_state(running_sum(), [("a", 1, 1), ("b", 2, 10), ("a", 3, 2)])
    assert ran.rows(out) == [("a", 1), ("b", 10), ("a", 3)]


def test_rows_reach_the_state_in_order_of_time_once_the_watermark_has_passed_them() -> None:
    ran, out = run_state(running_sum(), [("a", 5, 100)], [("a", 1, 1)], [("a", 3, 10)], delay=10)
    assert ran.rows(out) == [("a", 1), ("a", 11), ("a", 111)]


def test_a_row_waits_until_the_watermark_is_beyond_its_time() -> None:
    builder = PlanBuilder()
    out = builder.add(running_sum(), builder.source(name="s"), key=("k",))
    harness = builder.open_harness()
    harness.push({"s": batch([("a", 1, 1), ("a", 2, 2)])})
    assert harness.take(out).to_pylist() == [{"k": "a", "sum": 1}], "W = 2 has passed 1, not 2"
    harness.promise(3)
    assert harness.take(out).to_pylist() == [{"k": "a", "sum": 3}]


def test_a_row_behind_the_watermark_is_late() -> None:
    ran, out = run_state(running_sum(), [("a", 5, 1)], [("a", 4, 2), ("a", 5, 4)])
    assert ran.rows(out) == [("a", 1), ("a", 5)]
    assert ran.rows(late_port(out)) == [("a", 4, 2)]
    assert ran.account(out).late == 1


def test_without_time_rows_are_handled_as_they_come() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    builder = PlanBuilder()
    rows = builder.source([("a", 5), ("a", 1)], name="s", schema=schema)
    out = builder.add(running_sum(), rows, key=("k",))
    harness = builder.open_harness()
    harness.push({"s": batch([("a", 5), ("a", 1)], schema, seq=[0, 1])})
    assert harness.take(out).to_pylist() == [{"k": "a", "sum": 5}, {"k": "a", "sum": 6}]


@dataclass
class Best:
    best: int
    seen: int


def test_a_state_may_be_a_dataclass_that_names_its_columns() -> None:
    def better(row: Any, state: Best) -> Best:
        return Best(max(state.best, row.v), state.seen + 1)

    ran, out = run_state(Accumulate(function=better, init=Best(0, 0)), [("a", 1, 7), ("a", 2, 3)])
    assert ran.rows(out) == [("a", 7, 1), ("a", 7, 2)]


def test_a_row_that_fails_leaves_the_accumulated_state_alone() -> None:
    ran, out = run_state(running_sum(on_error="dead_letter"), [("a", 1, 1), ("a", 2, None), ("a", 3, 2)])
    assert ran.rows(out) == [("a", 1), ("a", 3)]
    assert [row[:3] for row in ran.rows(errors_port(out))] == [("a", 2, None)]


@pytest.mark.parametrize("schema", [{"sum": "int64"}, {"sum": "int64", "n": "int64"}])
def test_a_state_that_is_not_of_its_schema_is_a_row_error(schema: dict[str, str]) -> None:
    op = Accumulate(function=lambda row, state: "x", init=0, schema=schema, on_error="dead_letter")
    ran, out = run_state(op, [("a", 1, 1)])
    assert ran.rows(errors_port(out))[0][3].startswith("gave str 'x', not a dict")


def seen(row: Any, state: list[int]) -> dict[str, Any]:
    state.append(row.v)
    return {"n": len(state)}


def test_a_map_may_change_the_state_it_is_given() -> None:
    op = Map(function=seen, schema={"n": "int64"}, state=list)
    ran, out = run_state(op, [("a", 1, 1), ("b", 2, 1), ("a", 3, 1)])
    assert ran.rows(out) == [(1,), (1,), (2,)]


def test_a_filter_with_state_keeps_the_first_of_each_value() -> None:
    def fresh(row: Any, state: set[int]) -> bool:
        new = row.v not in state
        state.add(row.v)
        return new

    ran, out = run_state(Filter(predicate=fresh, state=set), [("a", 1, 5), ("a", 2, 5), ("b", 3, 5)])
    assert ran.rows(out) == [("a", 1, 5), ("b", 3, 5)]
    assert ran.account(out).filtered == 1


def test_a_flat_map_with_state_gives_pairs_of_neighbours() -> None:
    def pairs(row: Any, state: list[int]) -> list[dict[str, int]]:
        before = state[-1:]
        state.append(row.v)
        return [{"step": row.v - value} for value in before]

    ran, out = run_state(
        FlatMap(function=pairs, schema={"step": "int64"}, state=list), [("a", 1, 5), ("a", 2, 8)]
    )
    assert ran.rows(out) == [(3,)]
    assert ran.account(out).passed == 2


def test_a_key_of_negative_zero_is_the_key_zero_and_is_shown_so() -> None:
    schema = pa.schema([("k", pa.float64()), ("t", pa.int64()), ("v", pa.int64())])
    builder = PlanBuilder()
    out = builder.add(running_sum(), builder.source([(-0.0, 1, 1), (0.0, 2, 2)], schema=schema), key=("k",))
    assert [(str(key), value) for key, value in builder.run().rows(out)] == [("0.0", 1), ("0.0", 3)]
