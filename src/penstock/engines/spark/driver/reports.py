"""What comes back to the driver: the result of a job, and the accounts and events that follow from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.checkpoint.state_files import StateHandle
from penstock.engines.spark.driver.epochs import PlannedRound
from penstock.engines.spark.jvm.source import RemoteSource
from penstock.engines.spark.wire import Kind, from_wire
from penstock.engines.spark.worker.task import FAILED
from penstock.engines.wire import failure_from_dict
from penstock.errors import PenstockError
from penstock.events import BatchDone, EventSink, RowsErrored, RowsLate
from penstock.frozen import dataclass
from penstock.plan.plan import Plan
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL


@dataclass(slots=True)
class JobResult:
    """What a job gave the driver.

    rows      edge -> round -> packed batches, in a fixed order
    accounts  (round, step -> what a partition counted)
    state     step -> bucket -> where its newest piece is
    failure   what stopped the first step that failed, if one did
    outcomes  (round, source) -> outcome -> the number of its rows that had it before fragment 0
    reasons   round -> step -> why a row of it failed
    work_us   how long workers were at work, all added up, in microseconds
    job       the name of the job
    """

    rows: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    accounts: list[tuple[int, Mapping[str, Mapping[str, Any]]]] = field(default_factory=list)
    state: dict[str, dict[int, StateHandle]] = field(default_factory=dict)
    failure: PenstockError | None = None
    outcomes: dict[tuple[int, str], Counter[int]] = field(default_factory=dict)
    reasons: dict[int, dict[str, str]] = field(default_factory=dict)
    work_us: int = 0
    job: str = ""

    @property
    def has_failed_rows(self) -> bool:
        """Returns whether rows failed before fragment 0, or could not be read; the driver finds out which."""
        return any(outcomes[FAILED] for outcomes in self.outcomes.values())


def read_job_result(table: pa.Table) -> JobResult:
    """Sorts out the wire rows of a job; their order does not depend on which task was first."""
    result, failures = JobResult(), []
    for row in sorted(from_wire(table), key=lambda row: (row.round, row.edge, row.partition)):
        assert row.body is not None, "what comes back has a body"
        if row.kind is Kind.BATCH:
            result.rows.setdefault(row.edge, {}).setdefault(row.round, []).append(row.body)
            continue
        message = json.loads(row.body)
        if row.kind is Kind.ACCOUNTS:
            result.accounts.append((row.round, message))
        elif row.kind is Kind.STATE:
            for step, places in message.items():
                result.state.setdefault(step, {}).update({b: StateHandle(*place) for b, place in places})
        elif row.kind is Kind.OUTCOMES:
            counts = result.outcomes.setdefault((row.round, message["source"]), Counter())
            counts.update({int(outcome): n for outcome, n in message["outcomes"].items()})
        elif row.kind is Kind.REASONS:
            result.reasons.setdefault(row.round, {}).update(message)
        elif row.kind is Kind.WORK_TIME:
            result.work_us += message["us"]
        elif row.kind is Kind.FAILURE:
            failures.append((row.round, message["order"], message))
    if failures:
        *_, first = min(failures, key=lambda failure: failure[:2])
        result.failure = failure_from_dict(first)
    return result


class Reports:
    """Adds up what became of the rows of a round, step by step, and tells it as events."""

    def __init__(
        self, plan: Plan, remote: Mapping[str, RemoteSource], *, clock: Clock, events: EventSink
    ) -> None:
        self._plan, self._remote, self._clock, self._events = plan, remote, clock, events

    def count(self, round_: PlannedRound, result: JobResult, total: Mapping[str, Accounts]) -> None:
        """Adds up what the driver, the workers and the JVM counted in a round."""
        counted = {step.name: Accounts() for step in self._plan}
        for counts in self._counts(round_, result):
            for name, accounts in counts.items():
                counted[name].add(accounts)
        reasons = {**result.reasons.get(round_.plan.number, {}), **round_.reasons}
        for name, accounts in counted.items():
            if name in round_.moved:
                self._events(round_.moved[name])
            total[name].add(accounts)
            self._report_step(name, accounts, reasons.get(name, ""))

    def finish(
        self, round_: PlannedRound, written: Mapping[str, int], parts: Mapping[str, int], took_us: int
    ) -> None:
        """Reports that a round is done, where its time went, and how far it is behind the clock."""
        now = self._clock.now()
        read = {name: accounts.rows_in for name, accounts in round_.accounts.items()}
        lag = {name: now - int(at) for name, at in round_.watermarks.items() if BEFORE_ALL < at < AFTER_ALL}
        self._events(BatchDone(now, round_.plan.number, read, written, took_us, parts, lag))

    def _counts(self, round_: PlannedRound, result: JobResult) -> Iterator[Mapping[str, Accounts]]:
        number = round_.plan.number
        yield round_.accounts
        for counted_in, counts in result.accounts:
            if counted_in == number:
                yield {name: Accounts(**numbers) for name, numbers in counts.items()}
        for source, batch in round_.remote.items():
            yield self._remote[source].accounts(batch, result.outcomes.get((number, source), {}))

    def _report_step(self, step: str, counted: Accounts, reason: str) -> None:
        now = self._clock.now()
        if counted.late:
            self._events(RowsLate(now, step, counted.late))
        if counted.errors:
            policy = self._plan[step].op.on_error
            self._events(RowsErrored(now, step, counted.errors, policy, reason))
