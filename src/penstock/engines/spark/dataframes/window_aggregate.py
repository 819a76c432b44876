"""The one public verb for DataFrames: everything that can be wrong with a call is said here, at the call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.caller import find_call_site
from penstock.engines.spark.dataframes.frame import (
    CLOSES,
    Frame,
    WatermarkedFrame,
    add_watermark,
    closing_time,
    has_valid_time,
    micros,
    spark_schema,
)
from penstock.engines.spark.dataframes.packing import (
    GROUP,
    SPARK_SCHEMA,
    compute_windows,
    pack_by_group,
    unpack_results,
)
from penstock.engines.spark.dataframes.partials import (
    START,
    ExecutionPath,
    WindowTask,
    accumulator_columns,
    long,
    project_inputs,
)
from penstock.engines.spark.engine import PIP_LINE, need_pyspark
from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.jvm.partials import slice_end, slice_start
from penstock.engines.spark.session.session import ship
from penstock.errors import EngineError, GraphError, NotSupported, PenstockError, SchemaError, Where
from penstock.expr import SparkSql
from penstock.expr.node import post_order
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import IN
from penstock.operators.window_specs import WindowSpec
from penstock.operators.windows import KeyedWindows, Windows
from penstock.timing.duration import Duration


def window_aggregate(
    df: DataFrame,
    *,
    time: str,
    window: WindowSpec | Mapping[str, WindowSpec],
    aggregates: Mapping[str, Aggregate],
    keys: str | Sequence[str] = (),
    delay: Duration | None = None,
    lateness: Duration = "0 s",
) -> DataFrame:
    """One row per key and window, of a batch or a streaming DataFrame.

    The columns are the keys, `window_start`, `window_end` (with several windows `window` before them, with
    count windows `window_index` after them), and the aggregates by name. Rows without a time are in no
    window. A batch is all on time. A stream needs a watermark: the frame's own `withWatermark`, or `delay`;
    its results leave in append mode. See docs/spark-dataframes.md for the plan, and for what is late.

        window_aggregate(
            views, keys=["page"], time="ts", window=ps.sliding("10 s", "1 s"), delay="2 s",
            aggregates={"n": ps.count(), "spent": ps.sum("price")},
        )
    """
    where = find_call_site()
    try:
        need_pyspark()
        _need_frame(df)
        op = _operator(window, aggregates, lateness)
        return _plan(df, op, _names(keys), time, delay, where)
    except PenstockError as wrong:
        wrong.at(None, where)
        raise


def _plan(
    df: DataFrame, op: Windows, keys: tuple[str, ...], time: str, delay: Duration | None, where: Where | None
) -> DataFrame:
    from penstock.engines.spark.dataframes.frame import Frame
    from penstock.engines.spark.dataframes.partials import WindowTask
    from penstock.engines.spark.dataframes.window_aggregate import batch_plan, stream_plan

    frame = Frame(df)
    up = frame.stream(keys, time, op)
    op.outputs({IN: up})  # everything about types that can be wrong
    recipe = WindowTask.of(op, up, time, where, utc=frame.utc)
    return stream_plan(frame, recipe, delay) if df.isStreaming else batch_plan(frame, recipe)


def _names(keys: Any) -> tuple[str, ...]:
    if isinstance(keys, str):
        return (keys,)
    if not isinstance(keys, Sequence):
        raise SchemaError(f"keys={keys!r:.80} is not a list of columns", hint='use keys=["page"], or keys=[]')
    return tuple(keys)


def _need_frame(df: Any) -> None:
    from pyspark.sql import DataFrame

    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "a frame of Spark Connect cannot be windowed",
            detail="the stages look at the plan of the frame, which is on the server",
            hint='use a classic session: SparkSession.builder.master("local[*]").getOrCreate()',
        )
    if not isinstance(df, DataFrame):
        raise SchemaError(
            f"{df!r:.80} is not a DataFrame of Spark",
            hint="give a DataFrame: window_aggregate(spark.read.parquet(...), ...)",
        )


def _operator(windows: Any, aggregates: Any, lateness: Duration) -> Windows:
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise GraphError(
            f"aggregates={aggregates!r:.80} names no results", hint='use aggregates={"n": ps.count()}'
        )
    op = KeyedWindows(windows, aggregates=dict(aggregates), lateness=lateness)
    for name, aggregate in aggregates.items():
        nodes = () if aggregate.value is None else post_order(aggregate.value)
        if any(isinstance(node, SparkSql) for node in nodes):
            raise NotSupported(
                f"{name}={aggregate} is of an expression in Spark's own SQL",
                detail="a part of the work is done in Python, where there is no such thing",
                hint='compute it as a column first: df.withColumn("value", F.expr("..."))',
            )
    return op


# The plans: which operators of Spark a frame goes through on each road.
#
# batch   rows ─ groupBy(key, slice) ─ pack ─ exchange by group ─ windows
# stream  rows ─ groupBy(key, slice), closed by the watermark ─ pack ─ state operator ─ unpack
# └── in the JVM, on the native road only ──┘
#
# Everything is lazy, and made of public DataFrame operators.

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def batch_plan(frame: Frame, recipe: WindowTask) -> DataFrame:
    """All windows of a batch frame: every row is on time."""
    _ship(frame)
    given = _select_needed(frame.df.where(has_valid_time(recipe.time)), recipe)
    if recipe.road is ExecutionPath.NATIVE:
        (slicing,) = recipe.slicings.values()
        rows = project_inputs(frame.df, recipe, slice_start(micros(recipe.time), slicing).alias(START))
        given = rows.groupBy(*_keys(recipe), START).agg(*accumulator_columns(recipe))
    packed = given.mapInArrow(pack_by_group(recipe), SPARK_SCHEMA).repartition(F.col(GROUP))
    return packed.mapInArrow(compute_windows(recipe), spark_schema(recipe.results))


def stream_plan(frame: Frame, recipe: WindowTask, delay: Duration | None) -> DataFrame:
    """The windows of a streaming frame, as the watermark passes them; for append mode."""
    mark = add_watermark(frame, recipe.time, delay)
    _need_state(frame)
    from penstock.engines.spark.dataframes.state import RESULTS, WindowProcessor

    _ship(frame)
    given = (
        _aggregate_closed(mark, recipe)
        if recipe.road is ExecutionPath.NATIVE
        else _select_needed(mark.df, recipe)
    )
    # Behind mapInArrow Spark no longer knows which column is time, and so drops none of these rows as late.
    packed = given.mapInArrow(pack_by_group(recipe), SPARK_SCHEMA).groupBy(GROUP)
    results = packed.transformWithStateInPandas(
        WindowProcessor(recipe, mark.shift), RESULTS, outputMode="Append", timeMode="EventTime"
    )
    return results.mapInArrow(unpack_results(recipe), spark_schema(recipe.results))


def _aggregate_closed(mark: WatermarkedFrame, recipe: WindowTask) -> DataFrame:
    """Slices that the watermark has closed, one row per key, from Spark's own stateful aggregation.

    Grouping by the moment of closing and not by Spark's window() keeps a row to one group, and its state
    to two integers and the numbers of the registers.
    """
    (slicing,), lateness = recipe.slicings.values(), recipe.resolved.lateness
    end = slice_end(micros(recipe.time), slicing)
    groups = project_inputs(mark.df, recipe, closing_time(end, lateness, mark)).groupBy(
        *_keys(recipe), CLOSES
    )
    last = F.unix_micros(CLOSES) - long(lateness + mark.shift + 1)
    numbers = accumulator_columns(recipe)
    names = [f"p{place}" for place in range(len(numbers))]
    return groups.agg(*numbers).select(*_keys(recipe), slice_start(last, slicing).alias(START), *names)


def _keys(recipe: WindowTask) -> list[str]:
    return [f"k{place}" for place in range(len(recipe.up.key))]


def _select_needed(df: DataFrame, recipe: WindowTask) -> DataFrame:
    """The columns by place: mapInArrow cannot find one by a name with a dot in it."""
    return df.select(*(column(name).alias(f"c{i}") for i, name in enumerate(recipe.up.schema.names)))


def _ship(frame: Frame) -> None:
    """Executors elsewhere get the package from here."""
    context = frame.df.sparkSession.sparkContext
    if not context.master.startswith("local"):
        ship(context)


def _need_state(frame: Frame) -> None:
    """What Spark's state operator for Python asks for."""
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
