from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import GraphError, SchemaError
from penstock.expr import (
    Expr,
    InputHandling,
    coalesce,
    col,
    concat,
    from_epoch,
    hash,
    lit,
    lower_arrow,
    lower_python,
    to_expr,
    type_of,
    when,
)

A, B = col("a"), col("b")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (A, 'col("a")'),
        (col('say "hi"\n'), 'col("say \\"hi\\"\\n")'),
        ((A + 1) * 2, '(col("a") + 1) * 2'),
        (A + 1 * 2, 'col("a") + 2'),
        (A - (B - 1), 'col("a") - (col("b") - 1)'),
        (A - B - 1, 'col("a") - col("b") - 1'),
        (2 * A / B // 3 % 4, '2 * col("a") / col("b") // 3 % 4'),
        ((A**B) ** 2, '(col("a") ** col("b")) ** 2'),
        (A ** (B**2), 'col("a") ** col("b") ** 2'),
        (-(A + 1), '-(col("a") + 1)'),
        (-lit(1), "-lit(1)"),
        ((A + 1).abs(), '(col("a") + 1).abs()'),
        (lit(-1).abs(), "lit(-1).abs()"),
        (lit(1), "lit(1)"),
        (lit(1, "int8"), 'lit(1, "int8")'),
        (lit(1.0, "float32"), 'lit(1.0, "float32")'),
        (A.round(2), 'col("a").round(2)'),
        (A.round(), 'col("a").round()'),
        ((A > 1) & (B == "x"), '(col("a") > 1) & (col("b") == "x")'),
        (~(A > 1) | B, '~(col("a") > 1) | col("b")'),
        ((A | B) & B, '(col("a") | col("b")) & col("b")'),
        ((A == 1) == B, '(col("a") == 1) == col("b")'),
        (A.between(1, 2), 'col("a").between(1, 2)'),
        (A.is_in([1, "x"]), 'col("a").is_in([1, "x"])'),
        (A.is_null(), 'col("a").is_null()'),
        (A.fill_null(0), 'col("a").fill_null(0)'),
        (A.cast("float32"), 'col("a").cast("float32")'),
        (A.cast(pa.timestamp("us", "UTC")), 'col("a").cast("timestamp[us, UTC]")'),
        (A.field("x"), 'col("a").field("x")'),
        (A.json("u.id[0]", "int64"), 'col("a").json("u.id[0]", "int64")'),
        (coalesce(A, None, 1), 'coalesce(col("a"), None, 1)'),
        (concat(A, "-"), 'concat(col("a"), "-")'),
        (hash(A, B), 'hash(col("a"), col("b"))'),
        (
            when(A > 1).then("x").when(B).then("y").otherwise(None),
            'when(col("a") > 1).then("x").when(col("b")).then("y").otherwise(None)',
        ),
        (A.str.lower().str.slice(-3), 'col("a").str.lower().str.slice(-3)'),
        (A.str.replace("x", "y").str.strip(), 'col("a").str.replace("x", "y").str.strip()'),
        (A.str.strip("-"), 'col("a").str.strip("-")'),
        (A.str.split(",").list.item(0), 'col("a").str.split(",").list.item(0)'),
        (A.str.split(",").list.length(), 'col("a").str.split(",").list.length()'),
        (A.dt.truncate("90 s").dt.epoch("ms"), 'col("a").dt.truncate("90 s").dt.epoch("ms")'),
        (A + "10 s" - timedelta(hours=1), 'col("a") + "10 s" - "1 h"'),
        (from_epoch(A, "ms").dt.weekday(), 'from_epoch(col("a"), "ms").dt.weekday()'),
        (datetime(2024, 5, 1) < A, 'col("a") > datetime.datetime(2024, 5, 1, 0, 0)'),
        (date(2024, 5, 1) == A, 'col("a") == datetime.date(2024, 5, 1)'),
        (Decimal("1.5") == A, "col(\"a\") == Decimal('1.5')"),
        (A == b"\x00", "col(\"a\") == b'\\x00'"),
    ],
)
def test_an_expression_prints_as_it_was_typed(expr: Expr, text: str) -> None:
    assert str(expr) == repr(expr) == text


