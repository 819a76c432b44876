"""One Spark job per turn of the run: the rounds at hand, through all fragments, back to the driver.

Fragments are lazy DataFrames over wire rows, one behind the other: exchanged by part where a fragment is
keyed, carried
by `mapInArrow`, which passes on what is for others. Nothing is computed twice, and the driver asks once.
Where there is little to do one task carries all fragments, part by part: the same work in the same order of
parts,
without exchanges, whose planning alone takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.engines.checkpoint.state_files import state_size
from penstock.engines.spark.driver.reports import JobResult, read_job_result
from penstock.engines.spark.fragment_plan import FragmentPlan, JobTask, RoundPlan, plan_fragment
from penstock.engines.spark.fragments import DRIVER, Fragments
from penstock.engines.spark.jvm.carry import JvmSource, beside
from penstock.engines.spark.jvm.groups import GroupForm
from penstock.engines.spark.jvm.pipeline import SourcePipeline, source_pipelines
from penstock.engines.spark.jvm.source import RemoteBatch
from penstock.engines.spark.wire import READ, SCHEMA, SPARK_SCHEMA, WAKE, WireRow, to_wire
from penstock.engines.spark.worker.files import FileSplit, split_files
from penstock.engines.spark.worker.task import run_all_fragments, run_fragment
from penstock.errors import EngineError, describe_cause
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Files = Mapping[int, Mapping[str, RemoteBatch]]
"""round -> source -> the batch that Spark reads for it."""
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

LITTLE_SENT, LITTLE_KEPT, LITTLE_WORK = 1 << 20, 1 << 23, 100_000
"""One task carries a turn with at most so many bytes of rows and of state, if the turn before it kept workers
busy for at most so many microseconds."""
ROW = 8
"""What a row in a file counts for among bytes that are sent: it is quickly read."""


class SparkJobs:
    """Runs the fragments of one plan on a session."""

    def __init__(
        self, spark: SparkSession, plan: Plan, fragments: Fragments, *, run: str, n_partitions: int
    ) -> None:
        self._spark, self._fragments, self._n_partitions = spark, fragments, n_partitions
        self._plans = [
            plan_fragment(plan, fragments, fragment.number, run=run, n_partitions=n_partitions)
            for fragment in fragments.fragments
        ]
        self._worked = 0
        self._n_tasks = n_partitions if spark is None else spark.sparkContext.defaultParallelism
        chains = source_pipelines(plan, fragments) if fragments.fragments else []
        self.native = {chain.source.name: self._native(plan, chain) for chain in chains}
        if chains:
            reads = {name: native.file_form for name, native in self.native.items() if native.by_workers}
            self._plans[0] = replace(self._plans[0], reads=reads)

    def _native(self, plan: Plan, chain: SourcePipeline) -> JvmSource:
        edge = None if chain.window is None else self._fragments.parts[chain.window.name]
        in_parts = all(name in self._fragments.parts for name, _ in plan.readers(chain.last))
        return JvmSource(self._spark, plan, chain, edge, in_parts=in_parts)

    def run(self, given: Sequence[WireRow], task: JobTask, files: Files) -> JobResult:
        """Carry what the driver sends, and what is read elsewhere, through all fragments."""
        if not given and not files and not any(fragment.keyed for fragment in self._fragments.fragments):
            return JobResult()
        given, files = [*given, *self.pointers(files)], _in_the_jvm(files)
        if self._is_little(given, task, files):
            work = _alone(self._plans, task)
            found = read_job_result(
                self._given(given, task).coalesce(1).mapInArrow(work, SPARK_SCHEMA).toArrow()
            )
        else:
            found = self._spread(given, task, files)
        self._worked = found.worked
        return found

    def pointers(self, files: Files) -> list[WireRow]:
        """Where the files are that workers read, in pieces for all tasks."""
        return [
            WireRow(0, READ, round_, 0, piece.packed())
            for round_, batches in files.items()
            for source, batch in batches.items()
            if batch.by_workers
            for piece in split_files(source, batch, self._n_tasks)
        ]

    def _is_little(self, given: Sequence[WireRow], task: JobTask, files: Files) -> bool:
        """Whether one task is enough: little to carry, little to keep, and little to do the last time."""
        n_sent = sum(_weight(sent) for sent in given)
        n_kept, _ = state_size(task.state)
        return not files and n_sent <= LITTLE_SENT and n_kept <= LITTLE_KEPT and self._worked <= LITTLE_WORK

    def _spread(self, given: Sequence[WireRow], task: JobTask, files: Files) -> JobResult:
        """One task for every part, fragments one after the other, with exchanges between them.

        What a fragment is not asked to do it passes on, so the fragments are one line: nothing is computed
        twice or
        kept, and what is for the driver is there at the end.
        """
        frame = self._given(given, task)
        for fragment, plan in zip(self._fragments.fragments, self._plans, strict=True):
            if fragment.keyed or any(sent.fragment == fragment.number for sent in given):
                frame, form = self._with_groups(frame, fragment.number, task, files)
                if fragment.keyed:
                    frame = frame.repartitionById(self._n_partitions, "part")
                frame = frame.mapInArrow(_work(plan, task, form), SPARK_SCHEMA)
            if not fragment.keyed:
                frame = _together([frame, *self._read(task, files)])
        return read_job_result(frame.where(f"fragment = {DRIVER}").toArrow())

    def _read(self, task: JobTask, files: Files) -> list[DataFrame]:
        """The rows that the JVM reads and that have passed fragment 0."""
        found = [
            native.rows(batch, self._plans[0], round_) for round_, native, batch in self._batches(task, files)
        ]
        return [frame for frame in found if frame is not None]

    def _with_groups(
        self, wire: DataFrame, fragment: int, task: JobTask, files: Files
    ) -> tuple[DataFrame, GroupForm | None]:
        """What is on the wire for a fragment, and beside it what Spark has grouped for it."""
        made = [
            (native, native.groups(batch, round_, self._n_partitions))
            for round_, native, batch in self._batches(task, files)
            if native.fragment == fragment
        ]
        if not made:
            return wire, None
        return beside(wire, _together([groups for _, groups in made])), made[0][0].form

    def _batches(self, task: JobTask, files: Files) -> Iterator[tuple[RoundPlan, JvmSource, RemoteBatch]]:
        for round_ in task.rounds:
            for source, batch in files.get(round_.number, {}).items():
                yield round_, self.native[source], batch

    def _given(self, given: Sequence[WireRow], task: JobTask) -> DataFrame:
        """What the driver sends, and a call to every part of every keyed fragment: watermarks concern all."""
        last = task.rounds[-1].number
        calls = [
            WireRow(fragment.number, WAKE, last, part)
            for fragment in self._fragments.fragments
            if fragment.keyed
            for part in range(self._n_partitions)
        ]
        rows = balance_slots([*given, *calls], self._n_tasks, last)
        table = pa.Table.from_batches([to_wire(rows)], schema=SCHEMA)
        try:
            return self._spark.createDataFrame(table)
        except OSError as cause:
            raise EngineError(
                f"rows cannot be handed to Spark: {describe_cause(cause)}",
                hint="make room in the folder for temporary files, or name another with TMPDIR",
            ) from cause


def _in_the_jvm(files: Files) -> Files:
    """The files that workers do not read."""
    kept = {
        round_: {source: batch for source, batch in batches.items() if not batch.by_workers}
        for round_, batches in files.items()
    }
    return {round_: batches for round_, batches in kept.items() if batches}


def _weight(sent: WireRow) -> int:
    """How much there is to do for a wire row, in bytes."""
    if sent.edge == READ and sent.body is not None:
        return FileSplit.unpacked(sent.body).n_rows * ROW
    return len(sent.body or b"")


def balance_slots(given: Sequence[WireRow], n_slots: int, round_: int) -> list[WireRow]:
    """Wire rows in such an order that Spark's slices of them, all of one length, are equal work."""
    slots: list[list[WireRow]] = [[] for _ in range(n_slots)]
    weights = [0] * n_slots
    for sent in sorted(given, key=_weight, reverse=True):
        lightest = min(range(n_slots), key=lambda slot: (weights[slot], len(slots[slot])))
        weights[lightest] += _weight(sent)
        slots[lightest].append(replace(sent, part=lightest) if sent.edge == READ else sent)
    longest = max(len(slot) for slot in slots)
    return [
        sent
        for number, slot in enumerate(slots)
        for sent in _filled(slot, longest, WireRow(0, WAKE, round_, number))
    ]


def _filled(slot: list[WireRow], length: int, nothing: WireRow) -> list[WireRow]:
    return slot + [nothing] * (length - len(slot))


def _together(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionAll(other), frames)


def _work(plan: FragmentPlan, task: JobTask, form: GroupForm | None) -> ArrowFunction:
    """What Spark ships: steps with the users' functions in them, and what is to be done."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_fragment(plan, task, batches, form)

    return work


def _alone(plans: Sequence[FragmentPlan], task: JobTask) -> ArrowFunction:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_all_fragments(plans, task, batches)

    return work
