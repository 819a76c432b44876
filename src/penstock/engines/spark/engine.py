"""The Spark engine as the registry finds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.engines.protocol import Gap, RunOptions, Session
from penstock.engines.spark.installed import need_pyspark
from penstock.engines.spark.legs import cut
from penstock.engines.spark.native_chain import explain_source
from penstock.errors import EngineError, NotSupported
from penstock.events import EventSink
from penstock.operators.process import Process
from penstock.operators.window_join import WindowJoin
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.engines.spark.running import SparkRun


@dataclass(frozen=True, slots=True)
class Defaults:
    """`SparkOptions` as they are when nobody gave any."""

    conf: Mapping[str, str] = field(default_factory=dict)
    trigger: str | None = None
    partitions: int | None = None
    session: Any = None


class SparkEngine:
    """Structured Streaming through PySpark: embedded, on a cluster, or in a session that is there."""

    @property
    def name(self) -> str:
        """What `run(engine=...)` calls it."""
        return "spark"

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """What cannot be done in batches that Spark plans."""
        gaps = []
        for step in plan:
            if isinstance(step.op, Process):
                reason = (
                    "an operator with its own driver loop waits for rows, and Spark brings them in batches"
                )
                gaps.append(Gap(step.name, reason, 'run it with engine="reference"'))
            if isinstance(step.op, WindowJoin):
                gaps.append(Gap(step.name, "joins of two streams", 'run it with engine="reference"'))
        return gaps

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> SparkRun:
        """Begin a run."""
        asked: Any = options.engine or Defaults()
        if not all(hasattr(asked, name) for name in Defaults.__slots__):
            raise EngineError(
                f"the spark engine takes SparkOptions, and got {type(asked).__name__}",
                hint="options=ps.SparkOptions(...)",
            )
        need_pyspark()
        from penstock.engines.spark.running import SparkRun
        from penstock.engines.spark.session import open_session

        opened = open_session(asked, master=options.master, checkpoint=options.checkpoint)
        return SparkRun(plan, opened, clock=clock, events=events, options=options)

    def session(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> Session:
        """A run fed by hand needs an engine in this process."""
        raise NotSupported(
            "the spark engine cannot be fed by hand",
            hint='use Harness(pipe, engine="reference"), and assert_engines_agree(graph) for Spark',
        )

    def explain(self, plan: Plan) -> Sequence[str]:
        """How the plan is cut for Spark."""
        legs = cut(plan)
        lines = [line for step in plan.sources for line in explain_source(plan, step, legs)]
        for leg in legs.legs:
            names = ", ".join(step.name for step in leg.steps)
            how = "after an exchange by key" if leg.keyed else "where rows are read"
            if leg.steps:
                lines.append(f"leg {leg.number}, {how}: {names}")
        return lines
