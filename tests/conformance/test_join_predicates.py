"""What makes two rows a pair: expressions over both, functions of batches, keys and bands of every type."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from tests.conformance.case import Case
from tests.conformance.test_stream_join import BOTH, SAME, lefts, rights

FEATURE = "Join predicates"
NAN, INF = float("nan"), float("inf")
MOST, LEAST = 2**63 - 1, -(2**63)
V, W = ps.left("v"), ps.right("w")


def pairs_of(case: Case, type_: str, xs: list[Any], ys: list[Any], on: Any) -> list[tuple[int, int]]:
    """The places of the values that were paired, for columns x and y of one type (or "one other")."""
    one, _, other = type_.partition(" ")
    left = case.timed_source(f"t i:int64 x:{one}", [(1, i, x) for i, x in enumerate(xs)], name="left")
    right = case.timed_source(
        f"u:int64 j:int64 y:{other or one}", [(1, j, y) for j, y in enumerate(ys)], name="right"
    )
    rows = case.run(left.join(right, on=on, within=1)).rows()
    return sorted((row["i"], row["j"]) for row in rows)


KEYS: dict[str, tuple[str, list[Any], list[Any]]] = {
    "text": ("string", ["a", "ä", "", None], ["ä", "", "A", None]),
    "bytes": ("binary", [b"\x00", b"", b"\x00\x00", None], [b"", b"\x00\x00", b"\x01", None]),
    "bool": ("bool", [True, False, None], [False, True, None]),
    "int8": ("int8", [-128, 127, 0, None], [127, -128, 1, None]),
    "int64": ("int64", [LEAST, MOST, 2**53 + 1], [MOST, LEAST, 2**53]),
    "float32": ("float32", [0.1, NAN, -0.0, INF], [NAN, 0.0, INF, 0.5]),
    "float64": ("float64", [0.1, NAN, -0.0, -INF], [NAN, 0.0, -INF, 0.5]),
    "date": ("date32", [date(1969, 12, 31), date(2024, 2, 29), None], [date(2024, 2, 29), date(1970, 1, 1)]),
    "decimal": ("decimal(5, 2)", [Decimal("1.50"), Decimal("-0.01")], [Decimal("1.5"), Decimal("0.01")]),
}
PAIRS = {
    "text": [(1, 0), (2, 1)],
    "bytes": [(1, 0), (2, 1)],
    "bool": [(0, 1), (1, 0)],
    "int8": [(0, 1), (1, 0)],
    "int64": [(0, 1), (1, 0)],
    "float32": [(1, 0), (2, 1), (3, 2)],
    "float64": [(1, 0), (2, 1), (3, 2)],
    "date": [(1, 0)],
    "decimal": [(0, 0)],
}


def keyed_source(case: Case, name: str, type_: str, values: list[Any]) -> ps.MultiPipe:
    """A source with a column of one type, and the places of its values."""
    time, place, column = ("t", "i", "x") if name == "left" else ("u", "j", "y")
    schema = {time: "int64", place: "int64", column: type_}
    rows = [{time: 1, place: n, column: value} for n, value in enumerate(values)]
    reader = ps.read.batches([rows], schema=schema)
    return case.graph.source(reader, time=time, time_unit="s", delay="0 s", name=name)


@pytest.mark.parametrize("on", ["equal", "expression"])
@pytest.mark.parametrize("kind", list(KEYS))
def test_columns_of_every_plain_type_can_be_equal(case: Case, kind: str, on: str) -> None:
    type_, xs, ys = KEYS[kind]
    left, right = keyed_source(case, "left", type_, xs), keyed_source(case, "right", type_, ys)
    term = ps.equal("x", "y") if on == "equal" else ps.left("x") == ps.right("y")
    rows = case.run(left.join(right, on=term, within=1)).rows()
    assert sorted((row["i"], row["j"]) for row in rows) == PAIRS[kind]


def test_several_equal_columns_must_all_be_equal(case: Case) -> None:
    left = case.timed_source("t key v", [(1, "a", 1), (1, "a", 2), (1, None, 1), (1, "b", None)], name="left")
    right = case.timed_source(
        "u:int64 key w:int64", [(1, "a", 1), (1, "b", 2), (1, None, 1), (1, "b", None)], name="right"
    )
    joined = left.join(right, on=["key", ps.equal("v", "w")], within=1)
    case.gives(joined, "t key v u w", (1, "a", 1, 1, 1))


def test_an_equality_and_more_in_one_expression_pair_what_fulfils_both(case: Case) -> None:
    left = case.timed_source("t key v", [(1, "a", 5), (1, "a", 1), (1, None, 9), (2, "b", 4)], name="left")
    right = case.timed_source(
        "u:int64 key w:int64", [(1, "a", 3), (1, "b", 3), (1, None, 1), (3, "a", 4)], name="right"
    )
    joined = left.join(right, on=(V > W) & (ps.left("key") == ps.right("key")), within=2, suffix="_r")
    columns = "t key v u key_r w"
    case.gives(joined, columns, (1, "a", 5, 1, "a", 3), (1, "a", 5, 3, "a", 4), (2, "b", 4, 1, "b", 3))


@pytest.mark.parametrize("how", ["left", "full", "anti"])
def test_an_equality_in_an_expression_leaves_the_same_rows_alone(case: Case, how: Any) -> None:
    left = case.timed_source("t key v", [(1, "a", 5), (1, "c", 1), (1, None, 9)], name="left")
    right = case.timed_source("u:int64 key w:int64", [(1, "a", 3), (1, "d", 2), (1, None, 1)], name="right")
    joined = left.join(right, on=ps.left("key") == ps.right("key"), within=2, how=how, suffix="_r")
    alone = {"left": 2, "full": 4, "anti": 2}[how]
    rows = case.run(joined).rows()
    assert len(rows) == alone + (how != "anti")


def test_a_pair_that_is_not_equal_never_fails_the_rest_of_the_expression(case: Case) -> None:
    left = case.timed_source("t key v", [(1, "a", 6), (1, "b", 6), (1, None, 6)], name="left")
    right = case.timed_source("u:int64 key w:int64", [(1, "a", 2), (1, "b", 0), (1, None, 0)], name="right")
    on = (V // W == 3) & (ps.left("key") == ps.right("key"))
    joined = left.join(right, on=on, within=1, suffix="_r", on_error="skip", name="pairs")
    outcome = case.run(joined)
    assert [row["key"] for row in outcome.rows()] == ["a"]
    assert outcome.account("pairs").errors == 1, "b has a zero; null equals nothing, so it is not asked"


def test_two_streams_can_be_joined_twice_in_one_graph(case: Case) -> None:
    left = case.timed_source("t key v", [(1, "a", 5), (1, "b", 1)], name="left")
    right = case.timed_source("u:int64 key w:int64", [(1, "a", 3), (1, "b", 7)], name="right")
    equal = left.join(right, on="key", within=1, name="equal")
    near = right.join(left, on=ps.left("w") < ps.right("v"), within=1, suffix="_r", name="less")
    outcome = case.run(equal, near)
    assert sorted((row["key"], row["w"]) for row in outcome.rows(0)) == [("a", 3), ("b", 7)]
    assert [(row["key"], row["key_r"]) for row in outcome.rows(1)] == [("a", "a")]


def test_equal_columns_of_one_name_come_once_each(case: Case) -> None:
    left = case.timed_source("t key v", [(1, "a", 1), (1, "a", 2)], name="left")
    right = case.timed_source("u:int64 key v", [(1, "a", 1), (1, "b", 2)], name="right")
    case.gives(left.join(right, on=["key", "v"], within=1), "t key v u", (1, "a", 1, 1))


@pytest.mark.parametrize(
    ("type_", "width", "x", "y", "joins"),
    [
        ("int64", 0, MOST, MOST, True),
        ("int64", 10, MOST, LEAST, False),
        ("int64", 2**64, MOST, LEAST, True),
        ("int64", 2**64 - 1, LEAST, MOST, True),
        ("int64", 2**64 - 2, LEAST, MOST, False),
        ("int64", 1, 2**53, 2**53 + 1, True),
        ("int64", 0.5, 3, 3, True),
        ("int64", 0.5, 3, 4, False),
        ("int8 int64", 1, 127, 128, True),
        ("int8", 255, -128, 127, True),
        ("int8", 254, -128, 127, False),
        ("float64", 0.5, 1.0, 1.5, True),
        ("float64", 1, 1.0, 2.0000000001, False),
        ("float64", 0, -0.0, 0.0, True),
        ("float64", 5, INF, INF, False),
        ("float64", 5, NAN, NAN, False),
        ("float64", 1e300, -1e308, 1e308, False),
        ("int64 float64", 0.5, 2, 2.5, True),
        ("int64 float64", 0.5, 2, 2.75, False),
        ("int64 float64", 0, 2**53 + 1, float(2**53), True),  # the difference is taken in float64
        ("float32 float64", 0.0, 0.5, 0.5, True),
        ("float32 float64", 0.0, 0.1, 0.1, False),  # 0.1 in float32 is not 0.1
        ("int64", 5, None, 1, False),
        ("float64", 5, 1.0, None, False),
    ],
)
@pytest.mark.parametrize("swap", [False, True], ids=["", "swapped"])
def test_a_band_is_exact_for_integers_and_in_float64_otherwise(
    case: Case, type_: str, width: float, x: Any, y: Any, joins: bool, swap: bool
) -> None:
    if swap:
        type_, x, y = " ".join(reversed(type_.split())), y, x
    got = pairs_of(case, type_, [x], [y], ps.band("x", "y", width))
    assert got == ([(0, 0)] if joins else [])


@pytest.mark.parametrize(("x", "joins"), [(0, False), (1, False), (2, True)])
def test_a_strict_band_of_width_zero_holds_nothing(case: Case, x: int, joins: bool) -> None:
    on = [ps.band("x", "y", x, strict=True)]
    assert pairs_of(case, "int64", [5], [6], on) == ([(0, 0)] if joins else [])


def test_bands_on_several_attributes_must_all_hold(case: Case) -> None:
    left = case.timed_source("t x:int64 y:float64", [(1, 10, 1.0), (1, 20, 2.0)], name="left")
    right = case.timed_source(
        "u:int64 a:int64 b:float64", [(1, 12, 1.4), (1, 12, 1.6), (1, 19, 2.5), (1, 25, 2.0)], name="right"
    )
    joined = left.join(right, on=[ps.band("x", "a", 2), ps.band("y", "b", 0.5, strict=True)], within=1)
    case.gives(joined, "t x y u a b", (1, 10, 1.0, 1, 12, 1.4))


def test_an_expression_over_both_rows_can_be_the_predicate(case: Case) -> None:
    left = lefts(case, [(1, "a", 5), (1, "b", 9)])
    right = rights(case, [(1, "x", 4), (1, "y", 7)])
    rows = case.run(left.join(right, on=V > W, within=1)).rows()
    assert sorted((row["v"], row["w"]) for row in rows) == [(5, 4), (9, 4), (9, 7)]


def test_an_expression_may_use_columns_of_one_name_on_both_sides(case: Case) -> None:
    rows = case.timed_source("t v", [(1, 1), (2, 2), (3, 3)])
    joined = rows.join(rows, on=ps.left("v") < ps.right("v"), within=1, suffix="_r")
    case.gives(joined, "t v t_r v_r", (1, 1, 2, 2), (2, 2, 3, 3))


def test_expressions_equal_columns_and_bands_must_all_hold(case: Case) -> None:
    left = lefts(case, [(1, "a", 10), (1, "b", 10)])
    right = rights(case, [(1, "a", 9), (1, "a", 12), (1, "a", 20), (1, "b", 8)])
    on = [(W > V) | (ps.right("k") == "b"), SAME, ps.band("v", "w", 5)]
    case.gives(left.join(right, on=on, within=1), BOTH, (1, "a", 10, 1, "a", 12), (1, "b", 10, 1, "b", 8))


def test_an_expression_that_is_null_is_not_true(case: Case) -> None:
    left = lefts(case, [(1, "a", None), (1, "b", 2)])
    right = rights(case, [(1, "x", 1), (1, "y", None)])
    case.gives(left.join(right, on=V > W, within=1), BOTH, (1, "b", 2, 1, "x", 1))


def test_an_expression_may_let_null_meet_null(case: Case) -> None:
    left, right = lefts(case, [(1, "a", None), (1, "b", 2)]), rights(case, [(1, "x", 1), (1, "y", None)])
    joined = left.join(right, on=V.is_null() & W.is_null(), within=1)
    case.gives(joined, BOTH, (1, "a", None, 1, "y", None))


def test_an_expression_compares_numbers_of_two_widths_and_nan_is_greatest(case: Case) -> None:
    on = ps.left("x") <= ps.right("y")
    got = pairs_of(case, "int64 float64", [1, 2**53 + 1], [0.5, float(2**53), NAN], on)
    assert got == [(0, 1), (0, 2), (1, 1), (1, 2)]  # in float64 the two great numbers are one


def test_an_expression_may_compute_with_text_and_time(case: Case) -> None:
    left = lefts(case, [(1, "abc", 1), (2, "b", 2)])
    right = rights(case, [(1, "A", 1), (3, "B", 2)])
    on = ps.left("key").str.starts_with("a") & (ps.right("u") - ps.left("t") >= 2)
    case.gives(left.join(right, on=on, within=5), BOTH, (1, "abc", 1, 3, "B", 2))


def test_an_expression_of_one_side_filters_that_side(case: Case) -> None:
    left = lefts(case, [(1, "a", 1), (1, "b", 2)])
    right = rights(case, [(1, "x", 1)])
    case.gives(left.join(right, on=V == 2, within=1), BOTH, (1, "b", 2, 1, "x", 1))


@pytest.mark.parametrize("columns", ["left.v right.v", "v left.v"])
def test_columns_may_have_names_that_look_like_those_of_a_side(case: Case, columns: str) -> None:
    one, other = columns.split()
    schema = {"t": "int64", one: "int64"}
    left = case.graph.source(
        ps.read.batches([[{"t": 1, one: 5}]], schema=schema), time="t", time_unit="s", delay="0 s"
    )
    reader = ps.read.batches(
        [[{"u": 1, other: 5}, {"u": 1, other: 6}]], schema={"u": "int64", other: "int64"}
    )
    right = case.graph.source(reader, time="u", time_unit="s", delay="0 s", name="right")
    joined = left.join(right, on=ps.left(one) == ps.right(other), within=1)
    assert [row[other] for row in case.run(joined).rows()] == [5]


def test_a_pair_on_which_an_expression_fails_stops_the_run(case: Case) -> None:
    joined = lefts(case, [(1, "a", 4)]).join(rights(case, [(1, "x", 0)]), on=V // W > 1, within=1, name="j")
    with pytest.raises(ps.FunctionError, match="failed on a row") as failure:
        case.run(joined)
    assert failure.value.step == "j"
    assert "zero" in (failure.value.detail or "")


def test_pairs_on_which_an_expression_fails_go_to_the_dead_letters(case: Case) -> None:
    left = lefts(case, [(1, "a", 4)], delay=10)
    right = rights(case, [(1, "x", 2), (1, "y", 0)], delay=10)
    joined = left.join(right, on=V // W > 1, within=1, name="j", on_error="dead_letter")
    outcome = case.run(joined, joined.errors)
    assert outcome.values("k") == ["x"]
    (letter,) = outcome.rows(1)
    assert (letter["v"], letter["k"], letter["error_step"]) == (4, "y", "j")
    assert outcome.account("j").errors == 1


def refuse(left: ps.Row, right: ps.Row) -> bool:
    """A function that fails on every pair, and says on which."""
    raise ValueError(f"{left.v} and {right.w}")


def test_every_pair_goes_to_the_dead_letters_with_its_own_error(case: Case) -> None:
    #  newer rows come first, so the pairs are not found in the order in which they leave
    left = lefts(case, [(3, "a", 3), (2, "a", 2), (1, "a", 1)], delay=10)
    right = rights(case, [(4, "x", 6), (2, "y", 5), (1, "z", 4)], delay=10)
    joined = left.join(right, on=refuse, within=5, name="j", on_error="dead_letter")
    letters = case.run(joined, joined.errors).rows(1)
    assert sorted((row["v"], row["w"]) for row in letters) == [(v, w) for v in (1, 2, 3) for w in (4, 5, 6)]
    assert all(f"{row['v']} and {row['w']}" in row["error"] for row in letters)


def test_an_expression_is_not_asked_about_pairs_that_equal_columns_rule_out(case: Case) -> None:
    left, right = lefts(case, [(1, "a", 4)]), rights(case, [(1, "b", 0), (1, "a", 2)])
    case.gives(left.join(right, on=[V // W > 1, SAME], within=1), BOTH, (1, "a", 4, 1, "a", 2))


def test_an_expression_that_is_false_keeps_the_next_from_failing(case: Case) -> None:
    left, right = lefts(case, [(1, "a", 4)]), rights(case, [(1, "b", 0), (1, "a", 2)])
    case.gives(left.join(right, on=[W > 0, V // W > 1], within=1), BOTH, (1, "a", 4, 1, "a", 2))


def less(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    """Whether v < w, of batches of pairs."""
    assert left.num_rows == right.num_rows
    return pc.less(left["v"], right["w"])


def test_a_function_of_two_batches_can_be_the_predicate(case: Case) -> None:
    left = lefts(case, [(1, "a", 5), (1, "b", None)], [(2, "c", 1)], delay=5)
    right = rights(case, [(1, "x", 4), (1, "y", 7)], [(2, "z", None)], delay=5)
    rows = case.run(left.join(right, on=ps.batch(less), within=5)).rows()
    assert sorted((row["v"], row["w"]) for row in rows) == [(1, 4), (1, 7), (5, 7)]


def test_a_batch_function_sees_only_pairs_that_the_other_terms_allow(case: Case) -> None:
    def exact(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
        return pc.equal(pc.divide_checked(left["v"], right["w"]), 2)

    left, right = lefts(case, [(1, "a", 4)]), rights(case, [(1, "b", 0), (1, "a", 2), (1, "a", 0)])
    on = [ps.batch(exact), SAME, W > 0]
    case.gives(left.join(right, on=on, within=1), BOTH, (1, "a", 4, 1, "a", 2))


def divide(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.Array:
    """A function that cannot handle a zero."""
    return pc.equal(pc.divide_checked(left["v"], right["w"]), 2)


def test_only_the_pairs_that_fail_by_themselves_are_errors_of_a_batch_function(case: Case) -> None:
    left = lefts(case, [(1, "a", 4)], delay=10)
    right = rights(case, [(1, "x", 2), (1, "y", 0), (1, "z", 2)], delay=10)
    joined = left.join(right, on=ps.batch(divide), within=1, name="j", on_error="dead_letter")
    outcome = case.run(joined, joined.errors)
    assert outcome.bag("k") == ["x", "z"]
    assert outcome.values("k", 1) == ["y"]
    assert outcome.account("j").errors == 1


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize(
    ("result", "fact"),
    [
        (pa.array([1]), "gave int64, not a boolean array"),
        ([True], "gave list, not a boolean array"),
        (pa.array([True] * 7), "gave 7 answers for"),
    ],
)
def test_a_batch_function_without_an_answer_for_each_pair_stops_the_run(
    case: Case, result: Any, fact: str, on_error: Any
) -> None:
    left, right = lefts(case, [(1, "a", 4)]), rights(case, [(1, "x", 2)])
    joined = left.join(right, on=ps.batch(lambda x, y: result), within=1, name="j", on_error=on_error)
    with pytest.raises(ps.FunctionError, match=fact) as failure:
        case.run(joined)
    assert failure.value.step == "j"


class Counter:
    """A callable that counts its calls: one copy for each run."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, left: Any, right: Any) -> bool:
        self.calls += 1
        return self.calls > 0


def test_a_callable_object_of_the_users_is_left_alone(case: Case) -> None:
    counter = Counter()
    joined = lefts(case, [(1, "a", 1)]).join(rights(case, [(1, "x", 2)]), on=counter, within=1)
    assert len(case.run(joined).rows()) == 1
    assert counter.calls == 0
