"""What windows keep of an aggregate, as the plan says it, is what stages keep."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate
from penstock.operators.choices import (
    AccumulatorKind,
    accumulators_of,
    uses_sketch,
    why_rows,
    width_of,
)
from penstock.operators.op import Stream
from penstock.stages.window.accumulators import (
    AccumulatorLayout,
    WindowAccumulator,
    plan_accumulators,
)
from penstock.stages.window.inputs import InputEvaluator
from penstock.timing.units import TimeType
from tests.support.window_cases import ALL, WIDE

UP = Stream(WIDE, TimeType(pa.int64(), "us"), ("k",))


@pytest.mark.parametrize("kind", [kind for kind in AccumulatorKind if kind is not AccumulatorKind.FOLD])
def test_registers_are_as_wide_as_their_rules(kind: AccumulatorKind) -> None:
    assert width_of(kind, spec.count()) == WindowAccumulator(kind).rule.width


@pytest.mark.parametrize("totally_ordered", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_stages_keep_what_the_rule_says(name: str, totally_ordered: bool) -> None:
    aggregate = ALL[name]
    sheet = AccumulatorLayout(
        UP,
        totally_ordered=totally_ordered,
        windows=(),
        folds=InputEvaluator({name: aggregate}, UP).accumulator_folds,
    )
    lowered = plan_accumulators(aggregate, sheet)
    if uses_sketch(aggregate, ()):
        assert lowered is not None
        assert len(sheet.sketches) == len(sheet.accumulators) == 1
    elif why_rows(aggregate, UP, totally_ordered=totally_ordered) is not None:
        assert lowered is None
    else:
        assert lowered is not None
        assert not sheet.sketches
        rows, *rest = sheet.accumulators
        assert rows.kind is AccumulatorKind.ROWS
        assert sorted(item.kind for item in rest) == sorted(accumulators_of(aggregate, UP))
        assert [item.rule.width for item in rest] == [width_of(item.kind, aggregate) for item in rest]


@pytest.mark.parametrize(
    ("aggregate", "totally_ordered", "why"),
    [
        (spec.sum("v"), False, None),
        (spec.count("word"), False, None),
        (spec.max("word"), True, 'accumulators hold numbers, and col("word") is string'),
        (spec.sum("price"), True, 'accumulators hold numbers, and col("price") is decimal128(30, 2)'),
        (spec.first("v"), True, None),
        (spec.first("v"), False, "rows of one time have no number that puts them in order"),
        (spec.last("word"), False, 'accumulators hold numbers, and col("word") is string'),
        (spec.collect("v"), True, "it is made from all values of a window"),
    ],
)
def test_rows_are_kept_for_a_reason(aggregate: Aggregate, totally_ordered: bool, why: Any) -> None:
    assert why_rows(aggregate, UP, totally_ordered=totally_ordered) == why
