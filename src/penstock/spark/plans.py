"""The plans: which operators of Spark a frame goes through on each road.

    batch   rows ─ groupBy(key, slice) ─ pack ─ exchange by group ─ windows
    stream  rows ─ groupBy(key, slice), closed by the watermark ─ pack ─ state operator ─ unpack
                   └── in the JVM, on the native road only ──┘

Everything is lazy, and made of public DataFrame operators.
"""

from __future__ import annotations

from importlib import metadata

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engines.spark.expressions.leaves import column
from penstock.engines.spark.installed import PIP_LINE
from penstock.engines.spark.shipping import ship
from penstock.engines.spark.slicing import slice_end, slice_start
from penstock.errors import EngineError, NotSupported
from penstock.spark.frames import Frame, in_time, micros, spark_schema
from penstock.spark.native import START, counted, long, projected
from penstock.spark.packing import GROUP, SPARK_SCHEMA, packing, results_of, whole_windows
from penstock.spark.recipe import Recipe, Road
from penstock.spark.watermark import CLOSES, Marked, closes, marked
from penstock.timing.duration import Duration

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def batch_plan(frame: Frame, recipe: Recipe) -> DataFrame:
    """All windows of a batch frame: every row is on time."""
    _ship(frame)
    given = _needed(frame.df.where(in_time(recipe.time)), recipe)
    if recipe.road is Road.NATIVE:
        (slicing,) = recipe.slicings.values()
        rows = projected(frame.df, recipe, slice_start(micros(recipe.time), slicing).alias(START))
        given = rows.groupBy(*_keys(recipe), START).agg(*counted(recipe))
    packed = given.mapInArrow(packing(recipe), SPARK_SCHEMA).repartition(F.col(GROUP))
    return packed.mapInArrow(whole_windows(recipe), spark_schema(recipe.results))


def stream_plan(frame: Frame, recipe: Recipe, delay: Duration | None) -> DataFrame:
    """The windows of a streaming frame, as the watermark passes them; for append mode."""
    mark = marked(frame, recipe.time, delay)
    _need_state(frame)
    from penstock.spark.processor import RESULTS, WindowProcessor

    _ship(frame)
    given = _closed(mark, recipe) if recipe.road is Road.NATIVE else _needed(mark.df, recipe)
    # Behind mapInArrow Spark no longer knows which column is time, and so drops none of these rows as late.
    packed = given.mapInArrow(packing(recipe), SPARK_SCHEMA).groupBy(GROUP)
    results = packed.transformWithStateInPandas(
        WindowProcessor(recipe, mark.shift), RESULTS, outputMode="Append", timeMode="EventTime"
    )
    return results.mapInArrow(results_of(recipe), spark_schema(recipe.results))


def _closed(mark: Marked, recipe: Recipe) -> DataFrame:
    """Slices that the watermark has closed, one row per key, from Spark's own stateful aggregation.

    Grouping by the moment of closing and not by Spark's window() keeps a row to one group, and its state
    to two integers and the numbers of the registers.
    """
    (slicing,), lateness = recipe.slicings.values(), recipe.resolved.lateness
    end = slice_end(micros(recipe.time), slicing)
    groups = projected(mark.df, recipe, closes(end, lateness, mark)).groupBy(*_keys(recipe), CLOSES)
    last = F.unix_micros(CLOSES) - long(lateness + mark.shift + 1)
    numbers = counted(recipe)
    names = [f"p{place}" for place in range(len(numbers))]
    return groups.agg(*numbers).select(*_keys(recipe), slice_start(last, slicing).alias(START), *names)


def _keys(recipe: Recipe) -> list[str]:
    return [f"k{place}" for place in range(len(recipe.up.key))]


def _needed(df: DataFrame, recipe: Recipe) -> DataFrame:
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
