"""A chain as DataFrames: the files of a batch, their times, and every step as Columns, with fates of rows.

As long as no row can fail and at most one step drops rows, there is nothing in the plan that the program does
not say: it is what one would write by hand. Otherwise a column of fates goes along: rows that failed, and
those dropped where each step's share must be known, are marked and not dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as kind
from pyspark.sql import Column
from pyspark.sql import functions as F

from penstock.connect.readers.spark import SparkReader
from penstock.engines.spark.expressions import SharedColumns, lower_spark
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.expressions.spark_value import any_failed
from penstock.engines.spark.jvm.pipeline import OURS, SourcePipeline, drops
from penstock.engines.spark.jvm.source import SourceFile, TimeRange
from penstock.engines.spark.types import spark_schema, to_spark
from penstock.errors import PenstockError
from penstock.expr import Expr
from penstock.operators.columns import WithColumns
from penstock.operators.ends import Source
from penstock.operators.function import Expressions
from penstock.operators.map import Filter
from penstock.operators.op import OUT
from penstock.operators.table_join import TableJoin
from penstock.plan.plan import Step
from penstock.timing.column import TimeType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME, SEQ, FATE = f"{OURS}time", f"{OURS}seq", f"{OURS}fate"
ALIVE, FAILED, LATE, NO_WINDOW = 0, -1, -2, -3
"""Fates of rows; a row dropped by step i of the chain has i + 1."""


class JvmFrames:
    """The frames of one chain; made once for a run, and applied to the files of each batch."""

    def __init__(self, spark: SparkSession, chain: SourcePipeline) -> None:
        assert isinstance(chain.source.op, Source), "chains begin with a source"
        self._spark, self._chain = spark, chain
        self._reader = chain.source.op.reader
        self._schema = self._reader.schema
        self._time = chain.source.op.resolve()
        self._counts = chain.window is not None and len(chain.droppers) > 1
        self._tables: dict[str, DataFrame] = {}

    @property
    def of_frame(self) -> bool:
        """Whether the source is a DataFrame, which is one batch."""
        return isinstance(self._reader, SparkReader)

    def look(self, files: Sequence[SourceFile]) -> TimeRange:
        """The times of some files, or of the DataFrame, by a small job."""
        raw = F.lit(0)
        if self._time is not None and self._time.column is not None:
            raw = whole(column(self._time.column), self._time.type.type)
        counts = F.count(raw), F.count(F.lit(1))
        found = self._read(files).agg(F.min(raw), F.max(raw), *counts).head()
        assert found is not None, "an aggregate without a key gives one row"
        least, greatest, n, n_rows = found
        return TimeRange(least or 0, greatest or 0, n_rows - n, n_rows)

    def frame(self, files: Sequence[SourceFile], *, numbered: bool) -> DataFrame:
        """The rows behind the last step, with their times; with their numbers too if these are wanted."""
        return self.applied(self._source(files, numbered=numbered))

    def applied(self, frame: DataFrame) -> DataFrame:
        """All steps on the rows of the source."""
        for place, step in enumerate(self._chain.steps):
            frame = self._step(frame, place, step)
        return frame

    def _source(self, files: Sequence[SourceFile], *, numbered: bool) -> DataFrame:
        time = F.lit(0).cast("long")
        if self._time is not None and self._time.column is not None:
            time = micros(column(self._time.column), self._time.type)
        columns = [column(name) for name in self._schema.names]
        if not numbered or isinstance(self._reader, SparkReader):
            return self._read(files).select(*columns, time.alias(TIME))
        frames = [
            self._read([file]).select(
                *columns,
                time.alias(TIME),
                (F.col("_metadata.row_index") + F.lit(file.start).cast("long")).alias(SEQ),
            )
            for file in files
        ]
        return reduce(lambda one, other: one.unionAll(other), frames)

    def _read(self, files: Sequence[SourceFile]) -> DataFrame:
        if isinstance(self._reader, SparkReader):
            return in_session(self._reader.frame, self._spark)
        reader = self._spark.read.schema(spark_schema(self._schema)).option("__globPaths__", "false")
        return reader.parquet(*(file.path for file in files))

    def _step(self, frame: DataFrame, place: int, step: Step) -> DataFrame:
        op, up = step.op, step.up.schema
        if isinstance(op, WithColumns):
            return _mapped(frame, op.how, up, step.outputs[OUT].schema)
        if isinstance(op, Filter):
            assert isinstance(op.how, Expr), "only expressions are in a chain"
            parts = SharedColumns(frame)
            lowered = lower_spark(op.how, up, shared=parts)
            return self._dropped(parts.rows, place, lowered.value, lowered.failed)
        assert isinstance(op, TableJoin), "only such steps are in a chain"
        return self._joined(frame, place, step, op)

    def _joined(self, frame: DataFrame, place: int, step: Step, op: TableJoin) -> DataFrame:
        if step.name not in self._tables:
            self._tables[step.name] = self._table(step, op)
        table = self._tables[step.name]
        keys = [f"{OURS}key{i}" for i in range(len(op.columns))]
        named = [column(name).alias(key) for name, key in zip(op.columns, keys, strict=True)]
        added = [column(field.name) for field in op.new_fields]
        right = F.broadcast(table.select(*named, *added))
        on = [column(name) == F.col(f"`{key}`") for name, key in zip(op.columns, keys, strict=True)]
        plainly = drops(step) and not self._counts and FATE not in frame.columns
        joined = frame.join(right, on, "inner" if plainly else "left")
        if drops(step) and not plainly:
            matched = F.col(f"`{keys[0]}`").isNotNull()
            joined = self._dropped(joined, place, matched, None)
        return joined.drop(*keys)

    def _table(self, step: Step, op: TableJoin) -> DataFrame:
        try:
            return self._spark.createDataFrame(to_spark(op.load()))
        except PenstockError as failure:
            raise failure.at(step.name, step.where) from failure

    def _dropped(self, frame: DataFrame, place: int, stays: Column, failed: Column | None) -> DataFrame:
        """The rows that stay; the others are gone, or marked where that must be known."""
        if failed is None and not self._counts and FATE not in frame.columns:
            return frame.where(stays)
        lost = F.lit(None).cast("boolean") if failed is None else failed
        fate = (
            F.when(_fate(frame) != ALIVE, _fate(frame))
            .when(lost, F.lit(FAILED))
            .when(stays, F.lit(ALIVE))
            .otherwise(F.lit(place + 1))
        )
        marked = frame.withColumn(FATE, fate)
        return marked if self._counts else marked.where(F.col(f"`{FATE}`") <= ALIVE)


def in_session(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """A DataFrame of another session in this one: what is computed from it follows this one's settings."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    made = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        spark._jsparkSession, frame._jdf.queryExecution().analyzed()
    )
    return Classic(made, spark)


