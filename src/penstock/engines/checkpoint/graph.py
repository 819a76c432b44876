"""What a checkpoint records about its graph, and which graphs may resume from it.

Only what saved state depends on is recorded: sources, sinks, and steps with state. Stateless code and
parallelism may change and sinks may be added; what has state or is read may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.connect.protocol import Delivery
from penstock.errors import CheckpointError
from penstock.operators.ends import Sink, Source
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from penstock.stages.snapshot import FORM, window_fingerprint

FORMAT = 3
"""Version of the files in a checkpoint folder. Goes up whenever a name in them changes."""

_RESTORE = "bring it back as it was, or start with an empty checkpoint folder"


def describe_graph(plan: Plan) -> dict[str, Any]:
    """Return the graph by step name, as plain data for the checkpoint folder."""
    recorded = [
        step for step in plan if isinstance(step.op, Source | Sink | Windows | StreamJoin) or step.op.stateful
    ]
    return {"graph": plan.graph, "steps": {step.name: _describe_step(step) for step in recorded}}


def refuse_incompatible(saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the current graph may resume from the saved one."""
    saved_format = saved.get("format", 0)
    if saved_format != FORMAT:
        is_newer = saved_format > FORMAT
        raise CheckpointError(
            f"the checkpoint has format {saved_format}, and this Penstock reads format {FORMAT}",
            detail=None if is_newer else "names in saved state have changed since, so it cannot be resumed",
            hint="run it with the Penstock that wrote it, or a newer one"
            if is_newer
            else "finish the run with the Penstock that wrote it, or start with an empty checkpoint folder",
        )
    if saved.get("graph") != current["graph"]:
        raise CheckpointError(
            f'the checkpoint is of graph "{saved.get("graph")}", not of "{current["graph"]}"', hint=_RESTORE
        )
    for name, before in saved["steps"].items():
        now = current["steps"].get(name)
        if now is None:
            raise CheckpointError(f'the checkpoint has step "{name}", and the graph has not', hint=_RESTORE)
        for topic in dict.fromkeys([*before, *now]):
            if before.get(topic) != now.get(topic):
                raise CheckpointError(
                    f'step "{name}" is not what it was: its {topic} differs',
                    step=name,
                    detail=f"saved: {before.get(topic)}; now: {now.get(topic)}",
                    hint=_RESTORE,
                )
    for name, now in current["steps"].items():
        if name not in saved["steps"] and now["kind"] != "Sink":
            raise CheckpointError(
                f'step "{name}" is new, and keeps state or reads: the checkpoint knows nothing of it',
                step=name,
                hint=_RESTORE,
            )


def _describe_step(step: Step) -> dict[str, str]:
    kind = {"kind": type(step.op).__name__}
    if isinstance(step.op, Source):
        time = step.op.resolve()
        text = "none" if time is None else f"{time.column} {time.type}, delay {time.delay} us"
        return kind | {"columns": str(step.op.reader.schema), "time": text}
    if isinstance(step.op, Sink):
        writer = step.op.writer
        # Why: output that outlives the run must stay in its place, or part of it would be missing in the new.
        return kind | ({"place": writer.describe()} if writer.delivery == Delivery.EXACTLY_ONCE else {})
    if isinstance(step.op, Windows):
        # Why: another parallelism may choose another pattern; each piece of state names its own form.
        topics = window_fingerprint(step.op, step.up, totally_ordered=False)
        return {"kind": Windows.__name__, **{topic: text for topic, text in topics.items() if topic != FORM}}
    if isinstance(step.op, StreamJoin):
        from penstock.stages.join.state import join_fingerprint

        return kind | dict(join_fingerprint(step.op, *(port.stream for port in step.inputs)))
    return kind | {"key": ", ".join(step.up.key), "columns": str(step.up.schema)}