def test_reflected_operators_keep_the_order_of_the_operands() -> None:
    assert str(1 + A) == '1 + col("a")'
    assert str(1 - A) == '1 - col("a")'
    assert str(1 / A) == '1 / col("a")'
    assert str(1 // A) == '1 // col("a")'
    assert str(1 % A) == '1 % col("a")'
    assert str(2**A) == '2 ** col("a")'
    assert str(True & A) == 'True & col("a")'
    assert str(False | A) == 'False | col("a")'
    assert str(A > 1) == 'col("a") > 1'


def test_numpy_scalars_are_lifted_like_python_values() -> None:
    assert str(np.int64(2) * A) == '2 * col("a")'
    assert str(A & np.bool_(True)) == 'col("a") & True'
    assert str(to_expr(np.float32(0.5))) == "lit(0.5)"
    assert (col("a") > np.datetime64("2024-05-01T00:00:00")).same_as(col("a") > datetime(2024, 5, 1))
    assert (col("a") == np.datetime64("2024-05-01")).same_as(col("a") == date(2024, 5, 1))


def test_columns_are_sorted_and_named_once() -> None:
    assert (B + A * B).columns() == ("a", "b")
    assert lit(1).columns() == ()


def test_children_are_the_operands_in_order() -> None:
    assert [str(child) for child in (A + 1).children()] == ['col("a")', "lit(1)"]
    case = when(A).then(1).otherwise(2)
    assert [str(child) for child in case.children()] == ['col("a")', "lit(1)", "lit(2)"]


def test_same_as_compares_structure() -> None:
    assert (A + 1).same_as(col("a") + 1)
    assert not (A + 1).same_as(A + 1.0)
    assert not (A + 1).same_as(A - 1)
    assert not lit(1).same_as(lit(1, "int8"))
    assert not A.same_as(B)
    assert not A.is_in([1]).same_as(A.is_in([2]))
    assert not concat(A, B).same_as(concat(A))
    assert lit(float("nan")).same_as(lit(float("nan")))


@pytest.mark.slow
def test_a_sum_of_thousands_of_terms_is_no_problem() -> None:
    total: Expr = A
    for _ in range(5000):
        total = total + 1
    schema = pa.schema({"a": pa.int64()})
    assert str(total).endswith("+ 1 + 1")
    assert total.columns() == ("a",)
    assert total.same_as(total + 0) is False
    assert type_of(total, schema) == pa.int64()
    assert lower_python(total, schema)({"a": 1}) == 5001
    assert lower_arrow(total, schema)(pa.RecordBatch.from_pydict({"a": [1]})).values.to_pylist() == [5001]


def test_a_shared_part_is_computed_once() -> None:
    total: Expr = A
    for _ in range(60):
        total = total + total - total
    schema = pa.schema({"a": pa.int64()})
    assert lower_python(total, schema)({"a": 3}) == 3


def test_an_expression_can_be_a_dictionary_key() -> None:
    assert {A: 1}[A] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: A > 1 and B > 2,
        lambda: A > 1 or B > 2,
        lambda: not (A > 1),
        lambda: 1 < A < 2,
        lambda: "yes" if A > 1 else "no",
    ],
)
def test_asking_an_expression_for_the_truth_says_what_to_write(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(GraphError, match="not true or false") as caught:
        wrong()
    assert "& | ~" in str(caught.value.hint)
    assert ".between(" in str(caught.value.hint)


def test_the_precedence_trap_says_where_parentheses_go() -> None:
    with pytest.raises(GraphError, match=r"1 & col\(\"b\"\) does not join two conditions") as caught:
        _ = A > 1 & B > 2
    assert '(col("a") > 1) & (col("b") > 2)' in str(caught.value.hint)
    with pytest.raises(GraphError, match=r"'x' \| col"):
        A | "x"


def test_in_and_iteration_are_refused_with_a_way_out() -> None:
    with pytest.raises(GraphError, match="`in` cannot look into") as caught:
        _ = "x" in A
    assert ".str.contains('x')" in str(caught.value.hint)
    with pytest.raises(GraphError, match="cannot be iterated over"):
        list(A)


def test_a_column_needs_a_name() -> None:
    for wrong in ("", 3, None):
        with pytest.raises(SchemaError, match="cannot name a column"):
            col(wrong)  # type: ignore[arg-type]  # the mistake under test


def test_what_cannot_be_a_literal_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"\[1, 2\] cannot be a literal") as caught:
        _ = A == [1, 2]
    assert ".is_in([...])" in str(caught.value.hint)
    with pytest.raises(SchemaError, match="cannot be a literal"):
        lit(object())
    with pytest.raises(SchemaError, match="does not fit in int64"):
        lit(1 << 63)
    with pytest.raises(SchemaError, match="38 digits"):
        lit(Decimal("1e40"))
    with pytest.raises(SchemaError, match="already an expression"):
        lit(A)
    with pytest.raises(SchemaError, match="out of range for int8"):
        lit(300, "int8")


def test_literals_of_times_keep_their_zone() -> None:
    schema = pa.schema({"a": pa.int64()})
    assert type_of(lit(datetime(2024, 1, 1)), schema) == pa.timestamp("us")
    assert type_of(lit(datetime(2024, 1, 1, tzinfo=UTC)), schema) == pa.timestamp("us", "UTC")
    assert type_of(lit(date(2024, 1, 1)), schema) == pa.date32()
    assert type_of(lit(Decimal("-1.50")), schema) == pa.decimal128(3, 2)


def test_a_literal_beyond_datetime_prints_its_microseconds() -> None:
    assert str(lit(datetime.max) > 0) == "datetime.datetime(9999, 12, 31, 23, 59, 59, 999999) > 0"


def test_a_bare_none_has_no_type() -> None:
    with pytest.raises(SchemaError, match="a bare None has no type"):
        type_of(lit(None), pa.schema({}))


def test_every_node_says_what_it_sees() -> None:
    assert (A + 1).input_handling is InputHandling.STRICT
    assert A.is_null().input_handling is InputHandling.NULLS
    assert (A & B).input_handling is InputHandling.FAILURES
