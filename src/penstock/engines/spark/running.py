"""A run on Spark: a Structured Streaming query whose every batch is a turn of the rounds.

The query's source only ticks; what a turn reads, and how far it has come, is in the rounds and in their
checkpoint, because batches must be cut by readers, the same on every engine.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress

from penstock.clock import Clock
from penstock.engines.checkpoint import Checkpoint
from penstock.engines.in_thread import InThread
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.spark.failures import from_spark
from penstock.engines.spark.rounds import Rounds
from penstock.engines.spark.session import Opened
from penstock.engines.spark.ticking import Ticking, borrowed, given_back
from penstock.events import EventSink, RunEnded, RunStarted
from penstock.plan.accounts import Accounts
from penstock.plan.plan import Plan


class SparkRun(InThread):
    """A run under way."""

    patience = 30.0  # a turn takes longer than what other engines do between two looks

    def __init__(
        self,
        plan: Plan,
        rounds: Rounds,
        checkpoint: Checkpoint,
        opened: Opened,
        stopping: threading.Event,
        *,
        clock: Clock,
        events: EventSink,
        options: RunOptions,
    ) -> None:
        super().__init__(plan.graph, "spark")
        self._plan, self._rounds, self._checkpoint, self._opened = plan, rounds, checkpoint, opened
        self._clock, self._events, self._options = clock, events, options
        self._stopping = stopping
        self._name = f"{plan.graph}-{uuid.uuid4().hex[:8]}"  # a session has each name once
        self.begin()

    def metrics(self) -> Mapping[str, Accounts]:
        """The accounts so far."""
        return copy.deepcopy(self._rounds.accounts)

    def carried(self) -> RunResult:
        """From the first turn to the last."""
        try:
            result = self._turns()
        except BaseException:
            with suppress(Exception):  # what stopped the run matters more than what followed from it
                self._end("failed")
            raise
        self._end(result.outcome)
        return result

    def _turns(self) -> RunResult:
        steps = tuple(step.name for step in self._plan)
        self._events(RunStarted(self._clock.now(), self._plan.graph, "spark", steps))
        try:
            self._rounds.open()
            self._query()
        except BaseException:
            with suppress(Exception):
                self._rounds.close()
            raise
        self._rounds.close()
        outcome = "drained" if self._rounds.drained else "stopped"
        return RunResult(
            outcome, self._rounds.batches, copy.deepcopy(self._rounds.accounts), self._rounds.tables()
        )

    def _end(self, outcome: str) -> None:
        try:
            self._events(RunEnded(self._clock.now(), outcome, self._rounds.batches))
        finally:
            self._checkpoint.close()

    def _query(self) -> None:
        """Have a query call turns until the rounds are over, somebody stops the run, or it fails."""
        trigger = getattr(self._options.engine, "trigger", None)
        if not self._checkpoint.durable and trigger is None:
            query = borrowed(self._opened.spark, "penstock")
            query.serve(self._turn)
            given_back(query)
        else:
            folder = self._checkpoint.ticks()
            query = Ticking(self._opened.spark, self._name, folder=folder, trigger=trigger)
            try:
                query.serve(self._turn)
            finally:
                query.close()
        if self._failure is not None:
            raise self._failure

    def _turn(self) -> bool:
        """One turn; what fails is kept for `wait`, since Spark would only keep its text."""
        try:
            goes_on = self._rounds.turn()
        except BaseException as failure:
            self._failure = from_spark(failure, self._plan)
            goes_on = False
        return goes_on and not self._stopping.is_set()
