"""A run that goes by itself: it reads the sources, round by round, in a thread of its own."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress

from penstock.accounts import Accounts
from penstock.connect.protocol import SourceBatch
from penstock.engines.background_run import BackgroundRun
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.reference.rounds import Interpreter
from penstock.errors import ConnectorError, PenstockError, describe_cause
from penstock.events import RunEnded, RunStarted, StepFailed
from penstock.operators.source import Source
from penstock.plan.plan import Step


class ReferenceRun(BackgroundRun):
    """A run under way."""

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        super().__init__(interpreter.plan.graph, "reference")
        self._interpreter, self._options = interpreter, options
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        return copy.deepcopy(self._interpreter.accounts)

    def execute(self) -> RunResult:
        """From the first batch to the end."""
        return carry_plan(self._interpreter, self._options, self._stopping)


def carry_plan(interpreter: Interpreter, options: RunOptions, stopping: threading.Event) -> RunResult:
    """Run a plan from its first batch to its end, and close everything whatever happens."""
    begin(interpreter)
    readers = {step.name: Reading(interpreter, step) for step in interpreter.plan.sources}
    outcome = "failed"
    try:
        try:
            reached = _rounds(interpreter, options, stopping, readers)
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                _close(interpreter, readers)
            raise
        _close(interpreter, readers)
        outcome = reached
    finally:
        end(interpreter, outcome)
    return result(interpreter, outcome)


def _close(interpreter: Interpreter, readers: Mapping[str, Reading]) -> None:
    try:
        for reader in readers.values():
            reader.close()
    finally:
        interpreter.close()


def begin(interpreter: Interpreter) -> None:
    """Say that a run begins, and open it."""
    steps = tuple(step.name for step in interpreter.plan)
    now = interpreter.clock.now()
    interpreter.events(RunStarted(now, interpreter.plan.graph, "reference", steps))
    try:
        interpreter.open()
    except BaseException:
        end(interpreter, "failed")
        raise


def end(interpreter: Interpreter, outcome: str) -> None:
    """Say that a run is over."""
    interpreter.events(RunEnded(interpreter.clock.now(), outcome, interpreter.batches))


def result(interpreter: Interpreter, outcome: str) -> RunResult:
    """What a finished run says of itself."""
    collected = {ref: interpreter.table(ref) for ref in interpreter.plan.collects}
    return RunResult(outcome, interpreter.batches, copy.deepcopy(interpreter.accounts), collected)


def _rounds(
    interpreter: Interpreter,
    options: RunOptions,
    stopping: threading.Event,
    readers: Mapping[str, Reading],
) -> str:
    """Rounds until the sources end; then everything leaves, unless the run was not to drain."""
    while not stopping.is_set() and interpreter.batches != options.until:
        batches = {name: batch for name, reader in readers.items() if (batch := reader.next()) is not None}
        if not batches:
            if options.drain:
                interpreter.drain()
            return "drained" if options.drain else "stopped"
        # With drain=False a later run may go on where a source ended, so the source still holds back.
        ended = [name for name, reader in readers.items() if reader.ended] if options.drain else []
        interpreter.round(batches, ended=ended)
    return "stopped"


class Reading:
    """A source's reader at work."""

    def __init__(self, interpreter: Interpreter, step: Step) -> None:
        assert isinstance(step.op, Source), "only sources read"
        self._interpreter, self._step, self._reader = interpreter, step, step.op.reader
        self._batches: Iterator[SourceBatch] | None = None
        self.ended = False

    def next(self) -> SourceBatch | None:
        """The next batch; None when there is none any more."""
        if self.ended:
            return None
        try:
            if self._batches is None:
                self._batches = iter(self._reader.batches())
            batch = next(self._batches, None)
        except Exception as cause:
            raise self._failed(cause) from cause
        self.ended = batch is None
        return batch

    def close(self) -> None:
        """Let the reader release what it holds: generators have their `finally` run."""
        closing = getattr(self._batches, "close", None)
        if closing is not None:
            closing()

    def _failed(self, cause: Exception) -> PenstockError:
        """A reader's own error as it is; anything else with what was being read."""
        failure = cause
        if not isinstance(failure, PenstockError):
            failure = ConnectorError(
                f"could not read {self._reader.describe()}", detail=describe_cause(cause)
            )
        failure.at(self._step.name, self._step.where)
        now = self._interpreter.clock.now()
        self._interpreter.events(StepFailed(now, self._step.name, str(failure)))
        return failure
