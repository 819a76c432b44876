"""What leaves a round: rows for sinks, written under the round's number, and rows that are collected."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Protocol

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.crash_points import PROCESSED, READ, pass_crash_point
from penstock.engines.checkpoint.checkpoint import Checkpoint, Manifest, convert_state
from penstock.engines.checkpoint.state_files import state_size
from penstock.engines.sinks import SinkWriter
from penstock.engines.spark.driver.epochs import EpochPlanner, PlannedRound
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.driver.polling import SourcePolling, StreamSourceReader
from penstock.engines.spark.driver.reports import JobResult, Reports
from penstock.engines.spark.fragment_plan import JobTask, RoundClock
from penstock.engines.spark.fragments import DRIVER, Edge, Fragments
from penstock.engines.spark.jvm.frames import FAILED
from penstock.engines.spark.sources import open_source
from penstock.engines.spark.wire import KeyPartitioner, WireRow, pack_pieces, split_evenly
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported, PenstockError
from penstock.events import EventSink, StateSaved, StepFailed
from penstock.plan.plan import Plan, Ref
from penstock.stages.snapshot import BY_KEY
from penstock.timing.watermark import BEFORE_ALL


class SinkDelivery:
    """The sinks of a plan, and what is collected of it."""

    def __init__(self, plan: Plan, fragments: Fragments, accounts: Mapping[str, Accounts]) -> None:
        self._plan, self._accounts = plan, accounts
        self._edges = [edge for edge in fragments.edges if edge.fragment == DRIVER]
        self._writers = {step.name: SinkWriter(step, accounts[step.name]) for step in plan.sinks}
        self.collected: dict[Ref, list[pa.RecordBatch]] = {ref: [] for ref in plan.collects}

    def open(self, known: Collection[str]) -> None:
        """Open all sinks; those that the checkpoint knows go on where they were."""
        for name, writer in self._writers.items():
            writer.open(resume=name in known, n_written=self._accounts[name].rows_out)

    def write(self, ready: PlannedRound, came: JobResult) -> dict[str, int]:
        """Write a round and make it visible; gives the rows of every sink."""
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._writers}
        for edge in self._edges:
            rows = self._rows(edge, ready, came)
            if edge.step is None:
                self.collected[edge.ref] += rows
            else:
                batches[edge.step] += rows
        number = ready.plan.number
        return {name: writer.write(number, batches[name]) for name, writer in self._writers.items()}

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """The collected rows of a port, from the given batch on."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        return pa.Table.from_batches(self.collected[ref][first:], schema=schema)

    def close(self) -> list[Exception]:
        """Close all sinks, whatever happens to one of them; gives what went wrong."""
        return close_all(self._writers.values())

    def _rows(self, edge: Edge, ready: PlannedRound, came: JobResult) -> list[pa.RecordBatch]:
        schema = self._plan[edge.ref.step].outputs[edge.ref.port].schema
        here = [batch.rows for ref, batch in ready.batches if ref == edge.ref]
        there = came.rows.get(edge.number, {}).get(ready.plan.number, [])
        return here + [unpack_batch(body, schema).rows for body in there]


class Closable(Protocol):
    """A reader or a writer at work."""

    def close(self) -> None:
        """Let go what it holds."""


def close_all(all_of_them: Iterable[Closable]) -> list[Exception]:
    """Close everything; gives what went wrong."""
    failures = []
    for each in all_of_them:
        try:
            each.close()
        except Exception as failure:
            failures.append(failure)
    return failures


# What the driver sends to the fragments: the rows of its sources, dealt to parts and packed.


class SourceRows:
    """The edges out of the sources of a plan."""

    def __init__(self, plan: Plan, fragments: Fragments, n_partitions: int) -> None:
        sources = {step.name for step in plan.sources}
        self._n_partitions = n_partitions
        self._edges = [
            edge for edge in fragments.edges if edge.ref.step in sources and edge.fragment != DRIVER
        ]
        self._partitioners = {
            edge.number: KeyPartitioner(
                edge.key, plan[edge.ref.step].outputs[edge.ref.port].schema, n_partitions
            )
            for edge in self._edges
        }

    def sent(self, ready: Sequence[PlannedRound]) -> list[WireRow]:
        """What the sources gave in these rounds, for the fragments that read it."""
        return [
            WireRow(edge.fragment, edge.number, each.plan.number, part, body)
            for each in ready
            for ref, batch in each.batches
            for edge in self._edges
            if edge.ref == ref
            for piece in split_evenly(batch, self._n_partitions if edge.key is None else 1)
            for part, rows in self._partitioners[edge.number].partition(piece, 0)
            for body in pack_pieces(rows)
        ]


