"""The driver loop: read rounds, run them as jobs, write what leaves, commit.

A micro-batch takes as many rounds as are ready, up to a limit: watermarks are known on the driver, so one job
can run several rounds, each admitted by its own. If a step fails, the rounds of the micro-batch are run again
one by one, so that everything before the failure is written, as it would have been.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.connect.protocol import SourceBatch
from penstock.crash_points import PROCESSED, READ, pass_crash_point
from penstock.engines.checkpoint.checkpoint import Checkpoint, Manifest, convert_state
from penstock.engines.checkpoint.state_files import state_size
from penstock.engines.ends import SinkWriter
from penstock.engines.spark.driver.epochs import EpochPlanner, PlannedRound
from penstock.engines.spark.driver.jobs import SparkJobs
from penstock.engines.spark.driver.reports import JobResult, Reports
from penstock.engines.spark.driver.sources import open_source
from penstock.engines.spark.driver.waits import SourcePolling, StreamSourceReader
from penstock.engines.spark.fragments import DRIVER, Edge, Fragments, JobTask, RoundClock
from penstock.engines.spark.wire import Kind, WirePartitioner, WireRow, pack_pieces, split_evenly
from penstock.engines.wire import unpack_batch
from penstock.errors import NotSupported, PenstockError
from penstock.events import EventSink, StateSaved, StepFailed
from penstock.plan.plan import Plan, Ref
from penstock.stages.snapshot import BY_KEY
from penstock.timing.windows import BEFORE_ALL


class SinkDelivery:
    """What leaves a round: rows for sinks, written under the round's number, and rows that are collected."""

    def __init__(self, plan: Plan, fragments: Fragments, accounts: Mapping[str, Accounts]) -> None:
        self._plan, self._accounts = plan, accounts
        self._edges = [edge for edge in fragments.edges if edge.fragment == DRIVER]
        self._writers = {step.name: SinkWriter(step, accounts[step.name]) for step in plan.sinks}
        self.collected: dict[Ref, list[pa.RecordBatch]] = {ref: [] for ref in plan.collects}

    def open(self, known: Collection[str]) -> None:
        """Opens all sinks; those that the checkpoint knows continue where they were."""
        for name, writer in self._writers.items():
            writer.open(resume=name in known, n_written=self._accounts[name].rows_out)

    def write(self, round_: PlannedRound, result: JobResult) -> dict[str, int]:
        """Writes a round and makes it visible; returns the number of rows of every sink."""
        batches: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._writers}
        for edge in self._edges:
            rows = self._rows(edge, round_, result)
            if edge.step is None:
                self.collected[edge.ref] += rows
            else:
                batches[edge.step] += rows
        number = round_.plan.number
        return {name: writer.write(number, batches[name]) for name, writer in self._writers.items()}

    def table(self, ref: Ref, first: int = 0) -> pa.Table:
        """Returns the collected rows of a port, from batch `first` on."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        return pa.Table.from_batches(self.collected[ref][first:], schema=schema)

    def close(self) -> list[Exception]:
        """Closes all sinks, whatever happens to one of them; returns what went wrong."""
        return close_all(writer.close for writer in self._writers.values())

    def _rows(self, edge: Edge, round_: PlannedRound, result: JobResult) -> list[pa.RecordBatch]:
        schema = self._plan[edge.ref.step].outputs[edge.ref.port].schema
        from_sources = [batch.rows for ref, batch in round_.batches if ref == edge.ref]
        packed = result.rows.get(edge.number, {}).get(round_.plan.number, [])
        return from_sources + [unpack_batch(body, schema).rows for body in packed]


class SourceRows:
    """What the driver sends to the fragments: the rows of its sources, by partition and packed."""

    def __init__(self, plan: Plan, fragments: Fragments, n_partitions: int) -> None:
        sources = {step.name for step in plan.sources}
        self._n_partitions = n_partitions
        self._edges = [
            edge for edge in fragments.edges if edge.ref.step in sources and edge.fragment != DRIVER
        ]
        self._partitioners = {
            edge.number: WirePartitioner(
                edge.key, plan[edge.ref.step].outputs[edge.ref.port].schema, n_partitions
            )
            for edge in self._edges
        }

    def pack(self, rounds: Sequence[PlannedRound]) -> list[WireRow]:
        """Returns the rows of some rounds as wire rows for the fragments that read them."""
        return [
            WireRow(edge.fragment, Kind.BATCH, edge.number, round_.plan.number, partition, body)
            for round_ in rounds
            for ref, batch in round_.batches
            for edge in self._edges
            if edge.ref == ref
            for piece in split_evenly(batch, self._n_partitions if edge.key is None else 1)
            for partition, rows in self._partitioners[edge.number].partition(piece, 0)
            for body in pack_pieces(rows)
        ]


class DriverLoop:
    """A plan at work on the driver."""

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
        source_accounts = {step.name: Accounts() for step in plan.sources}
        self._round_clock = RoundClock(clock.now())
        self._readers = [
            open_source(plan, step, self._round_clock, accounts, jobs.remote, checkpoint.folder)
            for step, accounts in zip(plan.sources, source_accounts.values(), strict=True)
        ]
        self.sinks = SinkDelivery(plan, fragments, self.accounts)
        self._polling = SourcePolling(plan, self._readers, clock, stopping or threading.Event())
        self._planner = EpochPlanner(
            plan,
            self._readers,
            source_accounts,
            clock=self._round_clock,
            polling=self._polling,
            until=until,
            drain=drain,
        )
        self._done, self._begun, self._job = Manifest(), 0, ""
        self._reports = Reports(plan, jobs.remote, clock=clock, events=events)
        self._failure: PenstockError | None = None
        self._source_rows = SourceRows(plan, fragments, n_partitions)

    @property
    def batches(self) -> int:
        """Returns the number of rounds with source batches that this run has done."""
        return self._done.rounds - self._begun - self._done.drained

    @property
    def is_drained(self) -> bool:
        """Returns whether everything has been closed."""
        return self._done.drained

    def open(self) -> None:
        """Resumes from the checkpoint and opens all sinks."""
        done = self._checkpoint.latest_manifest()
        if done.drained:
            raise self._checkpoint.drained_error()
        # Why: workers know no form of window state but that by key.
        files, plan = self._checkpoint.files, self._plan
        state = {name: convert_state(plan[name], done, files, BY_KEY) for name in done.state}
        self._done, self._begun = replace(done, state=state), done.rounds
        for name, saved in done.accounts.items():
            if name in self.accounts:
                self.accounts[name].add(Accounts(**saved))
        self._planner.resume(done, self._checkpoint.planned_rounds(), self._checkpoint.journal)
        self.sinks.open((self._checkpoint.saved_graph or {}).get("steps", {}))
        self._checkpoint.adopt()

    def close(self) -> None:
        """Closes readers and sinks, whatever happens to one of them; the first error is raised at the end."""
        failures = close_all(reader.close for reader in self._readers) + self.sinks.close()
        self._jobs.close()
        if failures:
            raise failures[0]

    def run_micro_batch(self) -> bool:
        """Runs the rounds that are ready; returns False when there are no more."""
        rounds = self._planner.next_rounds()
        if rounds and self._checkpoint.durable and self._polling.follows_clock:
            self._checkpoint.save_planned_rounds({round_.plan.number: round_.record for round_ in rounds})
        pass_crash_point(READ)
        if rounds:
            self._run_rounds(rounds)
        self._raise(self._failure or self._planner.failure)
        return not self._planner.over

    def run_round(self, batches: Mapping[str, SourceBatch], *, last: bool) -> None:
        """Runs a round of batches that no reader gave; `last` closes everything."""
        self._round_clock.us = self._clock.now()
        try:
            round_ = self._planner.plan_round(batches, last=last)
        except PenstockError as failure:
            self._raise(failure)
        else:
            self._run_rounds([round_])
            self._raise(self._failure)

    def promise(self, watermark: int) -> None:
        """Moves the watermarks of all sources, in microseconds."""
        for reader in self._readers:
            reader.promise(watermark)

    def tables(self) -> dict[Ref, pa.Table]:
        """Returns all rows that were collected."""
        return {ref: self.sinks.table(ref) for ref in self.sinks.collected}

    def _run_rounds(self, rounds: Sequence[PlannedRound]) -> None:
        """Runs one job for all rounds; one by one if a step fails, so that the rounds before it count."""
        began = self._clock.now()
        result = self._run_job(rounds)
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

    def _run_job(self, rounds: Sequence[PlannedRound]) -> JobResult | None:
        """Runs the job; returns None when something failed where only that can be told, and not more.

        The readers and stages of the driver say which file cannot be read, or which function failed on which
        row.
        """
        if not self._fragments.fragments:
            return JobResult()
        remote = {round_.plan.number: round_.remote for round_ in rounds if round_.remote}
        plans = tuple(round_.plan for round_ in rounds)
        task = JobTask(plans, uuid.uuid4().hex, self._job, self._done.state, self._checkpoint.files)
        try:
            result = self._jobs.run(self._source_rows.pack(rounds), task, remote)
        except PenstockError as failure:
            if remote and isinstance(failure, NotSupported):  # an expression that is too large for Spark
                return None
            raise
        except Exception:
            if remote:
                return None
            raise
        result.job = task.job
        return None if result.has_failed_rows else result

    def _run_from_driver(self, rounds: Sequence[PlannedRound]) -> None:
        """Runs the same rounds one by one, read on the driver."""
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
        """Writes every round under its number; then the manifest says that they are done."""
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
        nbytes = self._checkpoint.commit(self._done)
        self._job = result.job
        for reader in self._readers:
            if isinstance(reader, StreamSourceReader):
                reader.commit(last.positions[reader.step.name][0])
        if result.state:
            self._events(StateSaved(self._clock.now(), last.plan.number, nbytes, *state_size(state)))

    def _write_round(self, round_: PlannedRound, result: JobResult, took: Mapping[str, int]) -> None:
        self._reports.count(round_, result, self.accounts)
        began = self._clock.now()
        written = self.sinks.write(round_, result)
        now = self._clock.now()
        self._reports.finish(round_, written, {**took, "write": now - began}, now - round_.plan.now)

    def _raise(self, failure: PenstockError | None) -> None:
        if failure is None:
            return
        if failure.step is not None:
            self._events(StepFailed(self._clock.now(), failure.step, str(failure)))
        raise failure


def close_all(closes: Iterable[Callable[[], None]]) -> list[Exception]:
    """Calls every close; returns what went wrong."""
    failures = []
    for close in closes:
        try:
            close()
        except Exception as failure:
            failures.append(failure)
    return failures
