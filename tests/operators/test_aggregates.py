"""The type of every aggregate's result, for every type it takes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import col
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import Stream
from penstock.timing.units import TimeType

TIME = TimeType(pa.timestamp("us"), "us")
NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
DECIMAL = pa.decimal128(10, 2)
ORDERED = [
    *NUMBERS, DECIMAL, pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"),
]  # fmt: skip
NESTED = [pa.list_(pa.int64()), pa.struct([("a", pa.int64())])]


def result(aggregate: Aggregate, type_: pa.DataType) -> pa.DataType:
    """The type of an aggregate of column x."""
    return aggregate.type(Stream(pa.schema([("x", type_)]), TIME))


def test_sums_are_int64_of_integers_and_float64_of_floats() -> None:
    wanted = [pa.int64()] * 4 + [pa.float64()] * 2
    assert [result(ps.sum("x"), type_) for type_ in NUMBERS] == wanted
    assert result(ps.sum("x"), DECIMAL) == pa.decimal128(38, 2)


@pytest.mark.parametrize("type_", NUMBERS)
def test_means_variances_and_quantiles_are_float64(type_: pa.DataType) -> None:
    for aggregate in (ps.mean("x"), ps.var("x"), ps.std("x", population=True), ps.quantile("x", 0.9)):
        assert result(aggregate, type_) == pa.float64()


@pytest.mark.parametrize("type_", ORDERED)
def test_extremes_have_the_type_of_the_value(type_: pa.DataType) -> None:
    counted = pa.struct([("value", type_), ("count", pa.int64())])
    assert result(ps.min("x"), type_) == result(ps.max("x"), type_) == type_
    assert result(ps.min_count("x"), type_) == result(ps.max_count("x"), type_) == counted
    assert result(ps.approx_distinct("x"), type_) == pa.int64()


@pytest.mark.parametrize("type_", [*ORDERED, *NESTED])
def test_counts_ends_and_lists_take_any_type(type_: pa.DataType) -> None:
    assert result(ps.count("x"), type_) == result(ps.count(), type_) == pa.int64()
    assert result(ps.first("x"), type_) == result(ps.last("x"), type_) == type_
    assert result(ps.collect("x"), type_) == pa.list_(type_)


def test_an_aggregate_takes_an_expression() -> None:
    assert result(ps.sum(col("x") * 1.5), pa.int64()) == pa.float64()
    assert str(ps.sum(col("x") * 2)) == 'sum(col("x") * 2)'
    assert str(ps.count()) == "count()"


def test_event_time_max_has_the_type_of_time() -> None:
    assert result(ps.event_time_max(), pa.int64()) == pa.timestamp("us")


def test_order_matters_only_to_first_last_and_collect() -> None:
    ordered = {
        type(aggregate).__name__
        for aggregate in (ps.first("x"), ps.last("x"), ps.collect("x"))
        if aggregate.ordered
    }
    assert ordered == {"First", "Last", "Collect"}
    assert not any(aggregate.ordered for aggregate in (ps.sum("x"), ps.count(), ps.min("x"), ps.mean("x")))


def test_only_sketches_are_not_exact() -> None:
    assert not ps.approx_distinct("x").exact
    assert not ps.quantile("x", 0.5).exact
    assert ps.sum("x").exact


def test_the_type_of_a_fold_is_declared_or_annotated() -> None:
    def lower(part: Any) -> float:
        return 0.0

    aggregate = ps.fold(lambda row: 1, lambda a, b: a + b, 0, lower, columns=["x"])
    assert result(aggregate, pa.int64()) == pa.float64()
    assert aggregate.columns == ("x",)
    declared = ps.fold(lambda row: 1, lambda a, b: a + b, 0, type="int32", columns="x")
    assert result(declared, pa.int64()) == pa.int32()
    assert declared.columns == ("x",)
