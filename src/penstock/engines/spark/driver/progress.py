"""What the progress of a query tells of a run: rows, watermarks, state.

Spark counts what passes its own operators, and those of a run are behind `foreachBatch`. So the stream of a
query is given an observation, named `penstock`, through which no value passes by itself: when a micro-batch
is committed, a row with what the run knows is added to it, before Spark makes its report. Listeners of the
user's find the values in `observedMetrics`. A stream of our own also has a watermark of Spark's, which goes
where the least one of the program's sources goes; that of a user's stream may mean something else.

All of that is in inner parts of Spark. Where they are not as expected, the progress tells less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any

from penstock.frozen import Frozen
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OBSERVED = "penstock"
_COUNTS = ("rounds", "state_bytes", "state_rows", "rows_late", "rows_errored")
_TIME = "penstock_time"


class BatchProgress(Frozen):
    """What became known by a micro-batch.

    n_rows      rows that its sources gave
    counts      `rounds`, `state_bytes` and `state_rows` after it, and its `rows_late` and `rows_errored`
    watermarks  source -> its watermark, in microseconds
    """

    n_rows: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, float] = field(default_factory=dict)


def observe_progress(stream: DataFrame, sources: Sequence[str], *, is_ours: bool) -> DataFrame:
    """Return a stream whose progress can tell of a run.

    sources  those that have a watermark
    """
    from pyspark.sql import functions as F

    from penstock.engines.spark.expressions.columns import column

    columns = stream.columns
    if is_ours and sources:
        stream = stream.withColumn(_TIME, F.lit(None).cast("timestamp")).withWatermark(_TIME, "0 seconds")
    values = {name: F.lit(None).cast("long") for name in _COUNTS}
    values |= {f"watermark of {source}": F.lit(None).cast("timestamp") for source in sources}
    stream = stream.select("*", *(value.alias(f"{OBSERVED} {name}") for name, value in values.items()))
    observed = [F.max(column(f"{OBSERVED} {name}")).alias(name) for name in values]
    return stream.observe(OBSERVED, *observed).select(*map(column, columns))


def report_progress(query: Any, gateway: Any, batch: BatchProgress, *, is_ours: bool) -> None:
    """Let the next progress of a query tell of a micro-batch; before the batch ends for Spark.

    query  a StreamingQuery that runs the batch
    """
    known = {source: int(at) for source, at in batch.watermarks.items() if BEFORE_ALL < at < AFTER_ALL}
    with suppress(Exception):  # inner parts of Spark, see above
        node = query._jsq.streamingQuery().lastExecution().executedPlan()
        while node is not None:
            name, n_children = str(node.nodeName()), node.children().size()
            if name == "CollectMetrics" and str(node.name()) == OBSERVED:
                _add_values(node, gateway, batch.counts, known)
            elif name == "EventTimeWatermark" and is_ours:
                node.eventTimeStats().reset()  # wire rows have no time, which counts as the year 1970
                if known:
                    node.eventTimeStats().add(min(known.values()) // 1_000)
            elif not n_children and is_ours:
                # Why: `numInputRows` is what the scan has counted; the rows are read behind it.
                node.metrics().apply("numOutputRows").set(batch.n_rows)
            node = node.children().apply(0) if n_children == 1 else None  # as far as it does not branch


def _add_values(node: Any, gateway: Any, counts: Mapping[str, int], watermarks: Mapping[str, int]) -> None:
    """Add a row to an observation."""
    columns = node.child().output()
    names = [str(columns.apply(place).name()) for place in range(columns.size())]
    known = {f"{OBSERVED} {name}": n for name, n in counts.items()}
    known |= {f"{OBSERVED} watermark of {source}": at for source, at in watermarks.items()}
    row = gateway.jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(len(names))
    for place, name in enumerate(names):
        if name in known:
            row.setLong(place, known[name])
    lang = gateway.jvm.java.lang
    accumulator = node.getClass().getDeclaredMethod("accumulator", gateway.new_array(lang.Class, 0))
    accumulator.setAccessible(True)
    accumulator.invoke(node, gateway.new_array(lang.Object, 0)).add(row)
