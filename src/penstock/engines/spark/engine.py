"""Whether pyspark is here, asked before anything else of it is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.engines.protocol import EngineHarness, Gap, RunOptions
from penstock.engines.spark.fragments import split_into_fragments
from penstock.engines.spark.jvm.pipeline import source_pipelines
from penstock.engines.spark.read_placement import explain_source
from penstock.errors import EngineError, NotSupported
from penstock.events import EventSink
from penstock.frozen import dataclass
from penstock.operators.process import Process
from penstock.operators.stream_join import StreamJoin
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Ref

if TYPE_CHECKING:
    from penstock.engines.spark.driver.run import SparkRun
    from penstock.engines.spark.session.session import RunSession

PIP_LINE = 'pip install "penstock[spark]"'
WANTED = (4, 3)


def need_pyspark() -> None:
    """NotSupported, with the line that mends it, unless the pyspark that we know is installed."""
    if find_spec("pyspark") is None:
        raise NotSupported(
            "the Spark engine needs pyspark, which is not installed",
            detail='engine="local" needs nothing more, and a run never changes its engine by itself',
            hint=PIP_LINE,
        )
    version = metadata.version("pyspark")
    if tuple(int(part) for part in version.split(".")[:2]) != WANTED:
        raise NotSupported(
            f"pyspark {version} is installed, and the Spark engine is made for {WANTED[0]}.{WANTED[1]}",
            hint=PIP_LINE,
        )


# The Spark engine as the registry finds it.


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
                gaps.append(Gap(step.name, reason, 'run it with engine="local"'))
            if isinstance(step.op, StreamJoin):
                gaps.append(Gap(step.name, "joins of two streams", 'run it with engine="reference"'))
        return gaps or _in_python(plan)

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> SparkRun:
        """Begin a run."""
        opened = _opened(options)
        from penstock.engines.spark.driver.run import start_run

        return start_run(plan, opened, clock=clock, events=events, options=options)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """Begin a run that is fed by hand, each round of it carried by Spark."""
        opened = _opened(options)
        from penstock.engines.spark.driver.run import start_harness

        return start_harness(plan, opened, clock=clock, events=events, options=options)

    def to_spark(self, plan: Plan, feeds: Sequence[Ref], session: Any) -> Any:
        """The rows of a pipe as a DataFrame of the session, the user's or the one that is running."""
        opened = _opened(RunOptions(engine=Defaults(session=session)))
        from pyspark.sql import SparkSession

        from penstock.engines.spark.to_spark import build_frame

        return build_frame(plan, feeds, opened, session or SparkSession.builder.getOrCreate())

    def explain(self, plan: Plan) -> Sequence[str]:
        """How the plan is cut for Spark."""
        fragments = split_into_fragments(plan)
        lines = [line for step in plan.sources for line in explain_source(plan, step, fragments)]
        for fragment in fragments.fragments:
            names = ", ".join(step.name for step in fragment.steps)
            how = "after an exchange by key" if fragment.keyed else "where rows are read"
            if fragment.steps:
                lines.append(f"fragment {fragment.number}, {how}: {names}")
        return lines


def _in_python(plan: Plan) -> list[Gap]:
    """Steps with Spark's own SQL that do not stay in the JVM."""
    fragments = split_into_fragments(plan)
    inside = (
        {step.name for chain in source_pipelines(plan, fragments) for step in chain.steps}
        if fragments.fragments
        else set()
    )
    found = [(step.name, find_spark_sql(step.op)) for step in plan if step.name not in inside]
    return [
        Gap(
            name,
            f"{sql} runs in the JVM, and this step does not: explain() says why",
            "use it in map, select or filter straight behind ps.read.parquet(...) or ps.read.spark(...)",
        )
        for name, sql in found
        if sql is not None
    ]


def _opened(options: RunOptions) -> RunSession:
    asked: Any = options.engine or Defaults()
    if not all(hasattr(asked, name) for name in Defaults.__slots__):
        raise EngineError(
            f"the spark engine takes SparkOptions, and got {type(asked).__name__}",
            hint="options=ps.SparkOptions(...)",
        )
    need_pyspark()
    from penstock.engines.spark.session.session import open_session

    return open_session(asked, master=options.master, checkpoint=options.checkpoint)
