"""Sources that the driver does not read, and what the JVM does for them.

The JVM reads DataFrames, and files behind which Spark's own SQL follows. The expression steps behind the
source are Columns of the same DataFrame; then the rows are handed over to fragment 0, a batch at a time. As
long as no row can fail and at most one filter drops rows, there is nothing in the plan that the program does
not say: it is what one would write by hand. Otherwise a column of outcomes goes along: rows that failed, and
those that further filters drop, are marked so that they can be counted.

A DataFrame straight before time windows is aggregated by Spark's own grouping instead, if that counts every
row right (`read_placement.grouped_windows`): few rows then leave the JVM.
(Reading 4 million rows into 3 keys took 1.9 s of processor time so, and 3.4 s with rows handed over.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.accounts import Accounts
from penstock.connect.conversion import add_null_columns
from penstock.connect.readers.spark import SparkReader
from penstock.engines.spark.expressions import SharedColumns, lower_spark
from penstock.engines.spark.expressions.columns import any_failed, column
from penstock.engines.spark.file_splits import (
    FileReadPlan,
    RemoteBatch,
    SourceFile,
    rank_column,
)
from penstock.engines.spark.fragments import Edge, Fragments, JobTask, RoundPlan
from penstock.engines.spark.jvm_partials import JvmPartials, long, to_long
from penstock.engines.spark.read_placement import (
    OURS,
    SourcePipeline,
    grouped_windows,
    source_columns,
    used_columns,
)
from penstock.engines.spark.source_task import SourceSplit
from penstock.engines.spark.tasks import (
    ALIVE,
    FAILED,
    abort_task,
    begin_task,
    finish_task,
    load_plans,
    pack_source_rows,
    partition_id,
    report_failure,
    report_outcomes,
    to_wire_batches,
)
from penstock.engines.spark.types import from_spark, spark_schema
from penstock.engines.spark.wire import SPARK_SCHEMA, Kind, WirePartitioner, WireRow, report
from penstock.expr import Expr
from penstock.frozen import Frozen
from penstock.operators.function import Expressions
from penstock.operators.op import OUT
from penstock.operators.rows import Filter, WithColumns
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref, Step
from penstock.stages.rows.batch import Batch
from penstock.timing.units import TimeType
from penstock.timing.windows import BEFORE_ALL

if TYPE_CHECKING:
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

_LIGHT_ROWS = 16
"""So many rows count as one where partials of windows are made as they are read."""
Observe = Callable[["DataFrame", int], "DataFrame"]
"""Returns rows that are counted on their way into a step, whose place it is given."""
TIME, SEQ, OUTCOME = f"{OURS}time", f"{OURS}seq", f"{OURS}outcome"


class TimeRange(Frozen):
    """The least and greatest value of a time column, in its own unit, and the number of nulls and rows."""

    least: int
    greatest: int
    n_nulls: int
    n_rows: int


class RemoteSource:
    """One source of a run that workers or the JVM read, with the expression steps behind it.

    by_workers   Python workers read it; else the JVM does
    rows_as_one  how many rows count as one when a micro-batch is filled, because there is little to do
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        pipeline: SourcePipeline,
        fragments: Fragments,
    ) -> None:
        source = pipeline.source
        self._spark, self._plan, self.pipeline = spark, plan, pipeline
        self._reader, self._time = source.as_source.reader, source.as_source.resolve()
        self._rank = plan.sources.index(source) if len(plan.sources) > 1 else None
        self.by_workers = pipeline.jvm_reason is None
        readers = [name for name, _ in plan.readers(pipeline.last)]
        windows = None if self.by_workers else grouped_windows(plan, pipeline, fragments)
        light = self.by_workers and all(name in fragments.partials for name in readers)
        self.rows_as_one = _LIGHT_ROWS if light or windows is not None else 1
        self._windows = None if windows is None else (windows, fragments.partials[windows.name])

    @property
    def reads_dataframe(self) -> bool:
        """Return whether the source is a DataFrame, which is one batch."""
        return isinstance(self._reader, SparkReader)

    @property
    def read_plan(self) -> FileReadPlan:
        """Return how workers read the files of the source."""
        source, time = self.pipeline.source, self._time
        if time is not None:
            time = replace(time, max_future=None)  # the driver has checked, by its own clock
        used = source_columns(self._plan, source)
        return FileReadPlan(Ref(source.name, OUT), self._reader.schema, used, time, self._rank)

    def scan_times(self, files: Sequence[SourceFile]) -> TimeRange:
        """Return the range of times in some files, or in the DataFrame if there are none, by a small job."""
        raw = F.lit(0)
        if self._time is not None and self._time.column is not None:
            raw = to_long(column(self._time.column), self._time.type.type)
        counts = F.count(raw), F.count(F.lit(1))
        row = self._read(files).agg(F.min(raw), F.max(raw), *counts).head()
        assert row is not None, "an aggregate without a key gives one row"
        least, greatest, n, n_rows = row
        return TimeRange(least or 0, greatest or 0, n_rows - n, n_rows)

    def wire_rows(
        self, batch: RemoteBatch, round_: RoundPlan, task: JobTask, plans: Broadcast[bytes]
    ) -> DataFrame:
        """Return what leaves fragment 0 for the rows of a round, as wire rows."""
        window = self._windows
        if window is not None and round_.advances[window[0].name].before == BEFORE_ALL:
            frame = self.frame(batch.files, numbered=False)
            if OUTCOME not in frame.columns:
                return self._group(frame, round_, *window, task.n_partitions)
        return self._handed_over(self.frame(batch.files, numbered=True), round_, task, plans)

    def accounts(self, batch: RemoteBatch, outcomes: Mapping[int, int]) -> dict[str, Accounts]:
        """Return what became of the rows of a batch in the JVM, step by step."""
        if batch.by_workers:
            return {}  # the steps have counted for themselves
        n_filtered = {place: outcomes.get(place, 0) for place in self.filters[1:]}
        if self.filters:
            n_filtered[self.filters[0]] = batch.n_rows - sum(outcomes.values())
        return self.count_steps(batch.n_rows, n_filtered)

    @property
    def filters(self) -> list[int]:
        """Return the places of the filters among the steps, from 1 on."""
        return [n for n, step in enumerate(self.pipeline.steps, 1) if isinstance(step.op, Filter)]

    def count_steps(self, n_rows: int, n_filtered: Mapping[int, int]) -> dict[str, Accounts]:
        """Return what became of rows, step by step, of which filters dropped so many, by their places."""
        accounts = {}
        for place, step in enumerate(self.pipeline.steps, 1):
            filtered = n_filtered.get(place, 0)
            n_left = n_rows - filtered
            accounts[step.name] = Accounts(rows_in=n_rows, filtered=filtered, passed=n_left, rows_out=n_left)
            n_rows = n_left
        return accounts

    def frame(
        self, files: Sequence[SourceFile], *, numbered: bool, observe: Observe | None = None
    ) -> DataFrame:
        """Return the rows behind the last step, with their times.

        numbered  with their numbers too
        observe   is called before a filter that is not the first; else that marks the rows that it drops
        """
        frame, filtered = self._source(files, numbered=numbered), False
        for place, step in enumerate(self.pipeline.steps, 1):
            op, up = step.op, step.up.schema
            if isinstance(op, Filter):
                assert isinstance(op.how, Expr), "only expressions are in a pipeline"
                if observe is not None and filtered:
                    frame = observe(frame, place)
                frame = _filter(frame, op.how, up, place, counted=filtered and observe is None)
                filtered = True
            else:
                assert isinstance(op, WithColumns), "only such steps are in a pipeline"
                frame = _with_columns(frame, op.how, up, step.outputs[OUT].schema)
        return frame

    def _source(self, files: Sequence[SourceFile], *, numbered: bool) -> DataFrame:
        time = long(0)
        if self._time is not None and self._time.column is not None:
            time = to_micros(column(self._time.column), self._time.type)
        columns = [column(name) for name in self._reader.schema.names]
        if not numbered or isinstance(self._reader, SparkReader):
            return self._read(files).select(*columns, time.alias(TIME))
        frames = [
            self._read([file]).select(
                *columns,
                time.alias(TIME),
                (F.col("_metadata.row_index") + long(file.start)).alias(SEQ),
            )
            for file in files
        ]
        return reduce(lambda one, other: one.unionAll(other), frames)

    def _read(self, files: Sequence[SourceFile]) -> DataFrame:
        if isinstance(self._reader, SparkReader):
            return in_session(self._reader.frame, self._spark)
        reader = self._spark.read.schema(spark_schema(self._reader.schema)).option("__globPaths__", "false")
        return reader.parquet(*(file.path for file in files))

    def _group(
        self, frame: DataFrame, round_: RoundPlan, step: Step, edge: Edge, n_partitions: int
    ) -> DataFrame:
        """Return partials by Spark's own grouping, as wire rows for the windows behind the exchange."""
        assert isinstance(step.op, Windows), "only windows have partials"
        source, op, up = self.pipeline.source.name, step.op, step.up
        name = step.name

        def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            partials, here = JvmPartials(op, up), partition_id()
            partitioner = WirePartitioner(partials.format.key, partials.format.schema)
            for groups in batches:
                n_rows = int(pc.sum(groups.column(len(partials.keys) + 1)).as_py() or 0)
                counts = Accounts(rows_in=n_rows, passed=n_rows).to_dict()
                output = [
                    report_outcomes(source, {ALIVE: n_rows}, round_, here),
                    report(Kind.ACCOUNTS, round_.number, here, {name: counts}),
                    *partitioner.pack(edge, partials.to_batch(groups), round_.number, here, n_partitions),
                ]
                yield from to_wire_batches(output)

        return JvmPartials(op, up).group(frame, column(TIME)).mapInArrow(pack, SPARK_SCHEMA)

    def _handed_over(
        self, frame: DataFrame, round_: RoundPlan, task: JobTask, plans: Broadcast[bytes]
    ) -> DataFrame:
        """Return what fragment 0, in Python workers, makes of rows of the pipeline's last step."""
        ref = self.pipeline.last
        schema, used = self._plan[ref.step].outputs[ref.port].schema, used_columns(self._plan, ref)
        names = [name for name in schema.names if used is None or name in used]
        ours = [name for name in (SEQ, OUTCOME) if name in frame.columns]
        columns = [column(name).alias(str(place)) for place, name in enumerate([*names, TIME, *ours])]
        source = self.pipeline.source.name
        rows = HandedOverRows(schema, tuple(names), self._rank, SEQ in ours, OUTCOME in ours)

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return to_wire_batches(_run_handed_over(rows, batches))

        def _run_handed_over(rows: HandedOverRows, batches: Iterator[pa.RecordBatch]) -> Iterator[WireRow]:
            plan, here = load_plans(plans.value)[0], partition_id()
            work, failed = begin_task(plan, here, task), False
            for columns in batches:
                batch, outcomes = rows.to_batch(columns)
                yield report_outcomes(source, outcomes, round_, here)
                failed = failed or bool(outcomes.get(FAILED))
                if failed:
                    continue
                try:
                    yield from work.run_rows(ref, batch, round_)
                except Exception as failure:
                    failed = True
                    yield report_failure(work, failure, round_, here)
            if failed:
                abort_task(work)
            else:
                yield from finish_task(plan, work, task)

        return frame.select(*columns).mapInArrow(run, SPARK_SCHEMA)


