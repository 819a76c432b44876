"""The public verbs for DataFrames, `window_aggregate` and `window_join`: what is wrong is said at the call.

Importing this loads no pyspark; the first call does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.caller import find_call_site
from penstock.engines.spark.closures import require_picklable
from penstock.engines.spark.engine import need_pyspark
from penstock.errors import GraphError, NotSupported, PenstockError, SchemaError, TimeError
from penstock.expr import SparkSql
from penstock.expr.node import post_order
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import IN
from penstock.operators.stream_join import StreamJoin
from penstock.operators.windows import KeyedWindows, Windows
from penstock.timing.units import Duration
from penstock.timing.windows import SlidingSpec, WindowSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    """Return one row per key and window, of a batch or a streaming DataFrame.

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
        _require_frame(df)
        from penstock.engines.spark.dataframes.window_plan import Frame, plan_batch, plan_stream
        from penstock.engines.spark.dataframes.window_task import WindowTask

        op, frame = _operator(window, aggregates, lateness), Frame(df)
        names = (keys,) if isinstance(keys, str) else keys
        if not isinstance(names, Sequence):
            raise SchemaError(
                f"keys={keys!r:.80} is not a list of columns", hint='use keys=["page"], or keys=[]'
            )
        up = frame.stream(names, time, op)
        op.outputs({IN: up})  # everything about types that can be wrong
        task = WindowTask.of(op, up, time, where, utc=frame.utc, streams=df.isStreaming)
        return plan_stream(frame, task, delay) if df.isStreaming else plan_batch(frame, task)
    except PenstockError as wrong:
        wrong.at(None, where)
        raise


def window_join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: object,
    time: str | tuple[str, str],
    within: Duration | tuple[Duration, Duration] | None = None,
    window: SlidingSpec | None = None,
    how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner",
    suffix: str | None = None,
    delay: Duration | tuple[Duration, Duration] | None = None,
) -> DataFrame:
    """Return the pairs of rows of two DataFrames, batch or streaming, for which a predicate holds.

    `on`, `within`, `window` (tumbling), `how` and `suffix` are those of the verb `join` of a graph; `time`
    names the time column of both, or (of the left, of the right). Rows without a time join nothing. Streams
    need watermarks: their own `withWatermark`, or `delay`, one for both or (of the left, of the right).
    See docs/spark-dataframes.md for the plan, and for what Spark cannot do.

        window_join(
            bids, asks, on=[ps.band("price", 0.05), ps.left("size") <= ps.right("size")], time="ts",
            within="5 s", suffix="_ask", delay="2 s",
        )
    """
    where = find_call_site()
    try:
        need_pyspark()
        for df in (left, right):
            _require_frame(df)
        from penstock.engines.spark.dataframes.join_plan import FrameJoin

        if within is None and window is None:
            raise TimeError(
                "window_join needs within= or window=",
                detail="rows of streams can only be joined inside a bound of time",
                hint='write within="5 min", or window=ps.tumbling("10 s")',
            )
        times, delays = _for_both_frames("time", time), _for_both_frames("delay", delay)
        op = StreamJoin(on, within, window, how=how, suffix=suffix)
        return FrameJoin(op, left, right, times, delays).plan()
    except PenstockError as wrong:
        wrong.at(None, where)
        raise


def _for_both_frames(name: str, value: Any) -> tuple[Any, Any]:
    """Return what is meant for the left and for the right: one value is meant for both."""
    values = value if isinstance(value, tuple) else (value, value)
    if len(values) != 2:
        raise TimeError(
            f"{name}={value!r:.80} is not one for both frames, or two",
            hint=f"write {name}=..., or {name}=(of the left, of the right)",
        )
    return values


def _require_frame(df: Any) -> None:
    """Raise unless it is a DataFrame of a classic session."""
    from pyspark.sql import DataFrame

    if type(df).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "a frame of Spark Connect cannot be used here",
            detail="the stages look at the plan of the frame, which is on the server",
            hint='use a classic session: SparkSession.builder.master("local[*]").getOrCreate()',
        )
    if not isinstance(df, DataFrame):
        raise SchemaError(
            f"{df!r:.80} is not a DataFrame of Spark",
            hint="give a DataFrame: window_aggregate(spark.read.parquet(...), ...)",
        )


def _operator(windows: Any, aggregates: Any, lateness: Duration) -> Windows:
    from pyspark.sql import Column

    if not isinstance(aggregates, Mapping) or not aggregates:
        raise GraphError(
            f"aggregates={aggregates!r:.80} names no results", hint='use aggregates={"n": ps.count()}'
        )
    for spec in windows.values() if isinstance(windows, Mapping) else [windows]:
        if isinstance(spec, Column):
            raise TimeError(
                f"window={spec!r:.120} is a column of Spark's, not a window",
                detail="F.window(...) makes a copy of a row for every window that it is in",
                hint='use window=ps.sliding("10 s", "1 s") or ps.tumbling("10 s"), and time="ts"',
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
        require_picklable(f"aggregate {name}={aggregate}", aggregate)
    return op
