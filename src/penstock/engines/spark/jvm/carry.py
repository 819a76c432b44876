"""What becomes of a chain's rows in Python workers: they are carried on through fragment 0 as they come.

The frames of `native_frames.py` arrive here as Arrow batches; what leaves are wire rows like those of every
fragment, and how many rows had which fate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from penstock.accounts import Accounts
from penstock.engines import wire as failures
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.fragment_plan import FragmentPlan, RoundPlan
from penstock.engines.spark.fragments import Edge
from penstock.engines.spark.jvm.frames import ALIVE, FATE, LATE, NO_WINDOW, SEQ, TIME, JvmFrames
from penstock.engines.spark.jvm.groups import GroupForm
from penstock.engines.spark.jvm.partials import NativeParts
from penstock.engines.spark.jvm.partials import bucket as bucket_of
from penstock.engines.spark.jvm.pipeline import SourcePipeline, drops
from penstock.engines.spark.jvm.source import RemoteBatch
from penstock.engines.spark.read_placement import needed_columns, why_jvm_reads
from penstock.engines.spark.types import from_spark
from penstock.engines.spark.wire import FAILED, FATES, SCHEMA, SPARK_SCHEMA, report
from penstock.engines.spark.worker.files import FileReadPlan
from penstock.engines.spark.worker.task import keep_warm, resume_first_fragment, to_wire_batches
from penstock.frozen import dataclass
from penstock.operators.ends import Source
from penstock.operators.map import Filter
from penstock.operators.op import LATE as LATE_PORT
from penstock.operators.op import OUT
from penstock.plan.plan import Plan, Ref
from penstock.stages.rows.batch import Batch
from penstock.stages.window.store import ENDED, NEVER
from penstock.timing.bucket import BUCKETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Rows of a chain, as frames have them: the columns by place, time, perhaps seq and fate.

    ref      whose rows they are
    rank     of the source among several; None in a graph with one
    counted  whether these are all rows that the chain gives
    """

    source: str
    ref: Ref
    schema: pa.Schema
    rank: int | None
    numbered: bool
    fated: bool
    counted: bool


