"""The plan of `window_aggregate`: which operators of Spark a frame goes through on each execution path.

    batch   rows ─ groupBy(key, slice) ─ pack ─ exchange by group ─ windows
    stream  rows ─ groupBy(key, slice), closed by the watermark ─ pack ─ state operator ─ unpack
            └── in the JVM, on that path only ──┘

Everything is lazy, and made of public DataFrame operators.

`Frame` is a DataFrame as a stream: its columns in our types, its time, its key. Spark's TIMESTAMP is a
timestamp in UTC, TIMESTAMP_NTZ one without a zone. Only the columns that are needed are looked at: others may
have any type, and do not travel.

The watermark of a streaming frame is the user's, which Spark lets nobody set twice, or one of ours. Ours runs
on times moved by SHIFT, because Spark's starts at 1970 and what is before it is late. A user's runs on the
true times, so before 1970 everything is late there, as it is for Spark's own windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from penstock.caller import find_call_site
from penstock.engines.spark.closures import run_in_worker
from penstock.engines.spark.dataframes.window_task import (
    GROUP,
    RESULTS,
    SPARK_SCHEMA,
    ExecutionPath,
    WindowProcessor,
    WindowTask,
)
from penstock.engines.spark.engine import PIP_LINE
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.jvm_partials import (
    START,
    JvmPartials,
    in_some_window,
    long,
    slice_end,
    slice_start,
)
from penstock.engines.spark.read_placement import aggregate_columns
from penstock.engines.spark.session.py_files import ship
from penstock.engines.spark.session.settings import FIXED
from penstock.errors import EngineError, NotSupported, SchemaError, TimeError
from penstock.expr.types import canonical
from penstock.operators.aggregates import Fold
from penstock.operators.op import Stream, unknown_column
from penstock.operators.windows import Windows
from penstock.timing.units import LIMIT, Duration, spell, time_type
from penstock.timing.units import micros as length
from penstock.timing.windows import CountWindow

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_ZONE = "spark.sql.session.timeZone"
SHIFT = 2**60 // 1_000 * 1_000
"""In microseconds: times from 36,000 years before 1970 on come after 0."""
MARK = "spark.watermarkDelayMs"
"""By this Spark knows a column whose watermark it keeps."""
AT, CLOSES = "penstock_at", "closes"
_NODES = ("EventTimeWatermark", "UpdateEventTimeWatermarkColumn")


class Frame:
    """A DataFrame as the source of a window step."""

    def __init__(self, df: DataFrame) -> None:
        self.df, self.names = df, list(df.columns)
        conf = df.sparkSession.conf
        self.utc = str(conf.get(_ZONE)).lower() in FIXED[_ZONE].same
        self._exact = str(conf.get("spark.sql.caseSensitive")) == "true"

    def stream(self, keys: Sequence[str], time: str, op: Windows) -> Stream:
        """Return the columns that the step needs, as a stream; raise if one is missing or of no use."""
        aggregates = [aggregate_columns(aggregate) or () for aggregate in (op.aggregates or {}).values()]
        needed = [*keys, time, *(name for names in aggregates for name in names)]
        self.require(needed)
        self.require_time(time)
        names = [name for name in self.names if name in needed or (_reads_all(op) and self._fits(name))]
        schema = pa.schema([(name, self.type_of(name)) for name in names])
        stream = Stream(schema, time_type(schema.field(time).type, None, time), tuple(keys))
        stream.require_key(*keys)
        return stream

    def require(self, names: Iterable[Any]) -> None:
        """Raise a SchemaError unless each is the name of one column."""
        for name in names:
            if not isinstance(name, str):
                raise SchemaError(f"{name!r:.80} is not the name of a column", hint='name it: keys=["page"]')
            if name not in self.names:
                raise unknown_column(name, self.names)
            alike = [n for n in self.names if n == name or (not self._exact and n.lower() == name.lower())]
            if len(alike) > 1:
                raise SchemaError(
                    f'the frame has {len(alike)} columns that Spark takes for "{name}"',
                    detail=f"they are {', '.join(alike)}",
                    hint="rename or drop all but one of them",
                )

    def require_time(self, time: str) -> pa.DataType:
        """Return the type of the time column; raise a TimeError if it is no timestamp."""
        type_ = self.df.schema[self.names.index(time)].dataType.simpleString()
        if type_ not in ("timestamp", "timestamp_ntz"):
            convert = "F.timestamp_millis" if type_ == "bigint" else "F.to_timestamp"
            raise TimeError(
                f'time column "{time}" is of type {type_}, not a timestamp',
                hint=f'make it one: df.withColumn("{time}", {convert}("{time}"))',
            )
        return self.type_of(time)

    def type_of(self, name: str) -> pa.DataType:
        """Return the type of a column, as ours; raise a SchemaError for one that rows cannot hold."""
        type_ = self.df.schema[self.names.index(name)].dataType
        try:
            return canonical(to_arrow_type(type_, timezone="UTC"), name)
        except PySparkException as cause:
            raise SchemaError(
                f'column "{name}" has type {type_.simpleString()}, which rows cannot hold',
                hint=f'cast it first, e.g. df.withColumn("{name}", F.col("{name}").cast("string"))',
            ) from cause

    def _fits(self, name: str) -> bool:
        """Return whether a column that nobody names can travel along."""
        try:
            self.require([name])
            self.type_of(name)
        except SchemaError:
            return False
        return True


def _reads_all(op: Windows) -> bool:
    """Return whether columns that nobody names matter: to a fold over rows, or for the order of rows."""
    aggregates = (op.aggregates or {}).values()
    folds = [aggregate for aggregate in aggregates if isinstance(aggregate, Fold)]
    if any(fold.columns is None or not fold.commutative for fold in folds):
        return True
    counted = any(isinstance(spec, CountWindow) for _, spec in op.specs)
    return counted or any(aggregate.ordered for aggregate in aggregates)


def micros(name: str) -> Column:
    """Return a timestamp column as microseconds; one without a zone is read as UTC, in any session."""
    return F.unix_micros(column(name))


def has_valid_time(name: str) -> Column:
    """Return where a row has a time that can be computed with."""
    return micros(name).between(long(-LIMIT), long(LIMIT))


def result_schema(schema: pa.Schema) -> StructType:
    """Return the schema of results in Spark: timestamps without a zone stay so."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def plan_batch(frame: Frame, task: WindowTask) -> DataFrame:
    """Return all windows of a batch frame: every row is on time."""
    ship(frame.df.sparkSession.sparkContext)
    if task.path is ExecutionPath.JVM:
        partials = JvmPartials(task.op, task.up)
        rows = partials.group(_rows_in_windows(frame.df, task, partials), micros(task.time))
    else:
        rows = _needed_columns(frame.df.where(has_valid_time(task.time)), task)
    packed = rows.mapInArrow(run_in_worker(task.pack_by_group), SPARK_SCHEMA).repartition(F.col(GROUP))
    return packed.mapInArrow(run_in_worker(task.compute_windows), result_schema(task.results))


