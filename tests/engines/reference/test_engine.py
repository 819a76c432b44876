"""The engine as the seam knows it: runs, sessions, sinks, events, refusals."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.engines.protocol import RunOptions
from penstock.engines.reference.engine import ReferenceEngine
from penstock.errors import NotSupported
from penstock.events import (
    ignore_event,
)
from penstock.operators.op import OUT, Op, Stream
from penstock.operators.rows import Relay
from tests.support.plans import PlanBuilder


@pytest.mark.parametrize(
    "options",
    [RunOptions(checkpoint="state/"), RunOptions(master="spark://host:7077"), RunOptions(engine={"a": 1})],
)
def test_what_the_engine_cannot_do_is_refused_at_the_start(options: RunOptions) -> None:
    builder = PlanBuilder()
    builder.source()
    for begin in (ReferenceEngine().start, ReferenceEngine().open_harness):
        with pytest.raises(NotSupported, match="the reference engine") as refusal:
            begin(builder.plan(), clock=ManualClock(), events=ignore_event, options=options)
        assert "leave" in str(refusal.value.hint)


class Foreign(Op, verb="foreign"):
    """An operator that the engine has no rule for."""

    def outputs(self, inputs: Any) -> dict[str, Stream]:
        return {OUT: inputs["in"]}


def test_an_operator_without_a_rule_is_a_gap_and_refused_before_anything_runs() -> None:
    builder = PlanBuilder()
    builder.add(Foreign(name="odd"), builder.source())
    (gap,) = ReferenceEngine().gaps(builder.plan())
    assert (gap.step, gap.reason) == ("odd", "the reference engine has no rule for Foreign")
    with pytest.raises(NotSupported, match="no rule for Foreign"):
        builder.run()


def test_explain_says_what_the_engine_is_for_and_that_degrees_change_nothing() -> None:
    builder = PlanBuilder()
    builder.add(Relay(name="wide"), builder.source(), degree=4)
    lines = ReferenceEngine().explain(builder.plan())
    assert "right, not fast" in lines[0]
    assert "wide" in lines[-1]
    assert ReferenceEngine().name == "reference"
