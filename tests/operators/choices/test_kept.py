"""What windows keep of an aggregate, as the plan says it, is what stages keep."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate
from penstock.operators.choices.kept import EXACT, Kind, is_sketched, registers_of, why_rows, width_of
from penstock.operators.stream import Stream
from penstock.stages.window.accumulators import Lowered, LoweredSketch, Register, Sheet, lower
from penstock.stages.window.inputs import Lifting
from penstock.timing.column import TimeType
from tests.stages.windowed import ALL, WIDE

UP = Stream(WIDE, TimeType(pa.int64(), "us"), ("k",))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.FOLD])
def test_registers_are_as_wide_and_as_exact_as_their_rules(kind: Kind) -> None:
    rule = Register(kind).rule
    assert (width_of(kind, spec.count()), kind in EXACT) == (rule.width, rule.exact)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_stages_keep_what_the_rule_says(name: str, numbered: bool) -> None:
    aggregate = ALL[name]
    sheet = Sheet(UP, numbered=numbered, windows=(), foldings=Lifting({name: aggregate}, UP).foldings)
    lowered = lower(aggregate, sheet)
    if is_sketched(aggregate, ()):
        assert isinstance(lowered, LoweredSketch)
    elif why_rows(aggregate, UP, numbered=numbered) is not None:
        assert lowered is None
    else:
        assert isinstance(lowered, Lowered)
        rows, *others = sheet.registers
        assert rows.kind is Kind.ROWS
        assert sorted(each.kind for each in others) == sorted(registers_of(aggregate, UP))
        assert [each.rule.width for each in others] == [width_of(each.kind, aggregate) for each in others]


@pytest.mark.parametrize(
    ("aggregate", "numbered", "why"),
    [
        (spec.sum("v"), False, None),
        (spec.count("word"), False, None),
        (spec.max("word"), True, 'registers hold numbers, and col("word") is string'),
        (spec.sum("price"), True, 'registers hold numbers, and col("price") is decimal128(30, 2)'),
        (spec.first("v"), True, None),
        (spec.first("v"), False, "rows of one time have no number that puts them in order"),
        (spec.last("word"), False, 'registers hold numbers, and col("word") is string'),
        (spec.collect("v"), True, "it is made from all values of a window"),
    ],
)
def test_rows_are_kept_for_a_reason(aggregate: Aggregate, numbered: bool, why: Any) -> None:
    assert why_rows(aggregate, UP, numbered=numbered) == why