def carry_rows(
    plan: FragmentPlan, task: RowsTask, round_: RoundPlan, part: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Carry a chain's rows on through fragment 0, a batch at a time; failures are told as data."""
    work = resume_first_fragment(plan, part)
    for given in batches:
        batch, n_failed = _rows(given, task)
        fates = {"0": batch.num_rows if task.counted else 0, "-1": n_failed}
        sent = [report(FATES, round_.number, part, {"source": task.source, "fates": fates})]
        if n_failed == 0:
            try:
                sent += work.given(task.ref, batch, round_)
            except Exception as failure:
                sent = [report(FAILED, round_.number, part, failures.failure_to_dict(failure, work.at))]
        yield from to_wire_batches(sent)
    keep_warm(plan, work, part, "")


def _rows(given: pa.RecordBatch, task: RowsTask) -> tuple[Batch, int]:
    n_failed = 0
    if task.fated:
        fates = given.column(given.num_columns - 1)
        n_failed = int(pc.sum(pc.equal(fates, -1)).as_py() or 0)
    n = len(task.schema)
    rows = from_spark(given.select(list(range(n))), task.schema)
    times = np.asarray(given.column(n).to_numpy(zero_copy_only=False), np.int64)
    order = () if task.rank is None else (np.full(len(times), task.rank, np.int64),)
    if task.numbered:
        order = (*order, np.asarray(given.column(n + 1).to_numpy(zero_copy_only=False), np.int64))
    return Batch(rows, times, order), n_failed


# Chains in the JVM at work: a batch of files becomes wire rows, and counts become accounts.

Counts = Mapping[str, int]


class JvmSource:
    """One chain of a run.

    edge      where its parts go; None when it ends in rows
    in_parts  only windows read it, and they can be sent parts
    light     workers read it, and make parts of it at once
    """

    def __init__(
        self, spark: SparkSession, plan: Plan, chain: SourcePipeline, edge: Edge | None, *, in_parts: bool
    ) -> None:
        self.chain, self._plan, self._edge = chain, plan, edge
        self.frames = JvmFrames(spark, chain)
        self._parts = None if chain.window is None else NativeParts(chain.window)
        self._rank = plan.sources.index(chain.source) if len(plan.sources) > 1 else None
        self.by_workers = why_jvm_reads(plan, chain) is None
        self.light = self.by_workers and in_parts

    @property
    def file_form(self) -> FileReadPlan:
        """How workers read the files of the source."""
        op = self.chain.source.op
        assert isinstance(op, Source), "chains begin with a source"
        ref, schema, time = Ref(self.chain.source.name, OUT), op.reader.schema, op.resolve()
        if time is not None:
            time = replace(time, max_future=None)  # the driver has looked, by its own clock
        return FileReadPlan(ref, schema, needed_columns(self._plan, self.chain), time, self._rank)

    @property
    def fragment(self) -> int | None:
        """Where its groups go; None when it ends in rows."""
        return None if self._edge is None else self._edge.fragment

    def rows(self, batch: RemoteBatch, fragment: FragmentPlan, round_: RoundPlan) -> DataFrame | None:
        """Returns the rows of a round that leave the JVM as wire rows behind fragment 0, or None."""
        if self._parts is None or self.chain.window is None:
            frame = self.frames.frame(batch.files, numbered=True)
            return self._carried(frame, fragment, round_, self.chain.last, counted=True)
        late = Ref(self.chain.window.name, LATE_PORT)
        if not self._plan.is_read(late):
            return None
        frame = self.frames.frame(batch.files, numbered=True)
        missed = self._parts.late(frame, batch.least, self._watermark(round_))
        return (
            None
            if missed is None
            else self._carried(missed.drop(FATE), fragment, round_, late, counted=False)
        )

    def groups(self, batch: RemoteBatch, round_: RoundPlan, n_partitions: int) -> DataFrame:
        """The groups of a round, behind the columns of the wire."""
        assert self._parts is not None, "only chains that end in windows are grouped"
        assert self._edge is not None, "parts have an edge of their own"
        frame = self.frames.frame(batch.files, numbered=False)
        groups = self._parts.grouped(frame, batch.least, self._watermark(round_))
        numbers = {"fragment": self._edge.fragment, "edge": self._edge.number, "round": round_.number}
        bucket = bucket_of(self._parts.format.key)
        part = F.pmod(bucket, F.lit(n_partitions)) if n_partitions < BUCKETS else bucket
        return groups.select(
            *(F.lit(number).alias(name) for name, number in numbers.items()),
            part.alias("part"),
            F.lit(None).cast("binary").alias("body"),
            "*",
        )

    @property
    def form(self) -> GroupForm:
        """How workers make parts of the groups."""
        assert self._parts is not None, "only chains that end in windows are grouped"
        assert self._edge is not None, "parts have an edge of their own"
        assert self._edge.step is not None, "parts go to windows"
        shape, n_kinds = self._parts.format, len(self._parts.labels)
        edge, columns = self._edge, self._parts.columns
        source = self.chain.source.name
        return GroupForm(source, edge.number, self._edge.step, shape.schema, shape.key, columns, n_kinds)

    def _watermark(self, round_: RoundPlan) -> int:
        assert self.chain.window is not None, "only windows judge rows"
        return int(max(NEVER, min(ENDED, round_.advances[self.chain.window.name].before)))

    def accounts(self, batch: RemoteBatch, fates: Counts, missed: Counts) -> dict[str, Accounts]:
        """What became of the rows of a batch, step by step."""
        if batch.by_workers:
            return {}  # steps have counted for themselves
        n, found = batch.n_rows, {}
        arrived = sum(fates.get(str(fate), 0) for fate in (ALIVE, LATE, NO_WINDOW))
        alone = len(self.chain.droppers) == 1 or self._parts is None
        for place, step in enumerate(self.chain.steps):
            told = Accounts(rows_in=n)
            if drops(step):
                gone = n - arrived if alone else fates.get(str(place + 1), 0)
                setattr(told, "filtered" if isinstance(step.op, Filter) else "unmatched", gone)
                n -= gone
            told.passed = told.rows_out = n
            found[step.name] = told
        if self._parts is not None and self.chain.window is not None:
            labels = dict(enumerate(self._parts.labels))
            found[self.chain.window.name] = Accounts(
                rows_in=arrived,
                passed=fates.get(str(ALIVE), 0),
                late=fates.get(str(LATE), 0),
                no_window=fates.get(str(NO_WINDOW), 0),
                late_by_window={labels[int(kind)]: times for kind, times in missed.items() if times},
            )
        return found

    def _carried(
        self, frame: DataFrame, fragment: FragmentPlan, round_: RoundPlan, ref: Ref, *, counted: bool
    ) -> DataFrame:
        """Rows that Python workers take on from here."""
        schema = self._plan[ref.step].outputs[ref.port].schema
        ours = [name for name in (SEQ, FATE) if name in frame.columns]
        names = [*schema.names, TIME, *ours]
        chosen = frame.select(*(column(name).alias(str(place)) for place, name in enumerate(names)))
        task = RowsTask(self.chain.source.name, ref, schema, self._rank, SEQ in ours, FATE in ours, counted)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return carry_rows(fragment, task, round_, partition(), batches)

        return chosen.mapInArrow(work, SPARK_SCHEMA)


def beside(wire: DataFrame, groups: DataFrame) -> DataFrame:
    """Wire rows and groups as one frame: wire rows have nulls in the columns of groups."""
    extra = [field for field in groups.schema.fields if field.name not in SCHEMA.names]
    nulls = (F.lit(None).cast(field.dataType).alias(field.name) for field in extra)
    return wire.select(*SCHEMA.names, *nulls).unionAll(groups)


def partition() -> int:
    """The number of the partition that this worker is at."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.partitionId())
