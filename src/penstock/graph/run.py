"""From a plan to a run: find the engine by name, refuse what it cannot do, start it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.caller import find_call_site, find_definition, name_of
from penstock.clock import Clock, WallClock
from penstock.errors import (
    CheckpointError,
    EngineError,
    FunctionError,
    NotSupported,
    describe_cause,
    nearest_first,
)
from penstock.events import ignore_event
from penstock.graph.steps import placed
from penstock.operators.op import JOIN
from penstock.operators.process import Process
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from penstock.engines.protocol import Engine, Run, RunOptions, RunResult
    from penstock.events import Event, EventSink

_COLLECT_OPTIONS = ("clock", "drain", "events", "master", "options", "until")


def engine_named(engine: str | Engine) -> Engine:
    """The engine itself; a name is looked up among the installed ones."""
    from penstock.engines.protocol import find_engine

    if isinstance(engine, str):
        with placed(None, find_call_site()):
            return find_engine(engine)
    if not hasattr(engine, "start") or not hasattr(engine, "gaps"):
        raise EngineError(
            f"{engine!r} is not an engine",
            where=find_call_site(),
            hint='name one, e.g. engine="reference", or give an Engine object',
        )
    return engine


def options_for(
    *, master: str | None, checkpoint: str | None, until: int | None, drain: bool, options: object
) -> RunOptions:
    """The run's options as one frozen object."""
    from penstock.engines.protocol import RunOptions

    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
        raise EngineError(
            f"until={until!r} is not a number of batches", where=find_call_site(), hint="use until=10"
        )
    return RunOptions(checkpoint=checkpoint, until=until, drain=drain, master=master, engine=options)


def start(
    plan: Plan,
    engine: str | Engine,
    options: RunOptions,
    *,
    clock: Clock | None = None,
    events: EventSink | None = None,
) -> Run:
    """Start a plan on an engine, or say what the engine cannot do in it."""
    chosen = engine_named(engine)
    refuse_gaps(chosen, plan)
    if options.checkpoint is not None:
        _need_names(plan)
    with placed(None, find_call_site()):
        heard = ignore_event if events is None else _heard(events)
        return chosen.start(plan, clock=clock or WallClock(), events=heard, options=options)


def _heard(listener: EventSink) -> EventSink:
    """The user's listener; when it raises, the run fails and the error says who did."""
    if not callable(listener):
        raise EngineError(f"events={listener!r:.80} cannot be called", hint="give a function: events=print")

    def told(event: Event) -> None:
        try:
            listener(event)
        except Exception as cause:
            raise FunctionError(
                f"{name_of(listener)}, which listens to the run, failed on {type(event).__name__}",
                where=find_definition(listener),
                detail=describe_cause(cause),
                hint="catch the exception in it",
            ) from cause

    return told


def refuse_gaps(engine: Engine, plan: Plan) -> None:
    """Raise the first thing that the engine cannot do, before anything runs."""
    for gap in engine.gaps(plan):
        raise NotSupported(
            f"the {engine.name} engine cannot do this: {gap.reason}",
            step=gap.step,
            where=plan[gap.step].where,
            hint=gap.instead,
        )


def wait(run: Run) -> RunResult:
    """Wait for the end; Ctrl-C stops the run before it goes on up."""
    try:
        return run.wait()
    except KeyboardInterrupt:
        run.stop()
        raise


def collect(
    plan: Plan, wanted: Sequence[tuple[Ref, ...]], engine: str | Engine, options: Mapping[str, Any]
) -> tuple[pa.Table, ...]:
    """Run a plan and give the collected ports as tables; a merged pipe is its feeds one after the other."""
    for name in options:
        if name not in _COLLECT_OPTIONS:
            names = nearest_first(name, _COLLECT_OPTIONS)
            raise EngineError(
                f"collect has no option {name}=",
                where=find_call_site(),
                detail=f"it takes {', '.join(names)}",
                hint=f"did you mean {names[0]}=?",
            )
    clock, events = options.get("clock"), options.get("events")
    asked = options_for(
        master=options.get("master"),
        checkpoint=None,
        until=options.get("until"),
        drain=options.get("drain", True),
        options=options.get("options"),
    )
    result = wait(start(plan, engine, asked, clock=clock, events=events))
    return tuple(pa.concat_tables([result.collected[ref] for ref in feeds]) for feeds in wanted)


def to_spark(plan: Plan, feeds: Sequence[Ref], session: object) -> Any:
    """The rows of a pipe as a DataFrame; only the Spark engine can."""
    engine: Any = engine_named("spark")
    refuse_gaps(engine, plan)
    return engine.to_spark(plan, feeds, session)


def _need_names(plan: Plan) -> None:
    for step in plan:
        keeps = step.op.stateful or isinstance(step.op, Windows | Process) or step.op.kind == JOIN
        if keeps and step.op.name is None:
            raise CheckpointError(
                f'step "{step.name}" keeps state and was not named',
                step=step.name,
                where=step.where,
                detail="a checkpoint finds state by the step's name, and made-up names move with the graph",
                hint='give it a name of its own: name="views"',
            )
