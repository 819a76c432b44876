"""The reference engine: the judge of the others, plain Python, one row at a time.

Slow, obvious and independent: nothing in this folder imports a stage or a kernel, even where that means
writing a rule twice (frontiers, sinks, source times).
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clock import Clock
from penstock.engines.protocol import Gap, RunOptions
from penstock.engines.reference.rounds import Interpreter, lower
from penstock.engines.reference.run import ReferenceHarness, ReferenceRun
from penstock.errors import NotSupported
from penstock.events import EventSink
from penstock.operators.op import Op
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan

_SPARK = 'run it with engine="spark", or say it with col(...)'
_INSTEAD = 'run it on an engine that has one: engine="local" or engine="spark"'


class ReferenceEngine:
    """Runs a plan row by row, and saves no state."""

    @property
    def name(self) -> str:
        """Implement `Engine.name`."""
        return "reference"

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Return the steps whose operator it has no rule for, and those that use Spark SQL."""
        gaps = [
            Gap(step.name, f"the reference engine has no rule for {type(step.op).__name__}", _INSTEAD)
            for step in plan
            if lower.dispatch(type(step.op)) is lower.dispatch(Op)
        ]
        spark_sql = [(step.name, find_spark_sql(step.op)) for step in plan]
        return gaps + [Gap(name, f"{sql} runs on Spark only", _SPARK) for name, sql in spark_sql if sql]

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> ReferenceRun:
        """Implement `Engine.start`."""
        self._refuse(plan, options)
        return ReferenceRun(Interpreter(plan, clock=clock, events=events), options)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> ReferenceHarness:
        """Implement `Engine.open_harness`."""
        self._refuse(plan, options)
        return ReferenceHarness(Interpreter(plan, clock=clock, events=events), options)

    def explain(self, plan: Plan) -> Sequence[str]:
        """Implement `Engine.explain`."""
        lines = [
            "plain Python, one row at a time: made to be right, not fast",
            f"{len(plan.steps)} steps in one thread, {len(plan.sources)} batches a round",
        ]
        ignored = [step.name for step in plan if step.degree.most > 1]
        if ignored:
            lines.append(f"one replica each; the degree changes no result: {', '.join(ignored)}")
        return lines

    def _refuse(self, plan: Plan, options: RunOptions) -> None:
        if options.checkpoint is not None:
            raise NotSupported(
                f"the reference engine keeps no state, so checkpoint={options.checkpoint!r} is no use to it",
                hint="leave checkpoint out, or use another engine",
            )
        if options.master is not None:
            raise NotSupported(
                "the reference engine runs here and nowhere else, and was given a master",
                hint="leave master out",
            )
        if options.engine is not None:
            raise NotSupported(
                f"the reference engine has no options, and got {type(options.engine).__name__}",
                hint="leave options out",
            )
        for gap in self.gaps(plan):
            raise NotSupported(gap.reason, step=gap.step, hint=gap.instead)
