"""The plan of `window_aggregate`: which operators of Spark a frame goes through on each execution path.

    batch   rows ─ groupBy(key, slice) ─ pack ─ exchange by group ─ windows
    stream  rows ─ groupBy(key, slice), closed by the watermark ─ pack ─ state operator ─ unpack
            └── in the JVM, on that path only ──┘

Everything is lazy, and made of public DataFrame operators.
"""

from __future__ import annotations

from importlib import metadata

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engines.spark.dataframes.batches import (
    GROUP,
    SPARK_SCHEMA,
    compute_windows,
    pack_by_group,
    unpack_results,
)
from penstock.engines.spark.dataframes.frame import (
    CLOSES,
    Frame,
    WatermarkedFrame,
    add_watermark,
    closing_time,
    has_valid_time,
    micros,
    result_schema,
)
from penstock.engines.spark.dataframes.window_task import ExecutionPath, WindowTask
from penstock.engines.spark.engine import PIP_LINE
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.jvm.partials import (
    START,
    JvmPartials,
    in_some_window,
    long,
    slice_end,
    slice_start,
)
from penstock.engines.spark.session.session import ship
from penstock.errors import EngineError, NotSupported
from penstock.timing.units import Duration

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def plan_batch(frame: Frame, task: WindowTask) -> DataFrame:
    """Returns all windows of a batch frame: every row is on time."""
    _ship(frame)
    if task.path is ExecutionPath.JVM:
        partials = task.jvm_partials()
        start = slice_start(micros(task.time), partials.slicing).alias(START)
        rows = _inputs(frame.df, task, partials, start)
        rows = rows.groupBy(*partials.keys, START).agg(*partials.cells())
    else:
        rows = _needed_columns(frame.df.where(has_valid_time(task.time)), task)
    packed = rows.mapInArrow(pack_by_group(task), SPARK_SCHEMA).repartition(F.col(GROUP))
    return packed.mapInArrow(compute_windows(task), result_schema(task.results))


def plan_stream(frame: Frame, task: WindowTask, delay: Duration | None) -> DataFrame:
    """Returns the windows of a streaming frame, as the watermark passes them; for append mode."""
    watermarked = add_watermark(frame, task.time, delay)
    _need_state_store(frame)
    from penstock.engines.spark.dataframes.state import RESULTS, WindowProcessor

    _ship(frame)
    if task.path is ExecutionPath.JVM:
        rows = _aggregate_closed(watermarked, task)
    else:
        rows = _needed_columns(watermarked.df, task)
    # Why: behind mapInArrow Spark no longer knows which column is time, and so drops none of them as late.
    packed = rows.mapInArrow(pack_by_group(task), SPARK_SCHEMA).groupBy(GROUP)
    results = packed.transformWithStateInPandas(
        WindowProcessor(task, watermarked.shift), RESULTS, outputMode="Append", timeMode="EventTime"
    )
    return results.mapInArrow(unpack_results(task), result_schema(task.results))


def _aggregate_closed(watermarked: WatermarkedFrame, task: WindowTask) -> DataFrame:
    """Returns the slices that the watermark has closed, from Spark's own stateful aggregation.

    Grouping by the moment of closing and not by Spark's window() keeps a row to one group, and its state to
    two integers and the cells of the accumulators.
    """
    partials, lateness = task.jvm_partials(), task.windows.lateness
    end = slice_end(micros(task.time), partials.slicing)
    rows = _inputs(watermarked.df, task, partials, closing_time(end, lateness, watermarked))
    last = F.unix_micros(CLOSES) - long(lateness + watermarked.shift + 1)
    start, cells = slice_start(last, partials.slicing).alias(START), partials.cells()
    groups = rows.groupBy(*partials.keys, CLOSES).agg(*cells)
    return groups.select(*partials.keys, start, *(f"p{place}" for place in range(len(cells))))


def _inputs(df: DataFrame, task: WindowTask, partials: JvmPartials, slice_of: Column) -> DataFrame:
    """Returns what is grouped, of the rows that are in a window, with the column of their slice."""
    time = micros(task.time)
    rows = df.where(has_valid_time(task.time) & in_some_window(time, partials.slicing))
    return rows.select(*partials.inputs(time), slice_of)


def _needed_columns(df: DataFrame, task: WindowTask) -> DataFrame:
    """Returns the columns by place: mapInArrow cannot find one by a name with a dot in it."""
    return df.select(*(column(name).alias(f"c{i}") for i, name in enumerate(task.up.schema.names)))


def _ship(frame: Frame) -> None:
    """Sends the package to executors elsewhere."""
    context = frame.df.sparkSession.sparkContext
    if not context.master.startswith("local"):
        ship(context)


def _need_state_store(frame: Frame) -> None:
    """Raises unless everything is there that Spark's state operator for Python needs."""
    if _major("protobuf") is None or _major("pandas") not in (1, 2):
        raise NotSupported("windows of streaming frames need protobuf, and pandas before 3", hint=PIP_LINE)
    if frame.df.sparkSession.conf.get(PROVIDER) != ROCKSDB:
        raise EngineError(
            "windows of streaming frames keep their state in RocksDB, and the session has another store",
            detail="Spark's state operator for Python works with no other",
            hint=f'spark.conf.set("{PROVIDER}", "{ROCKSDB}")',
        )


def _major(package: str) -> int | None:
    try:
        return int(metadata.version(package).split(".")[0])
    except metadata.PackageNotFoundError:
        return None