def plan_stream(frame: Frame, task: WindowTask, delay: Duration | None) -> DataFrame:
    """Return the windows of a streaming frame, as the watermark passes them; for append mode."""
    df, delay_ms, shift = add_watermark(frame, task.time, delay)
    _need_state_store(frame)
    ship(frame.df.sparkSession.sparkContext)
    if task.path is ExecutionPath.JVM:
        rows = _aggregate_closed(df, delay_ms, shift, task)
    else:
        rows = _needed_columns(df, task)
    # Why: behind mapInArrow Spark no longer knows which column is time, and so drops none of them as late.
    packed = rows.mapInArrow(run_in_worker(task.pack_by_group), SPARK_SCHEMA).groupBy(GROUP)
    results = packed.transformWithStateInPandas(
        WindowProcessor(task, shift), RESULTS, outputMode="Append", timeMode="EventTime"
    )
    windows = results.mapInArrow(run_in_worker(task.unpack_results), result_schema(task.results))
    return StreamResults(windows, "window_aggregate")


class AppendWriter(DataStreamWriter):  # type: ignore[misc]  # pyspark is untyped to mypy here
    """Writes results as they leave: once, when they are final."""

    def __init__(self, results: StreamResults) -> None:
        super().__init__(results)
        self._verb = results.verb

    def outputMode(self, outputMode: str) -> AppendWriter:
        """Set the mode, which is append; raise NotSupported for any other: Spark says less, and later."""
        if str(outputMode).lower() != "append":
            raise NotSupported(
                f"output mode {outputMode!r} is not one of {self._verb}'s",
                where=find_call_site(),
                detail="what leaves a stream leaves once and is final",
                hint='use .outputMode("append"), or leave it out',
            )
        super().outputMode(outputMode)
        return self


class StreamResults(ClassicDataFrame):  # type: ignore[misc]  # as above
    """What a verb makes of a stream. Frames that are derived from it are plain: Spark checks their mode."""

    def __init__(self, results: DataFrame, verb: str) -> None:
        super().__init__(results._jdf, results.sparkSession)
        self.verb = verb

    @property
    def writeStream(self) -> AppendWriter:
        """Return a writer that knows the mode in which windows leave."""
        return AppendWriter(self)


