"""The driver loop: read rounds, run them as jobs, write what leaves, commit.

A micro-batch takes as many rounds as are ready, up to a limit: watermarks are known on the driver, so one job
can run several rounds, each admitted by its own. If a step fails, the rounds of the micro-batch are run again
one by one, so that everything before the failure is written, as it would have been.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.crash_points import PROCESSED, READ, pass_crash_point
from penstock.engines.checkpoint.checkpoint import Checkpoint, Manifest, convert_state
from penstock.engines.checkpoint.state_files import state_size
from penstock.engines.ends import SinkWriter
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.spark.driver.epochs import EpochPlanner, PlannedRound
from penstock.engines.spark.driver.jobs import JobResult, SparkJobs
from penstock.engines.spark.driver.sources import StreamSourceReader
from penstock.engines.spark.fragments import DRIVER, Fragments, JobTask
from penstock.engines.spark.wire import WirePartitioner, WireRow, split_evenly
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported, PenstockError
from penstock.events import (
    BatchDone,
    EventSink,
    RowsErrored,
    RowsLate,
    RunEnded,
    RunStarted,
    StateSaved,
    StepFailed,
)
from penstock.plan.plan import Plan, Ref
from penstock.stages.snapshot import BY_KEY
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engines.spark.driver.query import RunQuery


class SinkDelivery:
    """What leaves a round: rows for sinks, written under the round's number, and rows that are collected."""

    def __init__(self, plan: Plan, fragments: Fragments, accounts: Mapping[str, Accounts]) -> None:
        self._plan = plan
        self._edges = [edge for edge in fragments.edges if edge.fragment == DRIVER]
        self.writers = {step.name: SinkWriter(step, accounts[step.name]) for step in plan.sinks}
        self.collected: dict[Ref, list[pa.RecordBatch]] = {ref: [] for ref in plan.collects}

    def write(self, round_: PlannedRound, result: JobResult) -> dict[str, int]:
        """Write a round and make it visible; return the number of rows of every sink."""
        number = round_.plan.number
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in self.writers}
        for edge in self._edges:
            rows = self.collected[edge.ref] if edge.step is None else batches[edge.step]
            rows += [batch.rows for ref, batch in round_.batches if ref == edge.ref]
            packed = result.rows.get(edge.number, {}).get(number, [])
            rows += [unpack_batch(body, edge.schema).rows for body in packed]
        return {name: writer.write(number, batches[name]) for name, writer in self.writers.items()}

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """Return the collected rows of a port, from batch `first` on."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        return pa.Table.from_batches(self.collected[ref][first:], schema=schema)


class DriverLoop:
    """A plan at work on the driver.

    stopping  ends the wait for sources that are silent
    """

    def __init__(
        self,
        plan: Plan,
        jobs: SparkJobs,
        checkpoint: Checkpoint,
        *,
        clock: Clock,
        events: EventSink,
        options: RunOptions,
    ) -> None:
        self.plan, self._jobs, self.checkpoint = plan, jobs, checkpoint
        self._clock, self._events = clock, events
        self.accounts = {step.name: Accounts() for step in plan}
        self.sinks = SinkDelivery(plan, jobs.fragments, self.accounts)
        self.stopping = threading.Event()
        self._planner = EpochPlanner(
            plan, jobs.remote, checkpoint.folder, clock=clock, stopping=self.stopping, options=options
        )
        self._done, self._begun, self._job = Manifest(), 0, ""
        self._failure: PenstockError | None = None
        sources = {step.name for step in plan.sources}
        self._source_edges = [
            (edge, WirePartitioner(edge.key, edge.schema, jobs.n_partitions))
            for edge in jobs.fragments.edges
            if edge.ref.step in sources and edge.fragment != DRIVER
        ]

    def open(self) -> None:
        """Resume from the checkpoint and open all sinks."""
        steps = tuple(step.name for step in self.plan)
        self._events(RunStarted(self._clock.now(), self.plan.graph, "spark", steps))
        done = self.checkpoint.latest_manifest()
        if done.drained:
            raise self.checkpoint.drained_error()
        # Why: workers know no form of window state but that by key.
        files, plan = self.checkpoint.files, self.plan
        state = {name: convert_state(plan[name], done, files, BY_KEY) for name in done.state}
        self._done, self._begun = replace(done, state=state), done.rounds
        for name, saved in done.accounts.items():
            if name in self.accounts:
                self.accounts[name].add(Accounts(**saved))
        self._planner.resume(done, self.checkpoint.planned_rounds(), self.checkpoint.journal)
        known = (self.checkpoint.saved_graph or {}).get("steps", {})
        for name, writer in self.sinks.writers.items():
            writer.open(resume=name in known, n_written=self.accounts[name].rows_out)
        self.checkpoint.adopt()

    def end(self, *, failed: bool = False) -> RunResult:
        """Close readers and sinks, whatever happens to one of them; raise the first error at the end."""
        outcome = "drained" if self._done.drained else "stopped"
        n_batches = self._done.rounds - self._begun - self._done.drained
        failures = []
        closes = [reader.close for reader in self._planner.readers]
        for close in [*closes, *(writer.close for writer in self.sinks.writers.values())]:
            try:
                close()
            except Exception as failure:
                failures.append(failure)
        self._jobs.close()
        try:
            is_failed = failed or bool(failures)
            self._events(RunEnded(self._clock.now(), "failed" if is_failed else outcome, n_batches))
        finally:
            self.checkpoint.close()
        if failures:
            raise failures[0]
        tables = {ref: self.sinks.table(ref) for ref in self.sinks.collected}
        return RunResult(outcome, n_batches, copy.deepcopy(self.accounts), tables)

    @property
    def streams(self) -> bool:
        """Return whether the run has a source that does not end by itself."""
        return not all(reader.bounded for reader in self._planner.readers)

    def run_micro_batches(self, query: RunQuery | None = None) -> None:
        """Run round after round, several at a time where they are ready, until there are no more.

        query  gives the jobs their input; without one the driver does, and they are plain jobs of Spark
        """
        while not (self._planner.over or self.stopping.is_set()):
            if query is not None:
                query.wait_until_asked(self.stopping)
            rounds = self._planner.next_rounds()
            if rounds and self.checkpoint.durable and self._planner.polling.follows_clock:
                self.checkpoint.save_planned_rounds({round_.plan.number: round_.record for round_ in rounds})
            pass_crash_point(READ)
            if rounds and query is None:
                self._run_rounds(rounds)
            elif rounds and query is not None:
                self._run_in_query(query, rounds)
            self._raise(self._failure or self._planner.failure)

    def _run_in_query(self, query: RunQuery, rounds: Sequence[PlannedRound]) -> None:
        """Run rounds as a micro-batch of a query; keep what fails, since Spark would only keep its text."""
        failures: list[BaseException] = []
        rows, last = self._input_rows(rounds), rounds[-1].plan.number

        def work(frame: DataFrame) -> int:
            try:
                self._run_rounds(rounds, rows, frame)
            except BaseException as failure:
                failures.append(failure)
            return sum(counts.rows_in for round_ in rounds for counts in round_.accounts.values())

        query.run(self._jobs.tasks(rows, last), work)
        if failures:
            raise failures[0]

    def run_round(self, batches: Mapping[str, SourceBatch], *, last: bool) -> None:
        """Run a round of batches that no reader gave; `last` closes everything."""
        try:
            round_ = self._planner.plan_pushed(batches, last=last)
        except PenstockError as failure:
            self._raise(failure)
        else:
            self._run_rounds([round_])
            self._raise(self._failure)

    def promise(self, watermark: int) -> None:
        """Move the watermarks of all sources, in microseconds."""
        for reader in self._planner.readers:
            reader.promise(watermark)

    def _run_rounds(
        self,
        rounds: Sequence[PlannedRound],
        rows: Sequence[WireRow] | None = None,
        frame: DataFrame | None = None,
    ) -> None:
        """Run one job for all rounds; one by one if a step fails, so that the rounds before it count.

        rows, frame  the input of the job, if it has been made already, and as Spark has it
        """
        began = self._clock.now()
        result = self._run_job(rounds, self._input_rows(rounds) if rows is None else rows, frame)
        if result is None:
            self._run_from_driver(rounds)
            return
        pass_crash_point(PROCESSED)
        if result.failure is not None and len(rounds) > 1:
            for round_ in rounds:
                self._run_rounds([round_])
                if self._failure is not None:
                    return
        elif result.failure is not None:
            self._failure = result.failure
        else:
            took = self._clock.now() - began
            self._commit(
                rounds, result, {"read": began - rounds[0].plan.now, "job": took, "work": result.work_us}
            )

    def _run_job(
        self, rounds: Sequence[PlannedRound], rows: Sequence[WireRow], frame: DataFrame | None
    ) -> JobResult | None:
        """Run the job; return None when something failed where only that can be told, and not more.

        The readers and stages of the driver say which file cannot be read, or which function failed on which
        row.
        """
        if not self._jobs.fragments.fragments:
            return JobResult()
        remote = {round_.plan.number: round_.remote for round_ in rounds if round_.remote}
        plans = tuple(round_.plan for round_ in rounds)
        task = JobTask(plans, uuid.uuid4().hex, self._job, self._done.state, self.checkpoint.files)
        try:
            result = self._jobs.run(rows, task, remote, frame)
        except Exception as failure:
            # NotSupported: an expression that is too large for Spark
            if remote and (isinstance(failure, NotSupported) or not isinstance(failure, PenstockError)):
                return None
            raise
        result.job = task.job
        return None if result.has_failed_rows else result

    def _input_rows(self, rounds: Sequence[PlannedRound]) -> list[WireRow]:
        """Return the rows of sources in some rounds, and the splits to read, as wire rows."""
        remote = {round_.plan.number: round_.remote for round_ in rounds if round_.remote}
        return self._jobs.splits(remote) + [
            row
            for round_ in rounds
            for ref, batch in round_.batches
            for edge, partitioner in self._source_edges
            if edge.ref == ref
            for piece in split_evenly(batch, self._jobs.n_partitions if edge.key is None else 1)
            for row in partitioner.pack(edge, piece, round_.plan.number, 0)
        ]

    def _run_from_driver(self, rounds: Sequence[PlannedRound]) -> None:
        """Run the same rounds one by one, read on the driver."""
        for round_ in rounds:
            try:
                read = self._planner.read_here(round_)
            except PenstockError as failure:
                self._failure = failure
                return
            self._run_rounds([read])
            if self._failure is not None:
                return

    def _commit(self, rounds: Sequence[PlannedRound], result: JobResult, took: Mapping[str, int]) -> None:
        """Write every round under its number; then the manifest says that they are done."""
        last = rounds[-1]
        for round_ in rounds:
            self._write_round(round_, result, took)
        state = {step: dict(places) for step, places in self._done.state.items()}
        for step, places in result.state.items():
            state.setdefault(step, {}).update(places)
        self._done = Manifest(
            last.plan.number + 1,
            last.positions,
            {name: watermark for name, watermark in last.watermarks.items() if watermark != BEFORE_ALL},
            last.reached,
            {name: asdict(accounts) for name, accounts in self.accounts.items()},
            state,
            last.fired,
            drained=last.last,
        )
        nbytes = self.checkpoint.commit(self._done)
        self._job = result.job
        for reader in self._planner.readers:
            if isinstance(reader, StreamSourceReader):
                reader.commit(last.positions[reader.step.name][0])
        if result.state:
            self._events(StateSaved(self._clock.now(), last.plan.number, nbytes, *state_size(state)))

    def _write_round(self, round_: PlannedRound, result: JobResult, took: Mapping[str, int]) -> None:
        """Count and write a round; report where its time went, and how far it is behind the clock."""
        self._count_round(round_, result)
        began = self._clock.now()
        written = self.sinks.write(round_, result)
        now = self._clock.now()
        read = {name: accounts.rows_in for name, accounts in round_.accounts.items()}
        lag = {name: now - int(at) for name, at in round_.watermarks.items() if BEFORE_ALL < at < AFTER_ALL}
        parts, took_us = {**took, "write": now - began}, now - round_.plan.now
        self._events(BatchDone(now, round_.plan.number, read, written, took_us, parts, lag))

    def _count_round(self, round_: PlannedRound, result: JobResult) -> None:
        """Add up what became of the rows of a round, step by step, and report it."""
        counted = {step.name: Accounts() for step in self.plan}
        for counts in self._counts(round_, result):
            for name, accounts in counts.items():
                counted[name].add(accounts)
        reasons = {**result.reasons.get(round_.plan.number, {}), **round_.reasons}
        for name, accounts in counted.items():
            if name in round_.moved:
                self._events(round_.moved[name])
            self.accounts[name].add(accounts)
            now = self._clock.now()
            if accounts.late:
                self._events(RowsLate(now, name, accounts.late))
            if accounts.errors:
                policy = self.plan[name].op.on_error
                self._events(RowsErrored(now, name, accounts.errors, policy, reasons.get(name, "")))

    def _counts(self, round_: PlannedRound, result: JobResult) -> Iterator[Mapping[str, Accounts]]:
        """Yield what the driver, the workers and the JVM counted in a round."""
        number = round_.plan.number
        yield round_.accounts
        for counted_in, counts in result.accounts:
            if counted_in == number:
                yield {name: Accounts(**numbers) for name, numbers in counts.items()}
        for source, batch in round_.remote.items():
            yield self._jobs.remote[source].accounts(batch, result.outcomes.get((number, source), {}))

    def _raise(self, failure: PenstockError | None) -> None:
        if failure is None:
            return
        if failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        raise failure
