"""The Spark engine as the registry finds it. Imports no pyspark before a run starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.engines.protocol import EngineHarness, Gap, RunOptions
from penstock.engines.spark.fragments import FILES, split_into_fragments
from penstock.engines.spark.join_exchange import plan_join_exchange
from penstock.engines.spark.read_placement import explain_source, source_pipelines
from penstock.errors import EngineError, NotSupported, TimeError
from penstock.events import EventSink
from penstock.operators.process import Process
from penstock.operators.stream_join import StreamJoin
from penstock.options import SparkOptions
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Ref
from penstock.timing.units import Duration, micros

if TYPE_CHECKING:
    from penstock.engines.spark.driver.run import SparkRun
    from penstock.engines.spark.session.session import RunSession

PIP_LINE = 'pip install "penstock[spark]"'
SUPPORTED = (4, 3)
_LENGTH = re.compile(r"\d+(?:\.\d+)?\s*[A-Za-zµ]+")
_INTERVAL = re.compile(rf"\s*(?:interval\s+)?(?:{_LENGTH.pattern}\s*)+")


def need_pyspark() -> None:
    """Raise NotSupported, with the line that installs it, unless a pyspark that we know is installed."""
    if find_spec("pyspark") is None:
        raise NotSupported(
            "the Spark engine needs pyspark, which is not installed",
            detail='engine="local" needs nothing more, and a run never changes its engine by itself',
            hint=PIP_LINE,
        )
    version = metadata.version("pyspark")
    if tuple(int(part) for part in version.split(".")[:2]) != SUPPORTED:
        raise NotSupported(
            f"pyspark {version} is installed, and the Spark engine is made for {SUPPORTED[0]}.{SUPPORTED[1]}",
            hint=PIP_LINE,
        )


def spell_trigger(trigger: object) -> str | None:
    """Return how often micro-batches start as Spark spells it; raise EngineError for what is no interval.

    >>> spell_trigger("1 minute 30 s")
    '90000 milliseconds'
    """
    if trigger is None:
        return None
    lengths: list[Duration] = [trigger] if isinstance(trigger, timedelta) else []
    if isinstance(trigger, str) and _INTERVAL.fullmatch(trigger.lower()):
        lengths = _LENGTH.findall(trigger.lower())
    try:
        us = sum(micros(length) for length in lengths) if lengths else -1
    except TimeError:  # a unit that nobody knows
        us = -1
    if us < 0 or us % 1_000:
        raise EngineError(
            f"trigger={trigger!r} is not how often a micro-batch can start",
            detail="it is an interval of whole milliseconds",
            hint='use SparkOptions(trigger="5 seconds"), "500 ms", "1 minute 30 seconds" or a timedelta; '
            "left out, a micro-batch starts as soon as there is data",
        )
    return f"{us // 1_000} milliseconds"


class SparkEngine:
    """Structured Streaming through PySpark: embedded, on a cluster, or in a session of the user."""

    name = "spark"

    def gaps(self, plan: Plan) -> Sequence[Gap]:
        """Return what cannot be done in batches that Spark plans."""
        gaps = []
        for step in plan:
            if isinstance(step.op, Process):
                reason = (
                    "an operator with its own driver loop waits for rows, and Spark brings them in batches"
                )
                gaps.append(Gap(step.name, reason, 'run it with engine="local"'))
        if gaps:
            return gaps
        inside = {step.name for pipeline in source_pipelines(plan) for step in pipeline.steps}
        return [
            Gap(
                step.name,
                f"{sql} runs in the JVM, and this step does not: explain() says why",
                "use it in map, select or filter straight behind ps.read.parquet(...) or ps.read.spark(...)",
            )
            for step in plan
            if step.name not in inside and (sql := find_spark_sql(step.op)) is not None
        ]

    def start(self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions) -> SparkRun:
        """Start a run."""
        spell_trigger(getattr(options.engine, "trigger", None))  # raises before Spark starts
        session = _open_session(options, plan.graph)
        from penstock.engines.spark.driver.run import SparkRun, add_progress_line, build_loop

        events = add_progress_line(events)
        loop = build_loop(plan, session, clock=clock, events=events, options=options)
        return SparkRun(loop, session)

    def open_harness(
        self, plan: Plan, *, clock: Clock, events: EventSink, options: RunOptions
    ) -> EngineHarness:
        """Start a run that is fed by hand, each round of it run by Spark."""
        session = _open_session(options, plan.graph)
        from penstock.engines.spark.driver.run import SparkHarness, build_loop

        loop = build_loop(plan, session, clock=clock, events=events, options=options)
        return SparkHarness(loop, options)

    def to_spark(self, plan: Plan, feeds: Sequence[Ref], session: Any) -> Any:
        """Return the rows of a pipe as a DataFrame of the user's session, or of the one that is running."""
        run_session = _open_session(RunOptions(engine=SparkOptions(session=session)), plan.graph)
        from pyspark.sql import SparkSession

        from penstock.engines.spark.to_spark import build_frame

        return build_frame(plan, feeds, run_session, session or SparkSession.builder.getOrCreate())

    def explain(self, plan: Plan) -> Sequence[str]:
        """Return who reads the sources, and how the plan is split into fragments."""
        fragments = split_into_fragments(plan)
        lines = [line for step in plan.sources for line in explain_source(plan, step)]
        for fragment in fragments.fragments:
            names = ", ".join(step.name for step in fragment.steps)
            how = "after an exchange" if fragment.keyed else "where rows are read"
            if fragment.keyed and not any(isinstance(step.op, StreamJoin) for step in fragment.steps):
                how += " by key"
            if fragment.steps:
                lines.append(f"fragment {fragment.number}, {how}: {names}")
            for step in fragment.steps:
                if isinstance(step.op, StreamJoin):
                    exchange = plan_join_exchange(step.op, *(port.stream for port in step.inputs))
                    lines += [f"{step.name}: {text}" for text in (exchange.describe(), exchange.predict(4))]
        in_files = [step.name for step in plan.sinks if fragments.placement[step.name] == FILES]
        on_driver = [step.name for step in plan.sinks if step.name not in in_files]
        if in_files:
            lines.append(f"written by the tasks that have the rows: {', '.join(in_files)}")
        if on_driver:
            lines.append(f"sent to the driver, where they live: {', '.join(on_driver)}")
        return lines


def _open_session(options: RunOptions, name: str) -> RunSession:
    chosen = options.engine or SparkOptions()
    if not isinstance(chosen, SparkOptions):
        raise EngineError(
            f"the spark engine takes SparkOptions, and got {type(chosen).__name__}",
            hint="options=ps.SparkOptions(...)",
        )
    from penstock.engines.spark.session.session import open_session

    return open_session(chosen, master=options.master, checkpoint=options.checkpoint, name=name)
