"""The reference engine: the judge of the others, plain Python, one row at a time.

Slow, obvious and independent: nothing in this folder imports a stage or a kernel, even where that means
writing a rule twice (frontiers, sinks, source times). There are two ways to drive its interpreter: a run in a
thread of its own, and a harness fed by its caller.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import OpeningStopped, SourceBatch
from penstock.engines.protocol import BackgroundRun, Gap, RoundHarness, RunOptions, RunResult
from penstock.engines.reference.rounds import Interpreter, lower
from penstock.errors import ConnectorError, NotSupported, PenstockError, describe_cause
from penstock.events import EventSink, RunEnded, RunStarted
from penstock.operators.op import Op
from penstock.plan.check import find_spark_sql
from penstock.plan.plan import Plan, Step


class ReferenceRun(BackgroundRun):
    """A run that reads its sources round by round."""

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        super().__init__(interpreter.plan, "reference", interpreter.clock)
        self._interpreter, self._options = interpreter, options
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `Run.metrics`."""
        return copy.deepcopy(self._interpreter.accounts)

    def watermarks(self) -> Mapping[str, float]:
        """Implement `BackgroundRun.watermarks`."""
        return {name: frontier.watermark for name, frontier in self._interpreter.source_frontiers().items()}

    def idle_sources(self) -> frozenset[str]:
        """Implement `BackgroundRun.idle_sources`."""
        frontiers = self._interpreter.source_frontiers()
        return frozenset(name for name, frontier in frontiers.items() if frontier.idle and not frontier.over)

    def execute(self) -> RunResult:
        """Run the plan from its first batch to its end, and close everything whatever happens."""
        interpreter = self._interpreter
        try:
            begin_run(interpreter)
        except OpeningStopped:
            return build_result(interpreter, "stopped")
        batches = {step.name: _read_batches(step) for step in interpreter.plan.sources}
        outcome = "failed"
        try:
            try:
                reached = self._run_rounds(batches)
            except BaseException:
                with suppress(Exception):  # what stopped the run matters more than what followed from it
                    self._close(batches)
                raise
            self._close(batches)
            outcome = reached
        finally:
            end_run(interpreter, outcome)
        return build_result(interpreter, outcome)

    def _run_rounds(self, sources: Mapping[str, Batches]) -> str:
        """Run rounds until the sources end, then drain if asked to; return the outcome."""
        interpreter, drain = self._interpreter, self._options.drain
        ended: set[str] = set()
        while not self._stopping.is_set() and interpreter.batches != self._options.until:
            batches: dict[str, SourceBatch] = {}
            for name, source in sources.items():
                with interpreter.report_errors(interpreter.plan[name]):
                    batch = next(source, None)
                if batch is None:
                    ended.add(name)
                else:
                    batches[name] = batch
            if not batches:
                if drain:
                    interpreter.drain()
                return "drained" if drain else "stopped"
            # Why: with drain=False a later run may resume where a source ended: it still holds windows open.
            interpreter.round(batches, ended=ended if drain else ())
        return "stopped"

    def _close(self, batches: Mapping[str, Batches]) -> None:
        """Let readers release what they hold, a generator running its `finally`, and close all nodes."""
        try:
            for source in batches.values():
                source.close()
        finally:
            self._interpreter.close()


Batches = Generator[SourceBatch, None, None]


def _read_batches(step: Step) -> Batches:
    """Yield the batches of a source; a reader's own error stays as it is, any other says what was read."""
    reader = step.as_source.reader
    try:
        yield from reader.batches()
    except PenstockError:
        raise
    except Exception as cause:
        fact = f"could not read {reader.describe()}"
        raise ConnectorError(fact, detail=describe_cause(cause)) from cause


def begin_run(interpreter: Interpreter) -> None:
    """Emit the event that a run begins, and open it."""
    steps = tuple(step.name for step in interpreter.plan)
    now = interpreter.clock.now()
    interpreter.events(RunStarted(now, interpreter.plan.graph, "reference", steps))
    try:
        interpreter.open()
    except BaseException as failure:
        end_run(interpreter, "stopped" if isinstance(failure, OpeningStopped) else "failed")
        raise


def end_run(interpreter: Interpreter, outcome: str) -> None:
    """Emit the event that a run is over."""
    interpreter.events(RunEnded(interpreter.clock.now(), outcome, interpreter.batches))


def build_result(interpreter: Interpreter, outcome: str) -> RunResult:
    """Return the result of a finished run."""
    collected = {ref: interpreter.table(ref) for ref in interpreter.plan.collects}
    return RunResult(outcome, interpreter.batches, copy.deepcopy(interpreter.accounts), collected)


class ReferenceHarness(RoundHarness):
    """A run that is fed by its caller, in the calling thread: all is done when a call returns."""

    again = "open another harness"

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        super().__init__(interpreter.plan)
        self._interpreter, self._options = interpreter, options
        self.collected, self.table = interpreter.collected, interpreter.table
        begin_run(interpreter)

    def end(self) -> RunResult:
        """Implement `EngineHarness.end`."""
        self._refuse_over()
        outcome = "failed"
        try:
            if self._options.drain:
                self._interpreter.drain()
            outcome = "drained" if self._options.drain else "stopped"
        finally:
            self._close(outcome)
        return build_result(self._interpreter, outcome)

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `EngineHarness.metrics`."""
        return copy.deepcopy(self._interpreter.accounts)

    def _round(self, batches: Mapping[str, SourceBatch]) -> None:
        try:
            self._interpreter.round(batches)
        except BaseException:
            self._close("failed")
            raise

    def _close(self, outcome: str) -> None:
        self._over = True
        try:
            self._interpreter.close()
        finally:
            end_run(self._interpreter, outcome)

    def _promise(self, watermark: int) -> None:
        for step in self._plan.sources:
            self._interpreter.source(step.name).promise(watermark)


_SPARK = 'run it with engine="spark", or say it with col(...)'
_INSTEAD = 'run it on an engine that has one: engine="local" or engine="spark"'


class ReferenceEngine:
    """Runs a plan row by row, and saves no state."""

    name = "reference"

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
        name = "the reference engine"
        no_use = f"{name} keeps no state, so checkpoint={options.checkpoint!r} is no use to it"
        elsewhere = f"{name} runs here and nowhere else, and was given a master"
        unknown = f"{name} has no options, and got {type(options.engine).__name__}"
        for option, fact, hint in (
            (options.checkpoint, no_use, "leave checkpoint out, or use another engine"),
            (options.master, elsewhere, "leave master out"),
            (options.engine, unknown, "leave options out"),
        ):
            if option is not None:
                raise NotSupported(fact, hint=hint)
        for gap in self.gaps(plan):
            raise NotSupported(gap.reason, step=gap.step, hint=gap.instead)
