"""The driver loop: plan rounds, run them as jobs, publish what tasks have written, commit.

A micro-batch takes as many rounds as are ready, up to a limit: watermarks are known on the driver, so one job
can run several rounds, each admitted by its own. If a step fails, the rounds of the micro-batch are run again
one by one, so that everything before the failure is written, as it would have been.

Files of sinks are written by tasks. A file counts only once its sink has published it, under the number of
the last round of the micro-batch; a sink that has come that far already takes no row of those rounds.
"""

from __future__ import annotations

import copy
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.crash_points import PROCESSED, READ, pass_crash_point
from penstock.engines.checkpoint.checkpoint import Checkpoint, convert_state
from penstock.engines.checkpoint.manifest import Manifest
from penstock.engines.checkpoint.round_records import open_records
from penstock.engines.checkpoint.state_files import count_waiting, state_size
from penstock.engines.ends import close_all
from penstock.engines.protocol import RunOptions, RunResult
from penstock.engines.run_log import report_restore
from penstock.engines.spark.driver.epochs import EpochPlanner, PlannedRound
from penstock.engines.spark.driver.job_results import JobResult
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.driver.progress import BatchProgress
from penstock.engines.spark.driver.sinks import SinkDelivery
from penstock.engines.spark.driver.sources import StreamSourceReader
from penstock.engines.spark.file_splits import RemoteBatch
from penstock.engines.spark.fragments import JobTask, source_ports
from penstock.engines.spark.tasks import FAILED
from penstock.engines.spark.wire import Kind, WireRow, pack_pieces, split_evenly
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
from penstock.plan.plan import Plan
from penstock.stages.snapshot import BY_KEY
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engines.spark.driver.query import RunQuery


class _Abandonment(Exception):  # no failure
    """The micro-batch in progress was given up."""


