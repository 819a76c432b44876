"""`window_join`, the verb that joins two DataFrames: everything wrong with a call is said at the call.

Importing this loads no pyspark; the first call does. The plan is in `join_plan.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.caller import find_call_site
from penstock.engines.spark.dataframes.window_aggregate import require_frame
from penstock.engines.spark.engine import need_pyspark
from penstock.errors import PenstockError
from penstock.operators.stream_join import StreamJoin
from penstock.timing.units import Duration
from penstock.timing.windows import SlidingSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
            require_frame(df)
        from penstock.engines.spark.dataframes.join_plan import FrameJoin

        times = time if isinstance(time, tuple) else (time, time)
        delays = delay if isinstance(delay, tuple) else (delay, delay)
        op = StreamJoin(on, within, window, how=how, suffix=suffix)
        return FrameJoin(op, left, right, times, delays).plan()
    except PenstockError as wrong:
        wrong.at(None, where)
        raise
