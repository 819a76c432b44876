"""Spark jobs: the rounds of one micro-batch, through all fragments, back to the driver.

Fragments are lazy DataFrames over wire rows, one behind the other: exchanged by partition where a fragment is
keyed, run by `mapInArrow`, which passes on what is for others. Nothing is computed twice, and the driver asks
once. Where there is little to do one task runs all fragments, partition by partition: the same work in the
same order, without exchanges, whose planning alone takes longer.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.engines.checkpoint.state_files import state_size
from penstock.engines.spark.driver.reports import JobResult, read_job_result
from penstock.engines.spark.fragments import DRIVER, FragmentPlan, Fragments, JobTask, plan_fragment
from penstock.engines.spark.jvm.source import RemoteSource
from penstock.engines.spark.read_placement import source_pipelines
from penstock.engines.spark.wire import NO_EDGE, SCHEMA, SPARK_SCHEMA, Kind, WireRow, to_wire
from penstock.engines.spark.worker.files import FileSplit, RemoteBatch, split_files
from penstock.engines.spark.worker.task import run_all_fragments, run_fragment
from penstock.errors import EngineError, describe_cause
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RemoteBatches = Mapping[int, Mapping[str, RemoteBatch]]
"""round -> source -> the batch that is read outside of the driver."""

SMALL_INPUT, SMALL_STATE, SMALL_WORK = 1 << 20, 1 << 23, 100_000
"""One task runs a micro-batch with at most so many bytes of rows and of state, if the one before it kept
workers busy for at most so many microseconds."""
ROW_WEIGHT = 8
"""What a row in a file counts for among bytes that are sent: it is quickly read."""
_MOST_RUNS = 4
"""Runs whose plans stay unpickled in one worker."""


class ShippedPlans:
    """The plans of all fragments of a run, sent once to every worker: with functions, and tables to join."""

    def __init__(self, spark: SparkSession, run: str, plans: Sequence[FragmentPlan]) -> None:
        from pyspark.serializers import CloudPickleSerializer

        self._run, pickled = run, CloudPickleSerializer().dumps(tuple(plans))
        try:
            self._broadcast = spark.sparkContext.broadcast(pickled)
        except OSError as cause:
            raise _no_room(cause) from cause

    def load(self) -> tuple[FragmentPlan, ...]:
        """Returns the plans, in a worker; they are unpickled once in each."""
        if self._run not in _LOADED:
            _LOADED[self._run] = pickle.loads(self._broadcast.value)  # noqa: S301 (the driver's own bytes)
            for run in list(_LOADED)[:-_MOST_RUNS]:
                del _LOADED[run]
        return _LOADED[self._run]

    def destroy(self) -> None:
        """Lets Spark forget the plans."""
        with suppress(Exception):  # Spark may have been stopped
            self._broadcast.destroy()


_LOADED: dict[str, tuple[FragmentPlan, ...]] = {}


class SparkJobs:
    """Runs the fragments of one plan on a session.

    remote  the sources that the driver does not read, by name
    """

    def __init__(
        self, spark: SparkSession, plan: Plan, fragments: Fragments, *, run: str, n_partitions: int
    ) -> None:
        self._spark, self._run, self._n_partitions = spark, run, n_partitions
        self._fragments, self._work_us = fragments.fragments, 0
        self._shipped: ShippedPlans | None = None
        self._n_tasks = n_partitions if spark is None else spark.sparkContext.defaultParallelism
        self.remote = {
            pipeline.source.name: RemoteSource(spark, plan, pipeline, fragments, n_partitions)
            for pipeline in (source_pipelines(plan) if self._fragments else ())
        }
        self._plans = [
            plan_fragment(plan, fragments, fragment.number, run=run, n_partitions=n_partitions)
            for fragment in self._fragments
        ]
        if self._plans:
            reads = {name: source.read_plan for name, source in self.remote.items() if source.by_workers}
            self._plans[0] = replace(self._plans[0], reads=reads)

    def run(self, rows: Sequence[WireRow], task: JobTask, remote: RemoteBatches) -> JobResult:
        """Runs what the driver sends, and what is read elsewhere, through all fragments."""
        if not rows and not remote and not any(fragment.keyed for fragment in self._fragments):
            return JobResult()
        rows, in_jvm = [*rows, *self.splits(remote)], _read_in_jvm(remote)
        if not in_jvm and self._is_small(rows, task):
            shipped = self._plans_in_workers()

            def run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return run_all_fragments(shipped.load(), task, batches)

            frame = self._frame(rows, task).coalesce(1).mapInArrow(run_all, SPARK_SCHEMA)
        else:
            frame = self._spread(rows, task, in_jvm)
        result = read_job_result(frame.toArrow())
        self._work_us = result.work_us
        return result

    def close(self) -> None:
        """Releases what workers hold of this run."""
        if self._shipped is not None:
            self._shipped.destroy()

    def splits(self, remote: RemoteBatches) -> list[WireRow]:
        """Returns which files workers are to read, in splits for all tasks."""
        return [
            WireRow(0, Kind.READ, NO_EDGE, round_, 0, split.to_bytes())
            for round_, batches in remote.items()
            for source, batch in batches.items()
            if batch.by_workers
            for split in split_files(source, batch, self._n_tasks)
        ]

    def wake_ups(self, task: JobTask) -> list[WireRow]:
        """Returns a call to every partition of every keyed fragment: watermarks concern all."""
        last = task.rounds[-1].number
        return [
            WireRow(fragment.number, Kind.WAKE, NO_EDGE, last, partition)
            for fragment in self._fragments
            if fragment.keyed
            for partition in range(self._n_partitions)
        ]

    def _is_small(self, rows: Sequence[WireRow], task: JobTask) -> bool:
        """Returns whether one task is enough: little to send, little state, and little work the last time."""
        nbytes, (state_nbytes, _) = sum(map(_weight, rows)), state_size(task.state)
        return nbytes <= SMALL_INPUT and state_nbytes <= SMALL_STATE and self._work_us <= SMALL_WORK

    def _spread(self, rows: Sequence[WireRow], task: JobTask, in_jvm: RemoteBatches) -> DataFrame:
        """Returns one task for every partition, fragments one after the other, with exchanges between them.

        What a fragment is not asked to do it passes on, so that what is for the driver is there at the end.
        """
        frame = self._frame(rows, task)
        for fragment in self._fragments:
            if fragment.keyed:
                frame = frame.repartitionById(self._n_partitions, "partition")
            if fragment.keyed or any(row.fragment == fragment.number for row in rows):
                frame = frame.mapInArrow(self._function(fragment.number, task), SPARK_SCHEMA)
            if not fragment.keyed:
                frame = reduce(lambda one, other: one.unionAll(other), [frame, *self._in_jvm(task, in_jvm)])
        return frame.where(f"fragment = {DRIVER}")

    def _function(self, number: int, task: JobTask) -> Any:
        """Returns what Spark ships for a fragment: where its plan is, and what is to be done."""
        shipped = self._plans_in_workers()

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return run_fragment(shipped.load()[number], task, batches)

        return run

    def _in_jvm(self, task: JobTask, remote: RemoteBatches) -> list[DataFrame]:
        """Returns what leaves fragment 0 for the batches that the JVM reads."""
        shipped = self._plans_in_workers()
        return [
            self.remote[source].wire_rows(batch, round_, lambda: shipped.load()[0])
            for round_ in task.rounds
            for source, batch in remote.get(round_.number, {}).items()
        ]

    def _plans_in_workers(self) -> ShippedPlans:
        if self._shipped is None:
            self._shipped = ShippedPlans(self._spark, self._run, self._plans)
        return self._shipped

    def _frame(self, rows: Sequence[WireRow], task: JobTask) -> DataFrame:
        """Returns what the driver sends, balanced over all tasks, as a DataFrame."""
        balanced = balance_slots([*rows, *self.wake_ups(task)], self._n_tasks, task.rounds[-1].number)
        table = pa.Table.from_batches([to_wire(balanced)], schema=SCHEMA)
        try:
            return self._spark.createDataFrame(table)
        except OSError as cause:
            raise _no_room(cause) from cause


def _no_room(cause: OSError) -> EngineError:
    return EngineError(
        f"rows cannot be handed to Spark: {describe_cause(cause)}",
        hint="make room in the folder for temporary files, or name another with TMPDIR",
    )


def _read_in_jvm(remote: RemoteBatches) -> RemoteBatches:
    """Returns the batches that workers do not read."""
    in_jvm = {
        round_: {source: batch for source, batch in batches.items() if not batch.by_workers}
        for round_, batches in remote.items()
    }
    return {round_: batches for round_, batches in in_jvm.items() if batches}


def _weight(row: WireRow) -> int:
    """Returns how much there is to do for a wire row, in bytes."""
    if row.kind is Kind.READ and row.body is not None:
        return FileSplit.from_bytes(row.body).n_rows * ROW_WEIGHT
    return len(row.body or b"")


def balance_slots(rows: Sequence[WireRow], n_slots: int, round_: int) -> list[WireRow]:
    """Orders wire rows so that Spark's slices of them, all of one length, are equal work."""
    slots: list[list[WireRow]] = [[] for _ in range(n_slots)]
    weights = [0] * n_slots
    for row in sorted(rows, key=_weight, reverse=True):
        lightest = min(range(n_slots), key=lambda slot: (weights[slot], len(slots[slot])))
        weights[lightest] += _weight(row)
        slots[lightest].append(replace(row, partition=lightest) if row.kind is Kind.READ else row)
    longest = max(len(slot) for slot in slots)
    for number, slot in enumerate(slots):
        slot.extend([WireRow(0, Kind.WAKE, NO_EDGE, round_, number)] * (longest - len(slot)))
    return [row for slot in slots for row in slot]
