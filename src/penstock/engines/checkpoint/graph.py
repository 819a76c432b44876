"""What a checkpoint records about its graph, and which graphs may resume from it.

Only what saved state depends on is recorded: sources, sinks, and steps with state. Stateless steps and
parallelism may change and sinks may be added. Of what is recorded, these may change: the delay of a source
and columns that are added to it, the lateness and the aggregates of windows, the columns that reach a step,
and names, if the run says what was renamed. `compare_graphs` lists all that differs, and what that would do;
the rest is refused.

What a step was before is recorded with it, as its history: saved state and the files of sinks go by old
names, and a new aggregate is null in windows that may have older rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from penstock.connect.protocol import Delivery, LinkedWriter
from penstock.engines.checkpoint.state_files import StateHandles
from penstock.errors import CheckpointError
from penstock.frozen import Frozen
from penstock.operators.ends import Sink, Source
from penstock.operators.op import StepHistory, Stream
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Step
from penstock.stages.snapshot import (
    AGGREGATES,
    COLUMNS,
    FORM,
    LATENESS,
    LEFT_COLUMNS,
    NO_ROWS_BEFORE,
    RIGHT_COLUMNS,
    describe_aggregate,
    window_fingerprint,
)
from penstock.timing.units import micros, spell
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

FORMAT = 4
"""Version of the files in a checkpoint folder: it goes up when names in them change; the last one is read."""

HISTORY = "history"
_RESTORE = "bring it back as it was, or start with an empty checkpoint folder"
_DELAY, _KIND = "delay", "kind"


class Change(Frozen):
    """A difference between the graph of a checkpoint and that of a program.

    step     its name in the program, or in the checkpoint if the program has no such step
    topic    what of it differs; None if that is the step itself
    was, now both sides, in words; None where there is nothing
    effect   what a restart does about it
    allowed  whether there can be a restart
    """

    step: str
    topic: str | None
    was: str | None
    now: str | None
    effect: str
    allowed: bool


def describe_graph(plan: Plan) -> dict[str, Any]:
    """Return the graph by step name, as plain data for the checkpoint folder."""
    recorded = [step for step in plan if isinstance(step.op, Source | Sink) or keeps_state(step)]
    return {"graph": plan.graph, "steps": {step.name: _describe_step(step) for step in recorded}}


def keeps_state(step: Step) -> bool:
    """Return whether a step has state that a checkpoint saves."""
    return isinstance(step.op, Windows | StreamJoin) or step.op.stateful


def refuse_incompatible(
    saved: Mapping[str, Any], current: Mapping[str, Any], renamed: Mapping[str, str] | None = None
) -> None:
    """Raise CheckpointError unless the current graph may resume from the saved one.

    renamed  the name of a step in the checkpoint -> in the program
    """
    saved_format = saved.get("format", 0)
    saved = upgrade_graph(saved, current)
    if saved_format not in (FORMAT - 1, FORMAT):
        is_newer = saved_format > FORMAT
        raise CheckpointError(
            f"the checkpoint has format {saved_format}, and this Penstock reads {FORMAT - 1} and {FORMAT}",
            detail=None if is_newer else "names in saved state have changed since, so it cannot be resumed",
            hint="run it with the Penstock that wrote it, or a newer one"
            if is_newer
            else "finish the run with the Penstock that wrote it, or start with an empty checkpoint folder",
        )
    if saved.get("graph") != current["graph"]:
        raise CheckpointError(
            f'the checkpoint is of graph "{saved.get("graph")}", not of "{current["graph"]}"', hint=_RESTORE
        )
    _check_renamed(saved["steps"], current["steps"], renamed or {})
    for change in compare_graphs(saved, current, renamed):
        if change.allowed:
            continue
        if change.topic is not None:
            raise CheckpointError(
                f'step "{change.step}" is not what it was: its {change.topic} differs',
                step=change.step,
                detail=f"saved: {change.was}; now: {change.now}",
                hint=_RESTORE,
            )
        raise CheckpointError(
            f'the checkpoint has step "{change.step}", and the graph has not'
            if change.now is None
            else f'step "{change.step}" is new, and keeps state or reads: the checkpoint knows nothing of it',
            step=None if change.now is None else change.step,
            hint=_suggest_name(change, saved["steps"], current["steps"]),
        )


def _check_renamed(saved: Mapping[str, Any], current: Mapping[str, Any], renamed: Mapping[str, str]) -> None:
    """Raise if a step was not renamed as the run says."""
    for before, now in renamed.items():
        known = current.get(now)
        if known is None:
            raise CheckpointError(
                f'renamed={{"{before}": "{now}"}} names no step of the graph that a checkpoint knows',
                detail=f"those are {', '.join(current)}",
                hint="only sources, sinks and steps with state need it; leave others out",
            )
        if now in saved and before in former_names(saved[now]):  # that is done
            continue
        if before not in saved or now in saved:
            fact = "the checkpoint has no such step" if before not in saved else "it has both"
            raise CheckpointError(
                f'step "{before}" of the checkpoint cannot be renamed to "{now}": {fact}',
                step=now,
                detail=f"steps of the checkpoint: {', '.join(saved)}",
                hint='name the old one first: renamed={"old": "new"}',
            )
    former = {name: now for now, step in saved.items() for name in former_names(step)}
    for name in current.keys() & former.keys():
        raise CheckpointError(
            f'step "{name}" has the name that step "{former[name]}" had before it was renamed',
            step=name,
            detail="what was saved under that name belongs to the other step",
            hint="choose another name",
        )


def _suggest_name(change: Change, saved: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Return the hint for a step that is on one side only: perhaps it was renamed."""
    if change.now is not None:
        return _RESTORE
    kind = saved[change.step][_KIND]
    new = [name for name in current if name not in saved and current[name][_KIND] == kind]
    return (
        f'if it was renamed, say run(renamed={{"{change.step}": "{new[0]}"}}); else {_RESTORE}'
        if new
        else _RESTORE
    )