def _mapped(frame: DataFrame, how: Expressions, up: pa.Schema, down: pa.Schema) -> DataFrame:
    parts = SharedColumns(frame)
    lowered = {name: lower_spark(expr, up, shared=parts) for name, expr in how.columns}
    frame = parts.rows
    failed = any_failed(*(each.failed for each in lowered.values()))
    columns = [lowered[name].value.alias(name) if name in lowered else column(name) for name in down.names]
    columns += [F.col(f"`{name}`") for name in (TIME, SEQ) if name in frame.columns]
    if failed is not None:
        columns.append(marked(frame, failed, FAILED))
    elif FATE in frame.columns:
        columns.append(F.col(f"`{FATE}`"))
    return frame.select(*columns)


def marked(frame: DataFrame, where: Column, fate: int) -> Column:
    """The fate of each row, with another one for living rows where `where` is true."""
    alive = _fate(frame) == ALIVE
    return F.when(alive & where, F.lit(fate)).otherwise(_fate(frame)).alias(FATE)


def _fate(frame: DataFrame) -> Column:
    return F.col(f"`{FATE}`") if FATE in frame.columns else F.lit(ALIVE)


def micros(value: Column, time: TimeType) -> Column:
    """A time column in microseconds; it has been seen to be within the limits."""
    raw = whole(value, time.type)
    if time.unit == "ns":
        thousand = F.lit(1000).cast("long")
        return F.call_function("div", raw - F.pmod(raw, thousand), thousand)
    return raw if time.step == 1 else raw * F.lit(time.step).cast("long")


def whole(value: Column, type_: pa.DataType) -> Any:
    """Integers, bools, dates and timestamps as the BIGINT below them."""
    if kind.is_timestamp(type_):
        return F.unix_micros(value)
    if kind.is_date32(type_):
        return F.unix_date(value).cast("long")
    if kind.is_boolean(type_):
        return value.cast("int").cast("long")
    return value if kind.is_int64(type_) else value.cast("long")
