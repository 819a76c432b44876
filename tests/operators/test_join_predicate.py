"""Terms of joins: the columns of a pair, what expressions over them read, and the order of tests."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.expr import lower_arrow, type_of
from penstock.operators.join_predicate import (
    Band,
    Equal,
    PairBatchFunction,
    PairColumn,
    PairExpression,
    PairFunction,
    pair_schema,
    terms,
)
from penstock.operators.op import Stream
from penstock.operators.stream_join import ResolvedJoin, StreamJoin
from penstock.timing.units import time_type
from penstock.timing.windows import TimeWindow
from tests.support.evaluation import both

LEFT = pa.schema([("a", pa.int64()), ("x.y", pa.string()), ("t", pa.int64())])
RIGHT = pa.schema([("a", pa.int32()), ("left.a", pa.int64()), ("u", pa.int64())])
TIME = time_type(pa.int64(), "us", "t")
SIDES = (Stream(LEFT, TIME), Stream(RIGHT, TIME))


def near(left: Any, right: Any) -> bool:
    return bool(left.a == right.a)


def test_the_columns_of_a_pair_have_their_sides_before_their_names() -> None:
    schema = pair_schema(LEFT, RIGHT)
    assert schema.names == ["left.a", "left.x.y", "left.t", "right.a", "right.left.a", "right.u"]
    assert schema.field("right.a").type == pa.int32()


@pytest.mark.parametrize("name", ["a", "x.y", "left.a", "right.", "."])
def test_a_column_of_a_side_knows_its_side_and_its_own_name(name: str) -> None:
    column = ps.right(name)
    assert (column.side, column.own_name, column.name) == ("right", name, f"right.{name}")
    assert str(column) == f'right("{name}")'


def test_an_expression_over_a_pair_prints_as_it_was_written() -> None:
    text = str(PairExpression((ps.left("a") * 2 > ps.right("a")) & ps.left("x.y").str.contains("b")))
    assert text == '(left("a") * 2 > right("a")) & left("x.y").str.contains("b")'


def test_an_expression_over_a_pair_is_computed_on_a_batch_of_pairs() -> None:
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2, None, 4]),
            pa.array(["b", "ab", "b", None]),
            pa.array([0, 0, 0, 0]),
            pa.array([1, 3, 1, 0], pa.int32()),
            pa.array([5, 1, 0, 9]),
            pa.array([0, 0, 0, 0]),
        ],
        schema=pair_schema(LEFT, RIGHT),
    )
    expr = (ps.left("a") // ps.right("a") >= 1) & (ps.right("left.a") > 2)
    assert type_of(expr, batch.schema) == pa.bool_()
    computed = lower_arrow(expr, batch.schema)(batch)
    assert computed.values.to_pylist()[:3] == [True, False, False]
    assert computed.failed is not None
    assert computed.failed.to_pylist() == [False, False, False, True]
    assert both(expr, batch)[:3] == [True, False, False]  # plain Python and Arrow


def test_terms_are_in_the_order_in_which_they_are_tested() -> None:
    on = [near, ps.batch(near), ps.left("a") > 1, ps.band("a", 2), ["a", ps.left("a") > 2]]
    kinds = [type(term) for term in terms(on)]
    assert kinds == [Band, Equal, PairExpression, PairExpression, PairFunction, PairBatchFunction]
    assert [str(term) for term in terms(on)][2:4] == ['left("a") > 1', 'left("a") > 2']


def test_a_join_with_an_expression_can_be_sent_to_a_worker() -> None:
    join = StreamJoin(on=["a", ps.left("t") > ps.right("u")], within=5)
    (_, term) = pickle.loads(pickle.dumps(join)).terms  # made a line above
    assert isinstance(term, PairExpression)
    assert term.expr.same_as(ps.left("t") > ps.right("u"))
    assert term.expr.columns() == ("left.t", "right.u")


def test_a_column_of_a_side_is_no_column_of_one_stream() -> None:
    rows = ps.PipeGraph("x").source(ps.read.rows([], schema={"a": int}))
    with pytest.raises(ps.SchemaError, match=r'no column "left\.a"'):
        rows.filter(ps.left("a") > 1)
    assert not isinstance(col("left.a"), PairColumn)


@pytest.mark.parametrize(
    ("options", "resolved"),
    [
        ({"within": (3, 4)}, ResolvedJoin(3, 4, None, 0)),
        ({"within": 3, "lateness": 2}, ResolvedJoin(3, 3, None, 2)),
        ({"last_rows": 7}, ResolvedJoin(0, 0, None, 0, (7, 7))),
        ({"last_rows": (0, 2)}, ResolvedJoin(0, 0, None, 0, (0, 2))),
        ({"window": ps.tumbling(5)}, ResolvedJoin(5, 5, TimeWindow(5, 5), 0)),
        ({"window": ps.sliding(5, 2)}, ResolvedJoin(5, 5, TimeWindow(5, 2), 0)),
    ],
)
def test_a_join_knows_its_bounds_in_microseconds(options: Any, resolved: ResolvedJoin) -> None:
    join = StreamJoin(on=ps.left("a") == ps.right("a"), suffix="_r", **options)
    assert join.resolve(*SIDES) == resolved
    columns = join.outputs({"left": SIDES[0], "right": SIDES[1]})["out"].columns
    assert (
        ("window_start" in columns)
        == resolved.has_window_columns
        == (options.get("window") == ps.sliding(5, 2))
    )


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_joins_give_the_columns_of_the_left(how: str) -> None:
    outputs = StreamJoin(on=near, within=1, how=how).outputs({"left": SIDES[0], "right": SIDES[1]})
    assert outputs["out"].schema == LEFT
    assert outputs["late_right"].schema == RIGHT


K = Stream(
    pa.schema([("k", pa.int64()), ("n", pa.int32()), ("l", pa.list_(pa.int64())), ("t", pa.int64())]), TIME
)
L, R = ps.left, ps.right


@pytest.mark.parametrize(
    ("on", "matched"),
    [
        (L("k") == R("k"), ["k"]),
        (R("t") == L("k"), ["k = t"]),
        ((L("k") == R("k")) & (L("n") > R("n")) & (R("t") == L("t")), ["k", "t", 'left("n") > right("n")']),
        (
            (L("n") > R("n")) & ((L("n") < 5) & (L("k") == R("k"))),
            ["k", '(left("n") > right("n")) & (left("n") < 5)'],
        ),
        ([L("n") > R("n"), L("k") == R("k")], ["k", 'left("n") > right("n")']),
        (L("k") == R("n"), ['left("k") == right("n")']),
        (L("k") == L("t"), ['left("k") == left("t")']),
        (L("k") == R("k") + 1, ['left("k") == right("k") + 1']),
        ((L("k") == R("k")) | (L("n") > 1), ['(left("k") == right("k")) | (left("n") > 1)']),
    ],
    ids=str,
)
def test_equalities_inside_an_expression_are_matched_as_equal_columns(on: Any, matched: list[str]) -> None:
    join = StreamJoin(on=on, within=5, suffix="_r")
    assert [str(term) for term in join.match_terms(K, K)] == matched


def test_equal_columns_that_were_written_as_an_expression_are_both_in_the_result() -> None:
    join = StreamJoin(on=L("k") == R("k"), within=5, suffix="_r")
    outputs = join.outputs({"left": K, "right": K})
    assert outputs["out"].columns == ("k", "n", "l", "t", "k_r", "n_r", "l_r", "t_r")


def test_an_equality_is_tested_before_other_expressions_whatever_was_written_first() -> None:
    on = (L("k") // R("n") > 1) & (L("k") == R("k"))
    assert [str(term) for term in terms(on)] == ['left("k") == right("k")', 'left("k") // right("n") > 1']