def hand_over(frame: DataFrame, split: SourceSplit, plans: Broadcast[bytes]) -> DataFrame:
    """Return the rows of a DataFrame as a source stage in Python workers gives them, as wire rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, here = load_plans(plans.value)[0], partition_id()
        rows = plan.stages[split.source].read_rows(split, batches, here)
        return to_wire_batches(pack_source_rows(plan, split.source, rows, here))

    return frame.mapInArrow(run, SPARK_SCHEMA)


class HandedOverRows(Frozen):
    """Rows from the JVM: columns by place, then the time, and perhaps number and outcome.

    schema  of the port whose rows they are
    used    the columns that travel; others are nulls
    rank    of the source among several; None in a graph with one
    """

    schema: pa.Schema
    used: tuple[str, ...]
    rank: int | None
    numbered: bool
    with_outcomes: bool

    def to_batch(self, columns: pa.RecordBatch) -> tuple[Batch, dict[int, int]]:
        """Return the rows that are alive, and how many had which outcome."""
        outcomes = {ALIVE: columns.num_rows}
        if self.with_outcomes:
            outcome = columns.column(columns.num_columns - 1)
            outcomes = {
                counted["values"]: counted["counts"] for counted in pc.value_counts(outcome).to_pylist()
            }
            columns = columns.filter(pc.equal(outcome, ALIVE))
        n = len(self.used)
        types = pa.schema([self.schema.field(name) for name in self.used])
        rows = from_spark(columns.select(list(range(n))), types) if n else columns.select([])
        times, *numbers = (
            np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
            for column in columns.columns[n : n + 1 + self.numbered]
        )
        rows = add_null_columns(rows, self.schema, len(times))
        return Batch(rows, times, (*rank_column(self.rank, len(times)), *numbers)), outcomes


def _filter(frame: DataFrame, how: Expr, up: pa.Schema, place: int, *, counted: bool) -> DataFrame:
    """Return the rows that pass a filter; if they are to be `counted`, the others too, marked."""
    shared = SharedColumns(frame)
    lowered = lower_spark(how, up, shared=shared)
    frame = shared.rows
    if lowered.failed is None and not counted and OUTCOME not in frame.columns:
        return frame.where(lowered.value)
    failed = F.lit(None).cast("boolean") if lowered.failed is None else lowered.failed
    outcome = (
        F.when(_outcome(frame) != ALIVE, _outcome(frame))
        .when(failed, F.lit(FAILED))
        .when(lowered.value, F.lit(ALIVE))
        .otherwise(F.lit(place))
    )
    marked = frame.withColumn(OUTCOME, outcome)
    return marked if counted else marked.where(column(OUTCOME) != place)


def _with_columns(frame: DataFrame, how: Expressions, up: pa.Schema, down: pa.Schema) -> DataFrame:
    shared = SharedColumns(frame)
    lowered = {name: lower_spark(expr, up, shared=shared) for name, expr in how.columns}
    frame = shared.rows
    failed = any_failed(*(value.failed for value in lowered.values()))
    columns = [lowered[name].value.alias(name) if name in lowered else column(name) for name in down.names]
    columns += [column(name) for name in (TIME, SEQ) if name in frame.columns]
    if failed is not None:
        fails = (_outcome(frame) == ALIVE) & failed
        columns.append(F.when(fails, F.lit(FAILED)).otherwise(_outcome(frame)).alias(OUTCOME))
    elif OUTCOME in frame.columns:
        columns.append(column(OUTCOME))
    return frame.select(*columns)


def _outcome(frame: DataFrame) -> Column:
    return column(OUTCOME) if OUTCOME in frame.columns else F.lit(ALIVE)


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return a DataFrame of another session in this one, whose settings what is computed from it follows."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        spark._jsparkSession, frame._jdf.queryExecution().analyzed()
    )
    return Classic(rows, spark)


def to_micros(value: Column, time: TimeType) -> Column:
    """Return a time column in microseconds; it is known to be within the limits."""
    raw = to_long(value, time.type)
    if time.unit == "ns":
        return F.call_function("div", raw - F.pmod(raw, long(1000)), long(1000))
    return raw if time.step == 1 else raw * long(time.step)
