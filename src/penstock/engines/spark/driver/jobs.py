"""Spark jobs: the rounds of one micro-batch, through all fragments, and only reports back to the driver.

Fragments are lazy DataFrames over wire rows, one behind the other: exchanged by partition where a fragment is
keyed, run by `mapInArrow`, which passes on what is for others. Nothing is computed twice, and the driver asks
once. Where there is little to do one task runs all fragments, partition by partition: the same work in the
same order, without exchanges, whose planning alone takes longer.

Batches whose times nobody knows are read by a job before that. Their rows wait in Spark's own cache, which
spills to the disks of the executors and reads again what is lost with one; the driver gets the reports.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.connect.readers.files import FileReader
from penstock.connect.readers.program import table
from penstock.connect.readers.spark import SparkReader
from penstock.engines.checkpoint.state_files import StateHandles, state_size
from penstock.engines.spark.closures import require_picklable
from penstock.engines.spark.driver.job_results import JobResult, no_room_error, read_job_result
from penstock.engines.spark.driver.join_planner import JoinPlanner, choose_samples, scale_report
from penstock.engines.spark.driver.read_ahead import ReadRows, split_source
from penstock.engines.spark.file_splits import FileSplit, RemoteBatch, UnreadBatch, split_files
from penstock.engines.spark.fragments import (
    DRIVER,
    JobTask,
    RoundPlan,
    plan_fragment,
    split_into_fragments,
)
from penstock.engines.spark.join_exchange import JoinLayout
from penstock.engines.spark.jvm_source import RemoteSource, hand_over, in_session
from penstock.engines.spark.native_run import NativeRun, native_sink
from penstock.engines.spark.read_placement import source_pipelines
from penstock.engines.spark.session.settings import ARROW_ROWS, ARROW_ROWS_SETTING
from penstock.engines.spark.source_task import SourceReadPlan, SourceSplit
from penstock.engines.spark.tasks import (
    ALIVE,
    SAMPLED_ROWS,
    load_plans,
    read_source_rows,
    run_all_fragments,
    run_fragment,
    sample_joins,
)
from penstock.engines.spark.wire import NO_EDGE, SCHEMA, SPARK_SCHEMA, Kind, WireRow, from_wire, to_wire
from penstock.errors import FunctionError
from penstock.operators.stream_join import StreamJoin
from penstock.plan.plan import Plan, Step
from penstock.stages.keys.slots import BUCKETS

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.spark.driver.epochs import PlannedRound

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What `mapInArrow` takes."""
RemoteBatches = Mapping[int, Mapping[str, RemoteBatch | UnreadBatch]]
"""round -> source -> the batch that the job of the round reads."""

SMALL_INPUT, SMALL_STATE, SMALL_WORK = 1 << 20, 1 << 23, 100_000
"""One task runs a micro-batch with at most so many bytes of rows and of state, if the one before it kept
workers busy for at most so many microseconds."""
PARTITION_ROWS, PARTITION_BYTES, PARTITION_STATE = 1 << 20, 1 << 27, 1 << 24
"""There are as many partitions that one has no more rows than this, bytes of files, and bytes of saved state.

Why: a task holds the rows of a partition in memory, to bring them in order, and the state of its keys.
"""
ROW_WEIGHT = 8
"""What a row in a file counts for among bytes that are sent: it is quickly read."""


