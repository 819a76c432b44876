"""What a job gave the driver, sorted out: rows by edge and round, accounts, where state is, failures."""

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
from penstock.engines.spark.jvm.carry import JvmSource
from penstock.engines.spark.wire import COUNTED, FAILED, FATES, REASONS, SAVED, WORKED, from_wire
from penstock.engines.wire import failure_from_dict
from penstock.errors import PenstockError
from penstock.events import BatchDone, EventSink, RowsErrored, RowsLate
from penstock.frozen import dataclass
from penstock.plan.plan import Plan
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL


@dataclass(slots=True)
class JobResult:
    """What a job gave the driver.

    rows     edge -> round -> packed batches, in a fixed order
    counted  (round, step) -> what the parts counted
    saved    step -> bucket -> where its newest piece is
    failed   what stopped the first step that failed, if one did, and in which round
    fates    (round, source) -> what became of the rows of its chain in the JVM, and which windows they missed
    job      the job's name
    reasons  round -> step -> why a row of it failed
    worked   how long workers were at work on fragments, all added up, in microseconds
    """

    rows: dict[int, dict[int, list[bytes]]] = field(default_factory=dict)
    counted: list[tuple[int, Mapping[str, Mapping[str, Any]]]] = field(default_factory=list)
    saved: dict[str, dict[int, StateHandle]] = field(default_factory=dict)
    failed: PenstockError | None = None
    fates: dict[tuple[int, str], Fates] = field(default_factory=dict)
    worked: int = 0
    reasons: dict[int, dict[str, str]] = field(default_factory=dict)
    job: str = ""


@dataclass(slots=True)
class Fates:
    """How many rows of a chain had which fate (`native_frames.py`), and how many windows they missed."""

    fates: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)


def read_job_result(table: pa.Table) -> JobResult:
    """Sort out what came back; the order of rows does not depend on which task was first."""
    found, failures = JobResult(), []
    rows = sorted(from_wire(table), key=lambda sent: (sent.round, sent.edge, sent.part))
    for sent in rows:
        assert sent.body is not None, "what comes back has a body"
        if sent.edge >= 0:
            found.rows.setdefault(sent.edge, {}).setdefault(sent.round, []).append(sent.body)
        elif sent.edge == COUNTED:
            found.counted.append((sent.round, json.loads(sent.body)))
        elif sent.edge == SAVED:
            for step, places in json.loads(sent.body).items():
                found.saved.setdefault(step, {}).update({b: StateHandle(*place) for b, place in places})
        elif sent.edge == FATES:
            told = json.loads(sent.body)
            fates = found.fates.setdefault((sent.round, told["source"]), Fates())
            fates.fates.update(told["fates"])
            fates.missed.update(told.get("missed", {}))
        elif sent.edge == REASONS:
            found.reasons.setdefault(sent.round, {}).update(json.loads(sent.body))
        elif sent.edge == WORKED:
            found.worked += json.loads(sent.body)["us"]
        elif sent.edge == FAILED:
            failures.append((sent.round, json.loads(sent.body)))
    if failures:
        _, first = min(failures, key=lambda each: (each[0], each[1]["order"]))
        found.failed = failure_from_dict(first)
    return found


# What became of the rows of a round, added up step by step and told as events.


class Reports:
    """Counts rounds and tells of them."""

    def __init__(
        self, plan: Plan, native: Mapping[str, JvmSource], *, clock: Clock, events: EventSink
    ) -> None:
        self._plan, self._native, self._clock, self._events = plan, native, clock, events

    def count(self, ready: PlannedRound, came: JobResult, total: Mapping[str, Accounts]) -> None:
        """Add up what the driver, the workers and the JVM counted in a round."""
        counted = {step.name: Accounts() for step in self._plan}
        for each in self._counted(ready, came):
            for name, accounts in each.items():
                counted[name].add(accounts)
        for name, accounts in counted.items():
            if name in ready.moved:
                self._events(ready.moved[name])
            total[name].add(accounts)
            reasons = {**came.reasons.get(ready.plan.number, {}), **ready.reasons}
            self._tell(name, accounts, reasons.get(name, ""))

    def done(
        self, ready: PlannedRound, written: Mapping[str, int], parts: Mapping[str, int], took_us: int
    ) -> None:
        """Tell that a round has gone all the way through, where its time went, and how far behind it is."""
        now = self._clock.now()
        read = {name: counted.rows_in for name, counted in ready.counted.items()}
        lag = {name: now - int(at) for name, at in ready.watermarks.items() if BEFORE_ALL < at < AFTER_ALL}
        self._events(BatchDone(now, ready.plan.number, read, written, took_us, parts, lag))

    def _counted(self, ready: PlannedRound, came: JobResult) -> Iterator[Mapping[str, Accounts]]:
        number = ready.plan.number
        yield ready.counted
        for round_, parts in came.counted:
            if round_ == number:
                yield {name: Accounts(**each) for name, each in parts.items()}
        for source, batch in ready.files.items():
            found = came.fates.get((number, source), Fates())
            yield self._native[source].accounts(batch, found.fates, found.missed)

    def _tell(self, step: str, counted: Accounts, reason: str) -> None:
        now = self._clock.now()
        if counted.late:
            self._events(RowsLate(now, step, counted.late))
        if counted.errors:
            policy = self._plan[step].op.on_error
            self._events(RowsErrored(now, step, counted.errors, policy, reason))