def compare_graphs(
    saved: Mapping[str, Any], current: Mapping[str, Any], renamed: Mapping[str, str] | None = None
) -> list[Change]:
    """Return all that differs between the graph of a checkpoint and that of a program, by step.

    renamed  the name of a step in the checkpoint -> in the program
    """
    renamed, changes = renamed or {}, []
    for old_name, before in saved["steps"].items():
        name = renamed.get(old_name, old_name)
        now = current["steps"].get(name)
        if now is None:
            effect = "refused: what was saved for it has nowhere to go"
            changes.append(Change(name, None, before[_KIND], None, effect, allowed=False))
            continue
        if name != old_name:
            changes.append(Change(name, "name", old_name, name, "goes on under the new name", allowed=True))
        topics = [topic for topic in dict.fromkeys([*before, *now]) if topic != HISTORY]
        differ = [topic for topic in topics if before.get(topic) != now.get(topic)]
        changes += [_judge(name, topic, before, now) for topic in differ]
    before_names = {renamed.get(name, name) for name in saved["steps"]}
    for name, now in current["steps"].items():
        if name not in before_names:
            is_sink = now[_KIND] == Sink.__name__
            effect = "writes what comes from now on" if is_sink else "refused: it would begin in the middle"
            changes.append(Change(name, None, None, now[_KIND], effect, allowed=is_sink))
    return changes


def former_names(step: Mapping[str, Any]) -> Sequence[str]:
    """Return the names that a recorded step had before it was renamed."""
    names: Sequence[str] = step.get(HISTORY, {}).get("former", ())
    return names


def present_names(graph: Mapping[str, Any]) -> dict[str, str]:
    """Return the name of a step in files of the checkpoint -> its name now, where the two differ."""
    return {former: name for name, step in graph["steps"].items() for former in former_names(step)}