def add_watermark(frame: Frame, time: str, delay: Duration | None) -> tuple[DataFrame, int, int]:
    """Return the frame with its own watermark, or with one that runs `delay` behind its greatest time.

    Also its delay in milliseconds, and by how many microseconds the times are moved that it runs on.
    """
    own = frame.df.schema[frame.names.index(time)].metadata.get(MARK)
    if own is not None:
        if delay is not None:
            raise TimeError(
                f'both delay={delay!r} and a watermark on "{time}" of {spell(int(own) * 1_000)} are given',
                detail="Spark keeps one watermark, and the frame's own comes first",
                hint="leave delay out, or leave withWatermark out",
            )
        return frame.df.where(has_valid_time(time)), int(own), 0
    _refuse_other_watermark(frame, time)
    if delay is None:
        raise TimeError(
            "a streaming frame needs a watermark, and this one has none",
            detail="without one nothing could ever leave",
            hint=f'say how late rows may come, delay="2 s", or call df.withWatermark("{time}", "2 seconds")',
        )
    us = length(delay, subject="delay")
    if us < 0 or us % 1_000:
        raise TimeError(
            f"delay {spell(us)} is not a number of milliseconds",
            detail="the watermark of a streaming frame is Spark's, in whole milliseconds",
            hint=f'use delay="{max(us, 0) // 1_000 + 1} ms"',
        )
    at = F.timestamp_micros(micros(time) + long(SHIFT)).alias(AT)
    df = frame.df.where(has_valid_time(time)).select("*", at).withWatermark(AT, f"{us // 1_000} milliseconds")
    return df, us // 1_000, SHIFT


def _refuse_other_watermark(frame: Frame, time: str) -> None:
    watermarked = [field.name for field in frame.df.schema if MARK in field.metadata]
    if watermarked or _has_watermark(frame.df._jdf.queryExecution().analyzed()):
        on = f'on "{watermarked[0]}"' if watermarked else "on a column that is gone"
        raise TimeError(
            f'the frame has a watermark {on}, and none on its time "{time}"',
            detail="Spark refuses a second one",
            hint=f'use time="{watermarked[0]}"' if watermarked else f'call withWatermark("{time}", ...) last',
        )


def _has_watermark(plan: Any) -> bool:
    if plan.nodeName() in _NODES:
        return True
    children = plan.children()
    return any(_has_watermark(children.apply(place)) for place in range(children.size()))


def _aggregate_closed(df: DataFrame, delay_ms: int, shift: int, task: WindowTask) -> DataFrame:
    """Return the slices that the watermark has closed, from Spark's own stateful aggregation.

    Grouping by the moment of closing and not by Spark's window() keeps a row to one group, and its state to
    two integers and the cells of the accumulators.
    """
    partials = JvmPartials(task.op, task.up)
    after = long(task.windows.lateness + shift)
    end = slice_end(micros(task.time), partials.slicing)
    # Why: by this mark Spark closes the groups of the column by the watermark.
    closes = F.timestamp_micros(end + after).alias(CLOSES, metadata={MARK: delay_ms})
    rows = partials.select_inputs(_rows_in_windows(df, task, partials), micros(task.time), closes)
    start = slice_start(F.unix_micros(CLOSES) - after - long(1), partials.slicing).alias(START)
    cells = partials.cells()
    groups = rows.groupBy(*partials.keys, CLOSES).agg(*cells)
    return groups.select(*partials.keys, start, *(f"p{place}" for place in range(len(cells))))


def _rows_in_windows(df: DataFrame, task: WindowTask, partials: JvmPartials) -> DataFrame:
    return df.where(has_valid_time(task.time) & in_some_window(micros(task.time), partials.slicing))


def _needed_columns(df: DataFrame, task: WindowTask) -> DataFrame:
    """Return the columns by place: mapInArrow cannot find one by a name with a dot in it."""
    return df.select(*(column(name).alias(f"c{i}") for i, name in enumerate(task.up.schema.names)))


def _need_state_store(frame: Frame) -> None:
    """Raise unless everything is there that Spark's state operator for Python needs."""
    if _major("protobuf") is None or _major("pandas") not in (1, 2):
        versions = {name: _major(name) for name in ("protobuf", "pandas")}
        raise NotSupported(
            "windows of streaming frames need protobuf, and pandas before 3",
            detail=", ".join(
                f"{name} is not installed" if major is None else f"{name} {major} is installed"
                for name, major in versions.items()
            ),
            hint=PIP_LINE,
        )
    if frame.df.sparkSession.conf.get(PROVIDER) != ROCKSDB:
        raise EngineError(
            "windows of streaming frames keep their state in RocksDB, and the session has another store",
            detail="Spark's state operator for Python works with no other",
            hint=f'spark.conf.set("{PROVIDER}", "{ROCKSDB}"), before the query starts',
        )


def _major(package: str) -> int | None:
    try:
        return int(metadata.version(package).split(".")[0])
    except metadata.PackageNotFoundError:
        return None
