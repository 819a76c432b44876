"""A graph by step name, as a checkpoint remembers it: what may not change while there is state."""

from __future__ import annotations

from typing import Any

from penstock.connect.protocol import Delivery
from penstock.operators.sink import Sink
from penstock.operators.source import Source
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan
from penstock.plan.step import Step
from penstock.stages.fingerprint import FORM, fingerprint


def described(plan: Plan) -> dict[str, Any]:
    """Sources, sinks and steps with state; stateless code may change as it likes."""
    return {"graph": plan.graph, "steps": {s.name: _step(s) for s in plan if _is_kept(s)}}


def _is_kept(step: Step) -> bool:
    return isinstance(step.op, Source | Sink | Windows) or step.op.stateful


def _step(step: Step) -> dict[str, str]:
    kind = {"kind": type(step.op).__name__}
    if isinstance(step.op, Source):
        time = step.op.resolved()
        told = "none" if time is None else f"{time.column} {time.type}, delay {time.delay} us"
        return kind | {"columns": str(step.op.reader.schema), "time": told}
    if isinstance(step.op, Sink):
        writer = step.op.writer
        # What outlives the run must stay where it is, or some of it would be missing in the new place.
        return kind | ({"place": writer.describe()} if writer.delivery == Delivery.EXACTLY_ONCE else {})
    if isinstance(step.op, Windows):
        # Another number of replicas may choose another pattern; pieces of state say what form they have.
        found = fingerprint(step.op, step.up, numbered=False)
        return {"kind": Windows.__name__, **{topic: words for topic, words in found.items() if topic != FORM}}
    return kind | {"key": ", ".join(step.up.key), "columns": str(step.up.schema)}
