"""Floats near the greatest there is: what leaves them is infinite, never negative, and never a warning."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from penstock.operators import aggregates as spec
from penstock.operators.windows import KeyedWindows
from penstock.timing.windows import session, tumbling
from tests.support.windows import assert_same, by_reference, by_stage, case

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("x", pa.float64())])


@pytest.mark.parametrize("window", [tumbling(10), session(10)])
@pytest.mark.parametrize("aggregate", [spec.var("x"), spec.std("x", population=True)])
@pytest.mark.parametrize("values", [(1e308, 1e308, -1e308), (-1e308, -1e308, 1e308), (1e200, -1e200)])
def test_a_spread_beyond_the_floats_is_infinite(window: Any, aggregate: Any, values: Any) -> None:
    op = KeyedWindows(windows=window, aggregates={"spread": aggregate})
    case_ = case(op, [[("a", 1, value) for value in values]], schema=SCHEMA)
    result = by_stage(case_)
    assert result.tables["out"].column("spread").to_pylist() == [math.inf]
    assert_same(result, by_reference(case_))