def upgrade_graph(saved: Mapping[str, Any], current: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a graph that was recorded in the format before, as it is recorded now.

    That had texts where there are columns and aggregates by name now. A text that says the same as what the
    program has becomes that; another stays, and is refused.
    """
    if saved.get("format") != FORMAT - 1:
        return saved
    steps = {}
    for name, before in saved["steps"].items():
        now = current["steps"].get(name, {})
        step = {(COLUMNS if topic == "columns" else topic): text for topic, text in before.items()}
        if step[_KIND] == Source.__name__ and _DELAY not in step:
            step["time"], _, delay = step["time"].partition(", delay ")
            step[_DELAY] = spell(int(delay.removesuffix(" us"))) if delay.endswith(" us") else "none"
        if step[_KIND] == Sink.__name__ and "place" not in now:
            step.pop("place", None)
        if "; lateness " in step.get("window", ""):
            step["window"], _, step[LATENESS] = step["window"].partition("; lateness ")
            step["counts rows"] = now.get("counts rows")
        for topic in (AGGREGATES, COLUMNS, LEFT_COLUMNS, RIGHT_COLUMNS):
            present = now.get(topic)
            if isinstance(present, dict) and isinstance(step.get(topic), str):
                between = "=" if topic == AGGREGATES else ": "
                texts = [f"{column}{between}{text}" for column, text in present.items()]
                step[topic] = present if step[topic] in (", ".join(texts), "\n".join(texts)) else step[topic]
        steps[name] = step
    return {**saved, "steps": steps}


def _judge(step: str, topic: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Change:
    """Return what a difference in one topic of a step means."""
    was, is_ = before.get(topic), now.get(topic)
    effect = None
    if topic == _DELAY:
        effect = "counts from the next row on; the watermark does not go back"
    elif topic == LATENESS and now[_KIND] == Windows.__name__:
        effect = "counts from now on; windows that have left stay closed"
    elif topic in (COLUMNS, LEFT_COLUMNS, RIGHT_COLUMNS) and isinstance(was, dict) and isinstance(is_, dict):
        is_source = now[_KIND] == Source.__name__
        added = [name for name in is_ if name not in was]
        retyped = [name for name in was if name in is_ and was[name] != is_[name]]
        gone = [name for name in was if name not in is_] if is_source else []
        if not retyped and not gone and not any(is_[name].endswith(_NOT_NULL) for name in added):
            effect = f"new columns are null in rows from before: {', '.join(added)}" if added else "no effect"
    elif topic == AGGREGATES and isinstance(was, dict) and isinstance(is_, dict) and not now["counts rows"]:
        added = [name for name, text in is_.items() if text not in was.values()]
        effect = (
            f"{', '.join(added)}: null in windows that may have rows from before" if added else "no effect"
        )
    refused = "refused: saved state depends on it"
    return Change(step, topic, _words(was), _words(is_), effect or refused, allowed=effect is not None)


_NOT_NULL = " not null"


def _words(value: object) -> str | None:
    """Return what is recorded of a topic, for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {text}" for name, text in value.items())
    return None if value is None else str(value)


def _describe_step(step: Step) -> dict[str, Any]:
    kind: dict[str, Any] = {_KIND: type(step.op).__name__}
    if isinstance(step.op, Source):
        time, schema = step.op.resolve(), step.op.reader.schema
        columns = {field.name: f"{field.type}{'' if field.nullable else _NOT_NULL}" for field in schema}
        text = "none" if time is None else f"{time.column} {time.type}"
        delay = "none" if time is None or time.delay is None else spell(time.delay)
        return kind | {COLUMNS: columns, "time": text, _DELAY: delay}
    if isinstance(step.op, Sink):
        writer = step.op.writer
        # Why: output that outlives the run must stay in its place, or part of it would be missing in the new;
        # files of ours are known by their identity, and may be moved together with the checkpoint.
        is_placed = writer.delivery == Delivery.EXACTLY_ONCE and not isinstance(writer, LinkedWriter)
        return kind | ({"place": writer.describe()} if is_placed else {})
    if isinstance(step.op, Windows):
        # Why: another parallelism may choose another pattern; each piece of state names its own form.
        topics: dict[str, Any] = dict(window_fingerprint(step.op, step.up, totally_ordered=False))
        del topics[FORM]
        topics[COLUMNS] = _columns(step.up)
        topics["counts rows"] = step.op.resolve(step.up).has_counts
        if step.op.function is None:
            aggregates = step.op.aggregates or {}
            topics[AGGREGATES] = {name: describe_aggregate(of, step.up) for name, of in aggregates.items()}
        return {_KIND: Windows.__name__, **topics}
    if isinstance(step.op, StreamJoin):
        from penstock.stages.join.state import join_fingerprint

        left, right = (port.stream for port in step.inputs)
        sides = {LEFT_COLUMNS: _columns(left), RIGHT_COLUMNS: _columns(right)}
        return {**kind, **join_fingerprint(step.op, left, right), **sides}
    return kind | {"key": ", ".join(step.up.key), COLUMNS: _columns(step.up)}


def _columns(stream: Stream) -> dict[str, str]:
    return {field.name: str(field.type) for field in stream.schema}


def find_histories(
    saved: Mapping[str, Any],
    current: Mapping[str, Any],
    renamed: Mapping[str, str],
    state: StateHandles,
    watermarks: Mapping[str, float],
) -> dict[str, StepHistory]:
    """Return what each step of a compatible graph was before, by its present name.

    state       of the newest manifest, by the names of the checkpoint
    watermarks  step -> that of its input, likewise
    """
    histories = {}
    for old_name, before in saved["steps"].items():
        name = renamed.get(old_name, old_name)
        fields = before.get(HISTORY, {})
        former = tuple(fields.get("former", ()))
        history = StepHistory(True, former, fields.get("added", {}), fields.get("closed"))
        if name != old_name:
            history = replace(history, former=(*history.former, old_name))
        now = current["steps"][name]
        if now[_KIND] == Windows.__name__:
            history = _add_aggregates(
                history, before[AGGREGATES], now[AGGREGATES], state.get(old_name, {}).values()
            )
            watermark = watermarks.get(old_name, BEFORE_ALL)
            if before[LATENESS] != now[LATENESS] and BEFORE_ALL < watermark < AFTER_ALL:
                closed = int(watermark) - micros(before[LATENESS])
                history = replace(
                    history, closed=max(closed, NO_ROWS_BEFORE if history.closed is None else history.closed)
                )
        histories[name] = history
    return histories


def _add_aggregates(history: StepHistory, before: Any, now: Any, handles: Any) -> StepHistory:
    """Return the history of a window step with its present aggregates."""
    if before == now or not isinstance(before, dict):
        return history
    rows_before = max((handle.rows_before for handle in handles), default=NO_ROWS_BEFORE)
    old_names = {text: name for name, text in before.items()}
    added = {}
    for name, text in now.items():
        since = history.added.get(old_names[text]) if text in old_names else rows_before
        if since is not None and since > NO_ROWS_BEFORE:
            added[name] = since
    return replace(history, added=added)


def record_histories(graph: Mapping[str, Any], histories: Mapping[str, StepHistory]) -> dict[str, Any]:
    """Return a graph with what its steps were before, as plain data."""
    steps = {
        name: step
        | ({HISTORY: asdict(histories[name])} if histories.get(name, StepHistory()) != StepHistory() else {})
        for name, step in graph["steps"].items()
    }
    return {**graph, "steps": steps}


def with_histories(plan: Plan, histories: Mapping[str, StepHistory]) -> Plan:
    """Return a plan whose steps know what they were before."""
    known: Sequence[Step] = [
        replace(step, history=histories[step.name]) if step.name in histories else step for step in plan
    ]
    return replace(plan, steps=tuple(known))
