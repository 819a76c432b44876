"""Plain Python and Arrow give the same value, the same type and the same failures, for every node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock.expr
from penstock.expr import (
    Case,
    Coalesce,
    Expr,
    Literal,
    Node,
    SparkSql,
    coalesce,
    col,
    concat,
    from_epoch,
    hash,
    lit,
    when,
)
from penstock.expr.node import post_order
from penstock.expr.nodes.conversion import find_cast
from penstock.expr.nodes.logic import Comparison
from penstock.expr.values import type_name
from tests.support.evaluation import batch_of, both
from tests.support.examples import examples
from tests.support.expressions import INTEGERS, NUMBERS, ORDERED, PATTERNS, SCHEMA, TYPES, columns, of_type

_BINARY: dict[str, Callable[[Expr, Expr], Expr]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
}
_COMPARED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_NUMBER_LITERALS = (
    0,
    1,
    -1,
    7,
    127,
    128,
    1 << 40,
    -(1 << 63),
    0.0,
    0.1,
    -2.5,
    1e300,
    float("nan"),
    float("inf"),
)


def _arithmetic() -> Iterator[Expr]:
    for left in NUMBERS:
        yield from (-col(left), abs(col(left)), col(left).floor(), col(left).ceil(), col(left).sqrt())
        yield from (col(left).round(digits) for digits in (0, 2, 15))
        for make in _BINARY.values():
            yield from (make(col(left), col(right)) for right in NUMBERS)
            yield from (make(col(left), lit(value)) for value in _NUMBER_LITERALS)
            yield from (make(lit(value), col(left)) for value in _NUMBER_LITERALS)
    yield from (col("time") - col("time"), col("utc") - col("utc"))


def _comparison() -> Iterator[Expr]:
    alike = [(name, name) for name in ORDERED] + [(a, b) for a in NUMBERS for b in NUMBERS if a != b]
    for make in _COMPARED.values():
        yield from (make(col(a), col(b)) for a, b in alike)
        yield from (make(col(a), lit(value)) for a in NUMBERS for value in _NUMBER_LITERALS)
    yield from (col(a).between(col(b), col(a)) for a, b in alike)
    yield from (col(a).is_in([0, 1.5, float("nan"), -1]) for a in ("f32", "f64"))
    yield from (col(a).is_in([0, -1, 300, 1 << 40]) for a in INTEGERS)
    yield from (col("text").is_in(["", "é", "1.5"]), col("bool").is_in([True]), col("i64").is_in([]))
    yield from (col("raw").is_in([b"", b"\xff"]), col("dec").is_in([1, 2]), col("text").is_in([]))


def _choice() -> Iterator[Expr]:
    failing = 1 // col("i8") > 0
    yield from (col("bool") & failing, failing & col("bool"), col("bool") | failing, failing | col("bool"))
    yield from (~failing, ~col("bool"), failing.is_null(), failing & None, True | failing)
    yield from (col("f32").is_nan(), col("f64").is_nan())
    for name in TYPES:
        yield from (col(name), col(name).is_null(), col(name).is_not_null(), col(name).fill_null(col(name)))
        yield coalesce(None, col(name), lit(None, TYPES[name]))
        yield when(col("bool")).then(col(name)).when(failing).then(None).otherwise(col(name))
        yield when(failing).then(col(name))
    yield from (when(col("i8") > 0).then(1 // col("i16")).otherwise(2 % col("i32")),)
    yield from (coalesce(col("i16"), 1 // col("i8")), coalesce(1 // col("i8"), col("i16")))
    yield (1 // col("i8")).fill_null(5)


def _text() -> Iterator[Expr]:
    text = col("text").str
    yield from (text.lower(), text.upper(), text.length(), text.strip(), text.strip("é😀,"))
    for pattern in PATTERNS:
        yield from (text.contains(pattern), text.starts_with(pattern), text.ends_with(pattern))
        if pattern:
            yield from (text.split(pattern), text.replace(pattern, "é"), text.replace(pattern, ""))
            yield from (text.split(pattern).list.length(), text.split(pattern).list.item(-1))
    yield from (text.slice(start, length) for start in (-9, -2, 0, 1, 9) for length in (None, 0, 1, 9))
    yield from (concat(col("text"), "|", col("text")), concat("x"), col("list").list.length())
    yield from (col("list").list.item(index) for index in (-4, -1, 0, 2))
    yield from (col("struct").field("x"), col("struct").field("y"))
    yield from (
        col("text").json(path, type)
        for path in ("a", "a.b[1]", "[0]", "a.b[9]")
        for type in ("bool", "int8", "int64", "float32", "float64", "string")
    )


def _time() -> Iterator[Expr]:
    for name in ("day", "time", "utc"):
        times = col(name).dt
        yield from (times.year(), times.month(), times.day(), times.weekday(), times.epoch("d"))
    for name in ("time", "utc"):
        times = col(name).dt
        yield from (
            times.hour(),
            times.minute(),
            times.second(),
            times.truncate("10 s"),
            times.truncate("7 d"),
        )
        yield from (times.epoch(unit) for unit in ("s", "ms", "us"))
        yield from (
            col(name) + "1 us",
            col(name) - "1 us",
            col(name) + timedelta(days=100_000_000),
            "1 h" + col(name),
        )
        yield from (times.truncate("100000000 d"), col(name) + "100000000 d", col(name) - "100000000 d")
    yield from (from_epoch(col(name), unit) for name in INTEGERS for unit in ("d", "s", "ms", "us"))


def _casts() -> Iterator[Expr]:
    targets = [*TYPES.values(), pa.timestamp("us", "Europe/Berlin"), pa.decimal128(20, 5)]
    for name, given_type in TYPES.items():
        yield from (col(name).cast(wanted) for wanted in targets if find_cast(given_type, wanted))
    yield lit(None).cast("int8")


def _hashes() -> Iterator[Expr]:
    simple = [name for name in TYPES if name not in ("dec", "list", "struct")]
    yield from (hash(col(name)) for name in simple)
    yield from (
        hash(*map(col, simple)),
        hash(*map(col, reversed(simple))),
        hash(col("text"), None, col("text")),
    )


FAMILIES = {
    "arithmetic": _arithmetic,
    "comparison": _comparison,
    "choice": _choice,
    "text": _text,
    "time": _time,
    "casts": _casts,
    "hashes": _hashes,
}


def _families() -> list[Expr]:
    return [expr for family in FAMILIES.values() for expr in family()]


def test_the_list_of_expressions_has_every_node() -> None:
    tried = {type(node) for expr in _families() for node in post_order(expr)}
    values = [getattr(penstock.expr, name) for name in dir(penstock.expr)]  # vars() has what was used so far
    every = {node for node in values if isinstance(node, type) and issubclass(node, Node)}
    assert every - tried == {Node, Expr, Comparison, SparkSql}  # three bases, and Spark's own
    assert {Case, Coalesce, Literal} <= tried


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@settings(
    deadline=None,
    max_examples=examples(4, nightly=12),
    suppress_health_check=[HealthCheck.data_too_large],
)
@given(data=st.data())
def test_both_lowerings_agree_on_every_node_and_type(family: str, data: st.DataObject) -> None:
    batch = batch_of(data.draw(columns(tuple(TYPES), max_rows=12)))
    for expr in FAMILIES[family]():
        both(expr, batch)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_both_lowerings_agree_on_one_node_over_random_rows(data: st.DataObject) -> None:
    expr = data.draw(st.sampled_from(_EVERY))
    both(expr, batch_of(data.draw(columns(expr.columns() or ("i64",)))))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bool", "i64", "f64", "text", "time", "day"])
@settings(
    deadline=None,
    max_examples=examples(40, nightly=160),
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_both_lowerings_agree_on_nested_expressions(name: str, data: st.DataObject) -> None:
    expr = data.draw(of_type(name, 2))
    both(expr, batch_of(data.draw(columns(expr.columns() or ("i64",)))))


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_slice_of_a_batch_gives_a_slice_of_the_values(data: st.DataObject) -> None:
    expr = data.draw(st.sampled_from(_EVERY))
    batch = batch_of(data.draw(columns(expr.columns() or ("i64",))))
    start = data.draw(st.integers(0, batch.num_rows))
    assert [repr(value) for value in both(expr, batch.slice(start))] == [
        repr(value) for value in both(expr, batch)[start:]
    ]


def test_the_text_of_a_cast_names_a_type_that_cast_accepts() -> None:
    for type in TYPES.values():
        if not pa.types.is_struct(type):
            assert str(col("a").cast(type_name(type))) == str(col("a").cast(type))


def test_the_schema_of_the_strategies_is_canonical() -> None:
    assert SCHEMA.names == list(TYPES)


_EVERY = _families()
