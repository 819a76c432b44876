"""The two ways to drive the interpreter: a run in a thread of its own, and a harness fed by its caller.

Part of the reference engine, the judge of the others: it imports no stage and no kernel.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.connect.protocol import SourceBatch
from penstock.engines.protocol import BackgroundRun, RunOptions, RunResult
from penstock.engines.reference.rounds import Interpreter
from penstock.errors import (
    ConnectorError,
    EngineError,
    GraphError,
    PenstockError,
    describe_cause,
    nearest_first,
)
from penstock.events import RunEnded, RunStarted, StepFailed
from penstock.operators.ends import Source
from penstock.plan.plan import Ref, Step


class ReferenceRun(BackgroundRun):
    """A run that reads its sources round by round."""

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        super().__init__(interpreter.plan.graph, "reference")
        self._interpreter, self._options = interpreter, options
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """Implement `Run.metrics`."""
        return copy.deepcopy(self._interpreter.accounts)

    def execute(self) -> RunResult:
        """Implement `BackgroundRun.execute`."""
        return run_to_end(self._interpreter, self._options, self._stopping)


def run_to_end(interpreter: Interpreter, options: RunOptions, stopping: threading.Event) -> RunResult:
    """Run a plan from its first batch to its end, and close everything whatever happens."""
    begin_run(interpreter)
    readers = {step.name: _SourceIterator(interpreter, step) for step in interpreter.plan.sources}
    outcome = "failed"
    try:
        try:
            reached = _run_rounds(interpreter, options, stopping, readers)
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                _close(interpreter, readers)
            raise
        _close(interpreter, readers)
        outcome = reached
    finally:
        end_run(interpreter, outcome)
    return build_result(interpreter, outcome)


def _close(interpreter: Interpreter, readers: Mapping[str, _SourceIterator]) -> None:
    try:
        for reader in readers.values():
            reader.close()
    finally:
        interpreter.close()


def begin_run(interpreter: Interpreter) -> None:
    """Emit the event that a run begins, and open it."""
    steps = tuple(step.name for step in interpreter.plan)
    now = interpreter.clock.now()
    interpreter.events(RunStarted(now, interpreter.plan.graph, "reference", steps))
    try:
        interpreter.open()
    except BaseException:
        end_run(interpreter, "failed")
        raise


def end_run(interpreter: Interpreter, outcome: str) -> None:
    """Emit the event that a run is over."""
    interpreter.events(RunEnded(interpreter.clock.now(), outcome, interpreter.batches))


def build_result(interpreter: Interpreter, outcome: str) -> RunResult:
    """Return the result of a finished run."""
    collected = {ref: interpreter.table(ref) for ref in interpreter.plan.collects}
    return RunResult(outcome, interpreter.batches, copy.deepcopy(interpreter.accounts), collected)


def _run_rounds(
    interpreter: Interpreter,
    options: RunOptions,
    stopping: threading.Event,
    readers: Mapping[str, _SourceIterator],
) -> str:
    """Run rounds until the sources end, then drain if asked to; return the outcome."""
    while not stopping.is_set() and interpreter.batches != options.until:
        batches = {name: batch for name, reader in readers.items() if (batch := reader.next()) is not None}
        if not batches:
            if options.drain:
                interpreter.drain()
            return "drained" if options.drain else "stopped"
        # Why: with drain=False a later run may resume where a source ended, so it still holds windows open.
        ended = [name for name, reader in readers.items() if reader.ended] if options.drain else []
        interpreter.round(batches, ended=ended)
    return "stopped"


class _SourceIterator:
    """The batches of one source."""

    def __init__(self, interpreter: Interpreter, step: Step) -> None:
        assert isinstance(step.op, Source), "only sources read"
        self._interpreter, self._step, self._reader = interpreter, step, step.op.reader
        self._batches: Iterator[SourceBatch] | None = None
        self.ended = False

    def next(self) -> SourceBatch | None:
        """Return the next batch, or None at the end."""
        if self.ended:
            return None
        try:
            if self._batches is None:
                self._batches = iter(self._reader.batches())
            batch = next(self._batches, None)
        except Exception as cause:
            raise self._read_error(cause) from cause
        self.ended = batch is None
        return batch

    def close(self) -> None:
        """Let the reader release what it holds: a generator runs its `finally`."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def _read_error(self, cause: Exception) -> PenstockError:
        """Return a reader's own error as it is, and any other with what was being read."""
        failure = cause
        if not isinstance(failure, PenstockError):
            failure = ConnectorError(
                f"could not read {self._reader.describe()}", detail=describe_cause(cause)
            )
        failure.at(self._step.name, self._step.where)
        now = self._interpreter.clock.now()
        self._interpreter.events(StepFailed(now, self._step.name, str(failure)))
        return failure


class ReferenceHarness:
    """A run that is fed by its caller, in the calling thread: all is done when a call returns."""

    def __init__(self, interpreter: Interpreter, options: RunOptions) -> None:
        self._interpreter, self._options = interpreter, options
        self._n_taken: dict[Ref, int] = {}
        self._over = False
        begin_run(interpreter)

    def push(self, batches: Mapping[str, SourceBatch]) -> None:
        """Implement `EngineHarness.push`."""
        sources = [step.name for step in self._interpreter.plan.sources]
        for name in batches:
            if name not in sources:
                raise GraphError(
                    f'there is no source "{name}" in this run',
                    detail=f"the sources are {', '.join(nearest_first(name, sources))}",
                )
        self._round(batches)

    def promise(self, watermark: int) -> None:
        """Implement `EngineHarness.promise`."""
        self._require_open()
        for step in self._interpreter.plan.sources:
            self._interpreter.source(step.name).promise(watermark)
        self._round({})

    def take(self, ref: Ref) -> pa.Table:
        """Implement `EngineHarness.take`."""
        if ref not in self._interpreter.collected:
            ports = nearest_first(str(ref), map(str, self._interpreter.collected))
            raise GraphError(
                f'rows of "{ref}" are not collected in this run', detail=f"collected are {', '.join(ports)}"
            )
        first = self._n_taken.get(ref, 0)
        self._n_taken[ref] = len(self._interpreter.collected[ref])
        return self._interpreter.table(ref, first)

    def end(self) -> RunResult:
        """Implement `EngineHarness.end`."""
        self._require_open()
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
        self._require_open()
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

    def _require_open(self) -> None:
        if self._over:
            raise EngineError(
                f'the run of "{self._interpreter.plan.graph}" is over', hint="open another harness"
            )