# The driver's part of a run: read, plan the rounds at hand, have them carried, write, commit.
#
# A turn takes as many rounds as are ready, up to a limit: watermarks are known here, so one job can carry
# several rounds, each judged by its own. If a step fails, the rounds of the turn are done again one by
# one, so that everything before the failure is written, as it would have been.


class DriverLoop:
    """A plan at work."""

    def __init__(
        self,
        plan: Plan,
        fragments: Fragments,
        jobs: SparkJobs,
        checkpoint: Checkpoint,
        *,
        clock: Clock,
        events: EventSink,
        until: int | None,
        drain: bool,
        n_partitions: int,
        stopping: threading.Event | None = None,
    ) -> None:
        self._plan, self._fragments, self._jobs, self._checkpoint = plan, fragments, jobs, checkpoint
        self._clock, self._events = clock, events
        self.accounts = {step.name: Accounts() for step in plan}
        self._source_accounts = {step.name: Accounts() for step in plan.sources}
        self._round_clock = RoundClock(clock.now())
        self._readers = [
            open_source(plan, step, self._round_clock, counted, jobs.native, checkpoint.folder)
            for step, counted in zip(plan.sources, self._source_accounts.values(), strict=True)
        ]
        self.delivering = SinkDelivery(plan, fragments, self.accounts)
        self._patience = SourcePolling(plan, self._readers, clock, stopping or threading.Event())
        self._ahead = EpochPlanner(
            plan,
            self._readers,
            self._source_accounts,
            clock=self._round_clock,
            patience=self._patience,
            until=until,
            drain=drain,
        )
        self._done, self._begun, self._job = Manifest(), 0, ""
        self._telling = Reports(plan, jobs.native, clock=clock, events=events)
        self._failure: PenstockError | None = None
        self._sending = SourceRows(plan, fragments, n_partitions)

    @property
    def batches(self) -> int:
        """Rounds of source batches that this run has carried; the one that drains is none."""
        return self._done.rounds - self._begun - self._done.drained

    def open(self) -> None:
        """Take up the checkpoint and open all sinks."""
        done = self._checkpoint.latest_manifest()
        if done.drained:
            raise self._checkpoint.drained_error()
        # Workers know no form of windows but that by key.
        files, plan = self._checkpoint.files, self._plan
        state = {name: convert_state(plan[name], done, files, BY_KEY) for name in done.state}
        self._done, self._begun = replace(done, state=state), done.rounds
        for name, saved in done.accounts.items():
            if name in self.accounts:
                self.accounts[name].add(Accounts(**saved))
        self._ahead.resume(done, self._checkpoint.planned_rounds(), self._checkpoint.journal)
        self.delivering.open((self._checkpoint.saved_graph or {}).get("steps", {}))
        self._checkpoint.adopt()

    def close(self) -> None:
        """Close readers and sinks, whatever happens to one of them; the first error is raised at the end."""
        failures = close_all(self._readers) + self.delivering.close()
        if failures:
            raise failures[0]

    def turn(self) -> bool:
        """Carry the rounds that are ready; False when there are no more."""
        ready = self._ahead.rounds()
        if ready and self._checkpoint.durable and self._patience.timely:
            self._checkpoint.save_planned_rounds({each.plan.number: each.told for each in ready})
        pass_crash_point(READ)
        if ready:
            self._carry(ready)
        self._raise(self._failure or self._ahead.failure)
        return not self._ahead.over

    def by_hand(self, came: Mapping[str, SourceBatch], *, last: bool) -> None:
        """Carry a round of batches that no reader gave; `last` closes everything."""
        self._round_clock.us = self._clock.now()
        try:
            ready = self._ahead.planned(came, last=last)
        except PenstockError as failure:
            self._raise(failure)
        else:
            self._carry([ready])
            self._raise(self._failure)

    def promise(self, watermark: int) -> None:
        """Move the watermarks of all sources, in microseconds."""
        for reader in self._readers:
            reader.promise(watermark)

    def tables(self) -> dict[Ref, pa.Table]:
        """All that was collected."""
        return {ref: self.delivering.table(ref) for ref in self.delivering.collected}

    @property
    def drained(self) -> bool:
        """Whether everything has been closed."""
        return self._done.drained

    def _carry(self, ready: Sequence[PlannedRound]) -> None:
        """One job for all of them; one by one if a step fails, so that the rounds before it count."""
        began = self._clock.now()
        came = self._run(ready)
        if came is None:
            self._carry_from_here(ready)
            return
        pass_crash_point(PROCESSED)
        if came.failed is not None and len(ready) > 1:
            for each in ready:
                self._carry([each])
                if self._failure is not None:
                    return
            return
        if came.failed is not None:
            self._failure = came.failed
            return
        took = self._clock.now() - began
        self._commit(ready, came, {"read": began - ready[0].plan.now, "job": took, "work": came.worked})

    def _run(self, ready: Sequence[PlannedRound]) -> JobResult | None:
        """The job; None when something failed in the JVM, which can tell that and not more.

        The readers and stages here say which file cannot be read, or which function failed on which row.
        """
        if not self._fragments.fragments:
            return JobResult()
        files = {each.plan.number: each.files for each in ready if each.files}
        task = self._task(ready)
        try:
            came = self._jobs.run(self._sending.sent(ready), task, files)
        except PenstockError as failure:
            if files and isinstance(failure, NotSupported):  # an expression that is too large for Spark
                return None
            raise
        except Exception:
            if files:
                return None
            raise
        if any(told.fates[str(FAILED)] for told in came.fates.values()):
            return None
        came.job = task.job
        return came

    def _carry_from_here(self, ready: Sequence[PlannedRound]) -> None:
        """The same rounds one by one, read on the driver."""
        for each in ready:
            try:
                read = self._ahead.read_here(each)
            except PenstockError as failure:
                self._failure = failure
                return
            self._carry([read])
            if self._failure is not None:
                return

    def _task(self, ready: Sequence[PlannedRound]) -> JobTask:
        rounds = tuple(each.plan for each in ready)
        return JobTask(rounds, uuid.uuid4().hex, self._job, self._done.state, self._checkpoint.files)

    def _commit(self, ready: Sequence[PlannedRound], came: JobResult, parts: Mapping[str, int]) -> None:
        """Write every round under its number; then say in the checkpoint that they are done."""
        last = ready[-1]
        for each in ready:
            self._write_round(each, came, parts)
        state = {step: dict(places) for step, places in self._done.state.items()}
        for step, places in came.saved.items():
            state.setdefault(step, {}).update(places)
        self._done = Manifest(
            last.plan.number + 1,
            last.positions,
            {name: mark for name, mark in last.watermarks.items() if mark != BEFORE_ALL},
            last.reached,
            {name: asdict(each) for name, each in self.accounts.items()},
            state,
            last.shown,
            drained=last.last,
        )
        nbytes = self._checkpoint.commit(self._done)
        self._job = came.job
        for reader in self._readers:
            if isinstance(reader, StreamSourceReader):
                reader.committed(last.positions[reader.step.name][0])
        if came.saved:
            self._events(StateSaved(self._clock.now(), last.plan.number, nbytes, *state_size(state)))

    def _write_round(self, ready: PlannedRound, came: JobResult, parts: Mapping[str, int]) -> None:
        self._telling.count(ready, came, self.accounts)
        began = self._clock.now()
        written = self.delivering.write(ready, came)
        now = self._clock.now()
        took = {**parts, "write": now - began}
        self._telling.done(ready, written, took, now - ready.plan.now)

    def _raise(self, failure: PenstockError | None) -> None:
        if failure is None:
            return
        if failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        raise failure