class SparkJobs:
    """Runs the fragments of one plan on a session.

    name     the tag of its jobs
    remote   the sources whose times can be known before their rows, by name
    trigger  how often a stream of Spark's is to be cut
    """

    trigger: str | None = None

    def __init__(self, spark: SparkSession, plan: Plan, n_partitions: int) -> None:
        self._spark, self._run, self.name = spark, (run := uuid.uuid4().hex), f"penstock-{run}"
        self.fragments, self._work_us = split_into_fragments(plan), 0
        layouts = [edge.join.n_least for edge in self.fragments.edges if edge.join is not None]
        self.n_partitions = max([n_partitions, *layouts])
        self.joins = {step.name: JoinPlanner(step) for step in plan if isinstance(step.op, StreamJoin)}
        self._plan, self._step_names = plan, ", ".join(step.name for step in plan)
        self._broadcast: Broadcast[bytes] | None = None
        self._n_tasks = n_partitions if spark is None else spark.sparkContext.defaultParallelism
        self.remote = {
            pipeline.source.name: RemoteSource(spark, plan, pipeline, self.fragments)
            for pipeline in source_pipelines(plan)
        }
        self._plans = [
            plan_fragment(plan, self.fragments, number, run=self._run)
            for number in range(len(self.fragments.fragments))
        ]
        self._native = self._plan_native()
        if self._plans:
            reads = {name: source.read_plan for name, source in self.remote.items() if source.by_workers}
            stages = {step.name: self._source_read_plan(step) for step in plan.sources}
            self._plans[0] = replace(self._plans[0], reads=reads, stages=stages)

    def run(
        self,
        rows: Sequence[WireRow],
        task: JobTask,
        remote: RemoteBatches,
        read: Sequence[ReadRows] = (),
        frame: DataFrame | None = None,
    ) -> JobResult:
        """Run what the driver sends, and what is read elsewhere, through all fragments.

        rows   with the splits that workers are to read
        read   rows that were read ahead
        frame  the same as `rows`, and those that wake partitions up, if Spark has them already
        """
        has_rows = bool(rows or remote or read)
        if not has_rows and not any(fragment.keyed for fragment in self.fragments.fragments):
            return JobResult()
        self._name_job(f"rounds {task.rounds[0].number} to {task.rounds[-1].number}", self._step_names)
        native = None if read else self._run_native(task, remote)
        if native is not None:
            return native
        in_jvm = [
            (round_, source, batch)
            for round_ in task.rounds
            for source, batch in remote.get(round_.number, {}).items()
            if isinstance(batch, RemoteBatch) and not batch.by_workers
        ]
        if frame is None:
            frame = self._slots_frame(self.tasks(rows, task.rounds[-1].number))
        for cached in read:
            frame = frame.unionAll(cached.frame.where(f"kind = {Kind.SOURCE:d}"))
        n_read = sum(cached.n_rows for cached in read)
        self.look_at_joins(rows, task)
        task = self.lay_out(task, self._count_partitions(remote, n_read, task.state))
        if task.n_partitions > self.n_partitions:
            more = self.wake_ups(task.rounds[-1].number, range(self.n_partitions, task.n_partitions))
            frame = frame.unionAll(self._slots_frame([more]))
        if not in_jvm and self._is_small(rows, n_read, task):
            frame = frame.coalesce(1).mapInArrow(self._function(task, None), SPARK_SCHEMA)
        else:
            frame = self._spread(frame, task, in_jvm, has_rows=bool(rows or read))
        result = read_job_result(frame.toArrow())
        self._work_us = result.work_us
        self.learn(result)
        return result

    def tag(self) -> None:
        """Let `cancel` find the jobs of this thread."""
        self._spark.sparkContext.addJobTag(self.name)

    def cancel(self) -> None:
        """Cancel all jobs that are running; Spark answers them at once, and ends their tasks by and by."""
        with suppress(Exception):  # a Spark that is gone has nothing to cancel
            self._spark.sparkContext.cancelJobsWithTag(self.name)

    def _run_native(self, task: JobTask, remote: RemoteBatches) -> JobResult | None:
        """Run the rounds as Spark's own plan; None if the program, or a batch of it, needs our stages."""
        if self._native is None:
            return None
        sink, number = self._native.sink.name, task.rounds[-1].number
        batches = [batch for by_source in remote.values() for batch in by_source.values()]
        proven = [batch for batch in batches if isinstance(batch, RemoteBatch)]
        if len(proven) < len(batches) or task.rounds[0].number <= task.committed.get(sink, -1):
            return None
        if not any(batch.n_rows for batch in proven):
            return JobResult()
        files, accounts, outcomes = self._native.write(proven, task.job)
        result = JobResult(staged={sink: files}, written={sink: Counter({number: outcomes[ALIVE]})})
        result.accounts.append((number, {name: counts.to_dict() for name, counts in accounts.items()}))
        (source,) = self.remote
        result.outcomes[number, source] = outcomes
        return result

    def read(self, splits: Sequence[SourceSplit], frame: Any = None) -> ReadRows:
        """Read splits ahead of their rounds, and keep the rows in Spark; only reports come back.

        frame  has the rows of the only split: a micro-batch of a stream
        """
        self._name_job("read ahead", ", ".join(dict.fromkeys(split.source for split in splits)))
        if frame is not None:
            frame.sparkSession.conf.set(ARROW_ROWS_SETTING, str(ARROW_ROWS))  # that of its query alone
            return self._keep(hand_over(frame, splits[0], self._broadcast_plans()))
        files = [
            split
            for split in splits
            if not isinstance(self._plan[split.source].as_source.reader, SparkReader)
        ]
        rows = [WireRow(0, Kind.SOURCE_READ, NO_EDGE, 0, 0, split.to_bytes()) for split in files]
        plans = self._broadcast_plans()

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return read_source_rows(load_plans(plans.value)[0], batches)

        n_tasks = min(self._n_tasks, max(1, len(rows)))
        frame = self._slots_frame(balance_slots(rows, n_tasks, 0)).mapInArrow(run, SPARK_SCHEMA)
        for split in splits:
            reader = self._plan[split.source].as_source.reader
            if isinstance(reader, SparkReader):
                frame = frame.unionAll(hand_over(in_session(reader.frame, self._spark), split, plans))
        return self._keep(frame)

    def _name_job(self, batch: str, steps: str) -> None:
        """Let Spark's page call the next job, and its stages, by the names of the program."""
        self._spark.sparkContext.setJobDescription(f"{self._plan.graph}: {batch}: {steps}")

    def _keep(self, frame: DataFrame) -> ReadRows:
        """Run a job whose rows stay in Spark's cache, and return the reports."""
        frame = frame.persist()
        reports = read_job_result(frame.where(f"fragment = {DRIVER}").toArrow())
        return ReadRows(frame, reports.sources)

    def source_splits(
        self, source: str, number: int, batch: RemoteBatch | UnreadBatch, now: int
    ) -> list[SourceSplit]:
        """Return what tasks read of a batch, where source stages look at its rows."""
        reader = self._plan[source].as_source.reader
        if not isinstance(reader, FileReader):
            return [SourceSplit(source, number, now)]
        whole = self._plans[0].stages[source].needs_whole_batch
        return split_source(
            reader, source, number, batch, now, whole=whole, n_tasks=self._n_tasks, scan=self.read
        )

    def _plan_native(self) -> NativeRun | None:
        if self._spark is None or len(self.remote) != 1:
            return None
        (source,) = self.remote.values()
        sink = native_sink(self._plan, source.pipeline, self.fragments)
        return None if sink is None else NativeRun(source, sink)

    def _source_read_plan(self, step: Step) -> SourceReadPlan:
        """Return how workers read a source; a reader that cannot travel is left behind."""
        op = step.as_source
        rank = self._plan.sources.index(step) if len(self._plan.sources) > 1 else None
        if not isinstance(op.reader, FileReader):
            step = replace(step, op=replace(op, reader=table(op.reader.schema.empty_table())))
        return SourceReadPlan(self._run, step, rank)

    def close(self) -> None:
        """Release what workers hold of this run."""
        if self._broadcast is not None:
            with suppress(Exception):  # Spark may have been stopped
                self._broadcast.destroy()

    def splits(self, rounds: Sequence[PlannedRound]) -> list[WireRow]:
        """Return which files the job of some rounds is to read, in splits for all tasks."""
        unread: list[SourceSplit] = []
        proven: list[FileSplit] = []
        for round_ in rounds:
            for source, batch in round_.remote.items():
                number, now = round_.plan.batches[source], round_.plan.now
                if isinstance(batch, UnreadBatch):
                    unread += self.source_splits(source, number, batch, now)
                elif batch.by_workers:
                    proven += split_files(source, number, batch, self._n_tasks)
        return [
            *(WireRow(0, Kind.SOURCE_READ, NO_EDGE, 0, 0, split.to_bytes()) for split in unread),
            *(WireRow(0, Kind.READ, NO_EDGE, 0, 0, split.to_bytes()) for split in proven),
        ]

    def _count_partitions(self, remote: RemoteBatches, n_read: int, state: StateHandles) -> int:
        """Return how many partitions the exchanges of a job have: more where rows are many, or keys."""
        batches = [batch for by_source in remote.values() for batch in by_source.values()]
        n_rows = n_read + sum(batch.load for batch in batches)
        n_bytes = sum(
            batch.n_bytes // (batch.rows_as_one if isinstance(batch, RemoteBatch) else 1) for batch in batches
        )
        n_saved, _ = state_size(state)
        n = self.n_partitions
        n_needed = max(n_rows // PARTITION_ROWS, n_bytes // PARTITION_BYTES, n_saved // PARTITION_STATE)
        while n < min(n_needed, BUCKETS):
            n = min(2 * n, BUCKETS)
        return n

    def learn(self, result: JobResult) -> None:
        """Let joins learn what rows are like from the reports of a job."""
        for name, planner in self.joins.items():
            planner.learn(result.joins, name)

    def look_at_joins(self, rows: Sequence[WireRow], task: JobTask) -> None:
        """Let joins learn from a few rows of the files of their first job, if it has many."""
        blind = [name for name, planner in self.joins.items() if planner.is_blind]
        if not blind or self.n_partitions == 1:
            return
        splits = [FileSplit.from_bytes(row.body) for row in rows if row.kind is Kind.READ and row.body]
        chosen = choose_samples(splits)
        if not chosen:
            return
        wire = [
            WireRow(0, Kind.READ, NO_EDGE, 0, number, split.to_bytes())
            for number, of_source in enumerate(chosen.values())
            for split in of_source
        ]
        task = replace(task, layouts=dict.fromkeys(self.joins, (1, 1)))
        factors = [
            sum(split.n_rows for split in splits if split.source == source)
            / sum(min(split.n_rows, SAMPLED_ROWS) for split in of_source)
            for source, of_source in chosen.items()
        ]
        reports = [
            scale_report(json.loads(row.body), factors[row.partition])
            for row in self._run_samples(wire, task)
            if row.body is not None
        ]
        for name in blind:
            self.joins[name].learn(reports, name)

    def _run_samples(self, rows: Sequence[WireRow], task: JobTask) -> list[WireRow]:
        self._name_job("look at values", ", ".join(self.joins))
        plans = self._broadcast_plans()

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return sample_joins(load_plans(plans.value)[0], task, batches)

        slots = [list(rows[place :: self._n_tasks]) for place in range(min(self._n_tasks, len(rows)))]
        return list(from_wire(self._slots_frame(slots).mapInArrow(run, SPARK_SCHEMA).toArrow()))

    def lay_out(self, task: JobTask, n_partitions: int) -> JobTask:
        """Return a task with its number of partitions, and the cells of joins by what is known of them."""
        layouts, respread = dict[str, JoinLayout](), set[str]()
        for name, planner in self.joins.items():
            saved = task.state.get(name, {})
            layouts[name], is_respread = planner.choose(task.job, task.after, n_partitions, saved)
            respread.update([name] if is_respread and saved else [])
        return replace(task, n_partitions=n_partitions, layouts=layouts, respread=frozenset(respread))

    def wake_ups(self, round_: int, partitions: Iterable[int] | None = None) -> list[WireRow]:
        """Return a call to every partition of every keyed fragment: watermarks concern all."""
        partitions = range(self.n_partitions) if partitions is None else partitions
        return [
            WireRow(fragment.number, Kind.WAKE, NO_EDGE, round_, partition)
            for fragment in self.fragments.fragments
            if fragment.keyed
            for partition in partitions
        ]

    def _is_small(self, rows: Sequence[WireRow], n_read: int, task: JobTask) -> bool:
        """Return whether one task is enough: little to send, little state, and little work the last time."""
        nbytes, (state_nbytes, _) = sum(map(_weight, rows)) + n_read * ROW_WEIGHT, state_size(task.state)
        return nbytes <= SMALL_INPUT and state_nbytes <= SMALL_STATE and self._work_us <= SMALL_WORK

    def tasks(self, rows: Sequence[WireRow], round_: int) -> list[list[WireRow]]:
        """Return the rows, and those that wake partitions up, for tasks that have equal work."""
        return balance_slots([*rows, *self.wake_ups(round_)], self._n_tasks, round_)

    def _spread(
        self,
        frame: DataFrame,
        task: JobTask,
        in_jvm: Sequence[tuple[RoundPlan, str, RemoteBatch]],
        *,
        has_rows: bool,
    ) -> DataFrame:
        """Return one task for every partition, fragments one after the other, with exchanges between them.

        What a fragment is not asked to do it passes on, so that what is for the driver is there at the end.
        """
        plans = self._broadcast_plans()
        for fragment in self.fragments.fragments:
            if fragment.keyed:
                frame = frame.repartitionById(task.n_partitions, "partition")
            if fragment.keyed or has_rows:
                frame = frame.mapInArrow(self._function(task, fragment.number), SPARK_SCHEMA)
            if not fragment.keyed:
                for round_, source, batch in in_jvm:
                    frame = frame.unionAll(self.remote[source].wire_rows(batch, round_, task, plans))
        return frame.where(f"fragment = {DRIVER}")

    def _function(self, task: JobTask, number: int | None) -> ArrowFunction:
        """Return what Spark ships for a fragment, or for all: where plans are, and what is to be done."""
        plans = self._broadcast_plans()

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            if number is None:
                return run_all_fragments(load_plans(plans.value), task, batches)
            return run_fragment(load_plans(plans.value)[number], task, batches)

        return run

    def _broadcast_plans(self) -> Broadcast[bytes]:
        """Return the plans as they are sent once to every worker: with functions, and tables to join."""
        from pyspark import cloudpickle

        if self._broadcast is None:
            try:
                pickled = cloudpickle.dumps(tuple(self._plans))
            except Exception:  # whatever a __reduce__ of the user's raises
                self._refuse_unpicklable()
                raise
            try:
                self._broadcast = self._spark.sparkContext.broadcast(pickled)
            except OSError as cause:
                raise no_room_error(cause) from cause
        return self._broadcast

    def _refuse_unpicklable(self) -> None:
        """Raise for the first step that cannot be sent to workers."""
        for step in (step for fragment in self.fragments.fragments for step in fragment.steps):
            try:
                require_picklable(f'step "{step.name}"', step.op)
            except FunctionError as error:
                raise error.at(step.name, step.where) from None

    def _slots_frame(self, slots: Sequence[Sequence[WireRow]]) -> DataFrame:
        """Return what the driver sends as a DataFrame."""
        rows = pa.Table.from_batches(map(to_wire, slots), schema=SCHEMA)
        try:
            return self._spark.createDataFrame(rows)
        except OSError as cause:
            raise no_room_error(cause) from cause


def _weight(row: WireRow) -> int:
    """Return how much there is to do for a wire row, in bytes."""
    if row.kind is Kind.READ and row.body is not None:
        return FileSplit.from_bytes(row.body).n_rows * ROW_WEIGHT
    if row.kind is Kind.SOURCE_READ and row.body is not None:
        return SourceSplit.from_bytes(row.body).n_bytes
    return len(row.body or b"")


def balance_slots(rows: Sequence[WireRow], n_slots: int, round_: int) -> list[list[WireRow]]:
    """Return wire rows in slots of one length, which are equal work: Spark slices a table evenly."""
    slots: list[list[WireRow]] = [[] for _ in range(n_slots)]
    weights = [0] * n_slots
    for row in sorted(rows, key=_weight, reverse=True):
        lightest = min(range(n_slots), key=lambda slot: (weights[slot], len(slots[slot])))
        weights[lightest] += _weight(row)
        is_split = row.kind in (Kind.READ, Kind.SOURCE_READ)
        slots[lightest].append(replace(row, partition=lightest) if is_split else row)
    longest = max(len(slot) for slot in slots)
    for number, slot in enumerate(slots):
        slot.extend([WireRow(0, Kind.WAKE, NO_EDGE, round_, number)] * (longest - len(slot)))
    return slots
