"""The in-process engine, as the engine registry loads it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.engines.local.options import resolve_settings
from penstock.engines.protocol import Gap, RunOptions
from penstock.errors import NotSupported
from penstock.operators.op import JOIN
from penstock.operators.process import Process
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.local.harness import LocalHarness
    from penstock.engines.local.run import LocalRun
    from penstock.events import EventSink

_SPARK_HINT = 'run it with engine="spark", or say it with col(...)'


class LocalEngine:
    """Runs plans as co-routines on a pool of threads, in this process."""

    @property
    def name(self) -> str:
        """Returns its name in `run(engine=...)`."""
        return "local"

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Returns what this engine cannot run: joins of streams, and expressions in Spark's SQL."""
        gaps = [
            Gap(step.name, "joins of two streams", 'run it with engine="reference"')
            for step in plan
            if step.op.kind == JOIN
        ]
        sql_steps = [(step.name, find_spark_sql(step.op)) for step in plan]
        return gaps + [Gap(name, f"{sql} runs on Spark only", _SPARK_HINT) for name, sql in sql_steps if sql]

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> LocalRun:
        """Starts a run in threads of its own."""
        import_module("penstock.engines.local.run")
        from penstock.engines.local.run import LocalRun

        _refuse_master(options)
        if options.checkpoint is not None:
            _refuse_process_operators(plan)
        settings = resolve_settings(options.engine, plan)
        return LocalRun(plan, settings, clock=clock, events=events, options=options)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> LocalHarness:
        """Begin a run fed by hand."""
        from penstock.engines.local.harness import LocalHarness

        _refuse_master(options)
        if options.checkpoint is not None:
            raise NotSupported("a run fed by hand keeps no checkpoint", hint="leave checkpoint out")
        settings = resolve_settings(options.engine, plan)
        return LocalHarness(plan, settings, clock=clock, events=events, options=options)

    def explain(self, plan: Plan) -> Sequence[str]:
        """Returns what the engine does with a plan, line by line."""
        from penstock.engines.local.explain import explain

        return explain(plan)


def _refuse_master(options: RunOptions) -> None:
    if options.master is not None:
        raise NotSupported(
            f'the local engine runs in this process, and was given master="{options.master}"',
            hint='leave master out, or use engine="spark"',
        )


def _refuse_process_operators(plan: Plan) -> None:
    for step in plan:
        if isinstance(step.op, Process):
            raise NotSupported(
                f"the state of {type(step.op.operator).__name__}, which has its own loop, cannot be saved",
                step=step.name,
                where=step.where,
                hint="leave checkpoint out, or keep the state with key_by and state=",
            )