class DriverLoop:
    """A plan at work on the driver.

    readers    of all sources
    stopping   ends the wait for sources that are silent
    abandoned  set when the micro-batch in progress is given up, and nothing is committed any more
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
        self.plan, self.jobs, self.checkpoint = plan, jobs, checkpoint
        self.clock, self._events = clock, events
        self.accounts = {step.name: Accounts() for step in plan}
        self.sinks = SinkDelivery(plan, jobs.fragments, self.accounts)
        self.stopping, self.abandoned, self._committing = (
            threading.Event(),
            threading.Event(),
            threading.Lock(),
        )
        self._planner = EpochPlanner(
            plan, jobs, checkpoint.folder, clock=clock, stopping=self.stopping, options=options
        )
        self.readers = self._planner.readers
        self._done, self._begun, self._job = Manifest(), 0, ""
        self._ports = {ref: number for number, (ref, _) in enumerate(source_ports(plan))}
        self._counted, self.progress = Counter[str](), BatchProgress()
        self._in_progress = False

    def open(self) -> None:
        """Resume from the checkpoint and open all sinks."""
        steps = tuple(step.name for step in self.plan)
        self._events(RunStarted(self.clock.now(), self.plan.graph, "spark", steps))
        done = self.checkpoint.latest_manifest()
        self._planner.refusal = self.checkpoint.refuse_input(self.plan)
        # Why: workers know no form of window state but that by key.
        files, plan = self.checkpoint.files, self.plan
        state = {name: convert_state(plan[name], done, files, BY_KEY) for name in done.state}
        self._done, self._begun = replace(done, state=state), done.rounds
        report_restore(plan.graph, done.rounds)
        for name, saved in done.accounts.items():
            if name in self.accounts:
                self.accounts[name].add(Accounts(**saved))
        planned, ends = self.checkpoint.planned_rounds(), open_records(self.checkpoint, done.rounds).ends
        self._planner.resume(done, planned, self.checkpoint.journal)
        for name, writer in self.sinks.writers.items():
            resume, n_written = self.checkpoint.knows(name), self.accounts[name].rows_out
            writer.open(resume=resume, n_written=n_written, link=self.checkpoint.link(name))
        self.checkpoint.check_planned(planned)
        self.checkpoint.adopt()
        committed = max((writer.last_committed for writer in self.sinks.writers.values()), default=-1)
        self._planner.resume_end(ends, committed)

    def metrics(self) -> dict[str, Accounts]:
        """Return the accounts so far; those of joins say what cells they have."""
        joins = self.jobs.joins
        return {
            name: joins[name].measure(accounts, self._job) if name in joins else copy.deepcopy(accounts)
            for name, accounts in self.accounts.items()
        }

    @property
    def refusal(self) -> PenstockError | None:
        """Return what is raised for more input; None if there may be more."""
        return self._planner.refusal

    @property
    def watermarks(self) -> Mapping[str, float]:
        """Return the watermarks of the sources after the last micro-batch; those before all are left out."""
        return self._done.source_watermarks

    def end(self, *, failed: bool = False) -> RunResult:
        """Close readers and sinks, whatever happens to one of them; raise the first error at the end."""
        is_given_up = self.abandoned.is_set() and self._planner.n_planned > self._done.rounds
        ended = all(reader.ended for reader in self.readers) and not is_given_up
        outcome = "failed" if failed else "drained" if self._done.drained else "ended" if ended else "stopped"
        n_batches = max(self._done.rounds - self._begun - self._done.drained, 0)
        try:
            close_all([*self.readers, *self.sinks.writers.values()])
        except Exception:
            outcome = "failed"
            raise
        finally:
            self.jobs.close()
            try:
                self._events(RunEnded(self.clock.now(), outcome, n_batches))
            finally:
                self.checkpoint.close()
        tables = {ref: self.sinks.table(ref) for ref in self.sinks.collected}
        waiting = count_waiting(self._done.state) if self.checkpoint.durable else {}
        return RunResult(outcome, n_batches, copy.deepcopy(self.accounts), tables, waiting=waiting)

    def run_micro_batches(self, query: RunQuery | None = None) -> None:
        """Run round after round, several at a time where they are ready, until there are no more.

        query  gives the jobs their input; without one the driver does, and they are plain jobs of Spark
        """
        while not (self._planner.over or self.stopping.is_set()):
            if query is not None:
                query.wait_until_asked(self.stopping)
                if self.stopping.is_set():
                    break
            with self._report_failure():
                rounds = self._planner.next_rounds()
                if rounds and self.checkpoint.durable:
                    with self._keep_going():
                        self.checkpoint.save_planned_rounds(self._planner.records_of(rounds))
                pass_crash_point(READ)
                self._in_progress = bool(rounds)
                if rounds and query is None:
                    self._run_rounds(rounds)
                elif rounds and query is not None:
                    self._run_in_query(query, rounds)
                self._in_progress = False
                if self._planner.failure is not None:
                    raise self._planner.failure

    def abandon(self) -> bool:
        """Give up the micro-batch in progress: a run that resumes from the checkpoint runs it again.

        One that is being committed is left to its end. Return whether there was one to give up.
        """
        if not self._committing.acquire(blocking=False):
            return False
        self.abandoned.set()
        is_in_progress = self._in_progress
        self._committing.release()
        self.jobs.cancel()
        return is_in_progress

    @contextmanager
    def _keep_going(self) -> Iterator[None]:
        """Keep a stop from giving up what is written here; raise if it has already."""
        with self._committing:
            if self.abandoned.is_set():
                raise _Abandonment
            yield

    @contextmanager
    def _report_failure(self) -> Iterator[None]:
        """Report the step that fails, with its line; whatever follows from giving up is no failure."""
        try:
            yield
        except _Abandonment:
            return
        except Exception as failure:
            if self.abandoned.is_set():
                return
            if not isinstance(failure, PenstockError):
                raise
            if failure.step is not None:
                if failure.step in self.accounts:  # tasks know no lines of the program
                    failure.at(failure.step, self.plan[failure.step].where)
                self._events(StepFailed(self.clock.now(), failure.step, str(failure)))
            raise

    def _run_in_query(self, query: RunQuery, rounds: Sequence[PlannedRound]) -> None:
        """Run rounds as a micro-batch of a query."""
        rows, last = self._input_rows(rounds), rounds[-1].plan.number

        def work(frame: DataFrame) -> BatchProgress:
            self._run_rounds(rounds, rows, frame)
            return self.progress

        query.run(self.jobs.tasks(rows, last), work)

    def run_round(self, batches: Mapping[str, SourceBatch], *, last: bool) -> None:
        """Run a round of batches that no reader gave; `last` closes everything."""
        with self._report_failure():
            round_ = self._planner.plan_pushed(batches, last=last)
            if self.checkpoint.durable:
                self.checkpoint.save_planned_rounds(self._planner.records_of([round_]))
            self._run_rounds([round_])

    def drain(self) -> None:
        """Close everything, unless that was done: the run was stopped, and takes no more input.

        Rounds that an earlier run had begun are taken before, and of sources that have an end wherever they
        are, such as a log, what is left.
        """
        if self._done.drained:
            return
        with self._report_failure():
            for rounds in self._planner.plan_rest():
                if self.checkpoint.durable:
                    self.checkpoint.save_planned_rounds(self._planner.records_of(rounds))
                self._run_rounds(rounds)
        if not self._done.drained:
            self.run_round({}, last=True)

    def _run_rounds(
        self,
        rounds: Sequence[PlannedRound],
        rows: Sequence[WireRow] | None = None,
        frame: DataFrame | None = None,
    ) -> None:
        """Run one job for all rounds; one by one if a step fails, so that the rounds before it count.

        rows, frame  the input of the job, if it has been made already, and as Spark has it
        """
        began = self.clock.now()
        result = self._run_job(rounds, self._input_rows(rounds) if rows is None else rows, frame)
        if self.abandoned.is_set():
            raise _Abandonment
        if result is None:
            for round_ in rounds:
                self._run_rounds([self._planner.look_at_rows(round_)])
            return
        pass_crash_point(PROCESSED)
        if result.failure is not None and len(rounds) > 1:
            for round_ in rounds:
                self._run_rounds([round_])
        elif result.failure is not None:
            self._planner.give_up(rounds[0], result.failure)
            raise result.failure
        else:
            took = self.clock.now() - began
            with self._keep_going():
                self._commit(
                    rounds, result, {"read": began - rounds[0].plan.now, "job": took, "work": result.work_us}
                )

    def _run_job(
        self, rounds: Sequence[PlannedRound], rows: Sequence[WireRow], frame: DataFrame | None
    ) -> JobResult | None:
        """Run the job; return None when rows failed of which no more than that can be told.

        A source stage that looks at the rows says which file cannot be read, or which function failed on
        which row.
        """
        if not self.jobs.fragments.fragments:
            return JobResult()
        remote = {round_.plan.number: round_.remote for round_ in rounds if round_.remote}
        read = list(dict.fromkeys(batch.rows for round_ in rounds for batch in round_.read.values()))
        plans = tuple(round_.plan for round_ in rounds)
        name, state = uuid.uuid4().hex, self._done.state
        task = JobTask(plans, name, self._job, state, self.checkpoint.files, self.sinks.last_rounds)
        proven = any(
            isinstance(batch, RemoteBatch) for batches in remote.values() for batch in batches.values()
        )
        try:
            result = self.jobs.run(rows, task, remote, read, frame)
        except Exception as failure:
            # NotSupported: an expression that is too large for Spark
            if proven and (isinstance(failure, NotSupported) or not isinstance(failure, PenstockError)):
                return None
            raise
        result.job = task.job
        return None if any(outcomes[FAILED] for outcomes in result.outcomes.values()) else result

    def _input_rows(self, rounds: Sequence[PlannedRound]) -> list[WireRow]:
        """Return the rows that the driver has of some rounds, and the splits to read, as wire rows."""
        return self.jobs.splits(rounds) + [
            WireRow(0, Kind.SOURCE, self._ports[ref], round_.plan.batches[ref.step], 0, body)
            for round_ in rounds
            for ref, batch in round_.batches
            for piece in split_evenly(batch, self.jobs.n_partitions)
            for body in pack_pieces(piece)
        ]

    def _commit(self, rounds: Sequence[PlannedRound], result: JobResult, took: Mapping[str, int]) -> None:
        """Write every round under its number; then the manifest says that they are done."""
        last = rounds[-1]
        self.sinks.publish(last.plan.number, result)
        self._counted = Counter(rounds=len(rounds))
        for round_ in rounds:
            read = self._count_round(round_, result)
            began = self.clock.now()
            written = self.sinks.write(round_, result, self.checkpoint.files)
            now = self.clock.now()
            self._counted["rows_in"] += sum(read.values())
            # How far a round is behind the clock, and where its time went.
            lag = {
                name: now - int(at) for name, at in round_.watermarks.items() if BEFORE_ALL < at < AFTER_ALL
            }
            parts, took_us = {**took, "write": now - began}, now - round_.plan.now
            number, received = round_.plan.number, result.nbytes
            self._events(BatchDone(now, number, read, written, took_us, parts, lag, received=received))
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
            streams={
                reader.step.name: reader.sign_batch(last.positions[reader.step.name][0] - 1)
                for reader in self.readers
                if isinstance(reader, StreamSourceReader)
            },
        )
        nbytes = self.checkpoint.commit(self._done)
        self._job = result.job
        for name in {file for file, *_ in result.files}:
            self.checkpoint.files.remove_rows(name)
        for round_ in rounds:
            for source, batch in round_.read.items():
                batch.rows.release(source, batch.number)
        state_bytes, state_rows = state_size(state)
        counts = {**self._counted, "state_bytes": state_bytes, "state_rows": state_rows}
        self.progress = BatchProgress(counts.pop("rows_in", 0), counts, last.watermarks)
        for reader in self.readers:
            if isinstance(reader, StreamSourceReader):
                reader.commit(last.positions[reader.step.name][0], self.progress)
        if result.state:
            self._events(StateSaved(self.clock.now(), last.plan.number, nbytes, state_bytes, state_rows))

    def _count_round(self, round_: PlannedRound, result: JobResult) -> dict[str, int]:
        """Add up what became of the rows of a round, step by step, and report it; return what sources read.

        The driver counts, source stages that read as a part of the job, other workers, and the JVM.
        """
        number, counts = round_.plan.number, [round_.accounts]
        counts += [
            {report.source: Accounts(**(report.accounts or {}))}
            for report in result.sources
            if round_.plan.batches.get(report.source) == report.batch
        ]
        for counted_in, by_step in result.accounts:
            if counted_in == number:
                counts.append({name: Accounts(**numbers) for name, numbers in by_step.items()})
        for source, batch in round_.remote.items():
            if isinstance(batch, RemoteBatch):
                outcomes = result.outcomes.get((number, source), Counter())
                counts.append(self.jobs.remote[source].accounts(batch, outcomes))
        counted = {step.name: Accounts() for step in self.plan}
        for by_name in counts:
            for name, accounts in by_name.items():
                counted[name].add(accounts)
        read = {report.source: report.reason for report in result.sources if report.reason is not None}
        reasons = {**result.reasons.get(number, {}), **round_.reasons, **read}
        for name, accounts in counted.items():
            if name in round_.moved:
                self._events(round_.moved[name])
            self.accounts[name].add(accounts)
            self._counted.update(rows_late=accounts.late, rows_errored=accounts.errors)
            now = self.clock.now()
            if accounts.late:
                self._events(RowsLate(now, name, accounts.late))
            if accounts.errors:
                policy = self.plan[name].op.on_error
                self._events(RowsErrored(now, name, accounts.errors, policy, reasons.get(name, "")))
        return {name: counted[name].rows_in for name in round_.accounts}
