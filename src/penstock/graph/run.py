"""From a plan to a run: find the engine by name, refuse what it cannot do, start it, wait for its end.

Who waits in the main thread owns the process, so signals end the run: see `handle_signals`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock import errors
from penstock.caller import find_call_site, find_definition, name_of
from penstock.clock import WallClock
from penstock.events import ignore_event
from penstock.graph.steps import locate_errors
from penstock.operators.op import JOIN
from penstock.operators.process import Process
from penstock.operators.windows import Windows
from penstock.options import CollectSettings, RunSettings
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.protocol import Engine, Run, RunResult
    from penstock.events import Event, EventSink


def resolve_engine(engine: str | Engine) -> Engine:
    """Return the engine itself; a name is looked up among the installed ones."""
    from penstock.engines.protocol import find_engine

    if isinstance(engine, str):
        with locate_errors(None, find_call_site()):
            return find_engine(engine)
    if not hasattr(engine, "start") or not hasattr(engine, "gaps"):
        raise errors.EngineError(
            f"{engine!r} is not an engine",
            where=find_call_site(),
            hint='name one, e.g. engine="reference", or give an Engine object',
        )
    return engine


def start(plan: Plan, engine: str | Engine, settings: RunSettings, verb: str) -> Run:
    """Start a plan on an engine, or say what is wrong with the settings or what the engine cannot do."""
    from penstock.engines.protocol import RunOptions

    known = tuple((CollectSettings if verb == "collect" else RunSettings).__annotations__)
    for name in settings:
        if name not in known:
            names = errors.nearest_first(name, known)
            raise errors.EngineError(
                f"{verb} has no option {name}=",
                where=find_call_site(),
                detail=f"it takes {', '.join(names)}",
                hint=f"did you mean {names[0]}=?",
            )
    until, checkpoint = settings.get("until"), _folder_of(settings.get("checkpoint"))
    if until is not None and (isinstance(until, bool) or not isinstance(until, int) or until < 0):
        raise errors.EngineError(
            f"until={until!r} is not a number of batches", where=find_call_site(), hint="use until=10"
        )
    chosen = resolve_engine(engine)
    refuse_gaps(chosen, plan)
    for step in plan if checkpoint is not None else ():
        keeps_state = step.op.stateful or isinstance(step.op, Windows | Process) or step.op.kind == JOIN
        if keeps_state and step.op.name is None:
            raise errors.CheckpointError(
                f'step "{step.name}" keeps state and was not named',
                step=step.name,
                where=step.where,
                detail="a checkpoint finds state by the step's name, and made-up names move with the graph",
                hint='give it a name of its own: name="views"',
            )
    options = RunOptions(
        checkpoint=checkpoint,
        until=until,
        drain=settings.get("drain", checkpoint is None),
        master=settings.get("master"),
        engine=settings.get("options"),
        renamed=settings.get("renamed", {}),
    )
    listener = settings.get("events")
    with locate_errors(None, find_call_site()):
        events = ignore_event if listener is None else _guard_listener(listener)
        return chosen.start(plan, clock=settings.get("clock") or WallClock(), events=events, options=options)


def _folder_of(checkpoint: object) -> str | None:
    """Return the folder of a checkpoint as text; raise if it is none."""
    if checkpoint is None or isinstance(checkpoint, str):
        return checkpoint
    if isinstance(checkpoint, os.PathLike) and isinstance(folder := os.fspath(checkpoint), str):
        return folder
    raise errors.CheckpointError(
        f"checkpoint={checkpoint!r} is not a folder",
        where=find_call_site(),
        hint='give its path, as text or as a Path: checkpoint="checkpoint/"',
    )


@contextmanager
def handle_signals() -> Iterator[Callable[[Run], RunResult]]:
    """Yield a function that waits for a run: a signal stops it cleanly, a second one ends it at once.

    >>> import penstock as ps
    >>> graph = ps.PipeGraph("one", engine="local")
    >>> _ = graph.source(ps.read.rows([{"a": 1}])).sink(ps.write.memory())
    >>> with ps.handle_signals() as wait:
    ...     wait(graph.start()).outcome
    'drained'

    SIGINT then raises KeyboardInterrupt, SIGTERM SystemExit(143). Only the main thread handles signals, so
    others just wait. Handlers of the user's stay; afterwards all are as they were. That of Spark for SIGINT
    is replaced, because it cancels the jobs that a clean stop would still finish.
    """
    before: dict[int, Any] = {}
    pending: list[int] = []
    waits = False

    def handle(number: int, frame: object) -> None:
        # Why only noted while a run is being started: there is no handle yet by which to stop it.
        if not waits and not pending:
            pending.append(number)
            return
        pending.clear()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def wait(run: Run) -> RunResult:
        nonlocal waits
        taken_over = signal.getsignal(signal.SIGINT)  # by Spark, when it starts
        if is_main and getattr(taken_over, "__module__", "").startswith("pyspark."):
            before[signal.SIGINT] = signal.signal(signal.SIGINT, handle)
        try:
            waits = True
            for number in tuple(pending):
                handle(number, None)
            return run.wait()
        except (KeyboardInterrupt, SystemExit):
            getattr(run, "stop_after_signal", run.stop)()
            raise
        finally:
            waits = False

    is_main = threading.current_thread() is threading.main_thread()
    for default in (signal.SIGTERM, signal.SIGINT) if is_main else ():
        handler = signal.getsignal(default)
        is_default = handler in (signal.SIG_DFL, signal.default_int_handler)
        if is_default or getattr(handler, "__module__", "").startswith("pyspark."):
            before[default] = signal.signal(default, handle)
    try:
        yield wait
    finally:
        for number, old_handler in before.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, old_handler)
        for number in pending:  # one that came too late for the run
            signal.raise_signal(number)


def refuse_gaps(engine: Engine, plan: Plan) -> None:
    """Raise the first thing that the engine cannot do, before anything runs."""
    for gap in engine.gaps(plan):
        raise errors.NotSupported(
            f"the {engine.name} engine cannot do this: {gap.reason}",
            step=gap.step,
            where=plan[gap.step].where,
            hint=gap.instead,
        )


def _guard_listener(listener: EventSink) -> EventSink:
    """Return the user's listener; when it raises, the run fails with an error that names it."""
    if not callable(listener):
        raise errors.EngineError(
            f"events={listener!r:.80} cannot be called", hint="give a function: events=print"
        )

    def listen(event: Event) -> None:
        try:
            listener(event)
        except Exception as cause:
            raise errors.FunctionError(
                f"{name_of(listener)}, which listens to the run, failed on {type(event).__name__}",
                where=find_definition(listener),
                detail=errors.describe_cause(cause),
                hint="catch the exception in it",
            ) from cause

    return listen
