"""Readers of Spark DataFrames, batch and streaming. pyspark is not imported: a DataFrame brings it along.

The Spark engine continues the plan of a batch DataFrame, without a detour through the driver; every other
engine takes the rows over as Arrow. A DataFrame has no order: rows of one time are ordered by their columns.

A streaming DataFrame is read by a query of its own, which hands over every batch that Spark cuts, and waits
in it until the reader says that it is done. So Spark's own checkpoint of the query never runs ahead of the
reader's, and a batch that was not done comes again unchanged. The Spark engine leaves the rows of a batch
where they are.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any, ClassVar

import pyarrow as pa

from penstock.connect.conversion import cast_batch, concat_batches
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.errors import ConnectorError, describe_cause
from penstock.expr.types import canonical_schema
from penstock.frozen import Frozen

_POLL_S = 0.1


class SparkReader(Frozen):
    """The rows of a DataFrame, as one batch.

    Delivery is as exact as the DataFrame's own sources, which must give the same rows again.
    """

    frame: Any
    schema: pa.Schema

    bounded: ClassVar[bool] = True
    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    keeps_raw: ClassVar[bool] = False

    def batches(self) -> Iterator[SourceBatch]:
        """Yield all rows as one batch, without numbers."""
        try:
            table = self.frame.toArrow()
        except Exception as problem:
            raise _stream_error("the DataFrame could not be computed", problem) from problem
        yield _to_source_batch(table, self.schema)

    def describe(self) -> str:
        """Return such as `Spark DataFrame (t, key, price)`."""
        return f"Spark DataFrame ({', '.join(self.schema.names)})"


class SparkStreamReader(Frozen):
    """The rows of a streaming DataFrame, in the batches that Spark cuts."""

    frame: Any
    schema: pa.Schema
    follow: bool

    delivery: ClassVar[Delivery] = Delivery.EXACTLY_ONCE
    keeps_raw: ClassVar[bool] = False

    @property
    def bounded(self) -> bool:
        """Return whether it ends with what is there now."""
        return not self.follow

    def batches(self) -> Iterator[SourceBatch]:
        """Yield batches as they come; one is done when the next is asked for."""
        with (
            tempfile.TemporaryDirectory(prefix="penstock-stream-", ignore_cleanup_errors=True) as folder,
            closing(StreamBatches(self, folder)) as stream,
        ):
            for number, batch in enumerate(stream):
                yield batch
                stream.acknowledge(number + 1)

    def describe(self) -> str:
        """Return such as `Spark stream (t, key, price)`."""
        return f"Spark stream ({', '.join(self.schema.names)})"


class StreamBatches:
    """A running query: its batches, from number `first` on.

    query   Spark's own
    folder  its checkpoint
    take    returns what is handed over of a batch: a DataFrame, and its number; by default its rows
    trigger how often Spark cuts a batch, where the stream does not end
    """

    def __init__(
        self,
        reader: SparkStreamReader,
        folder: str,
        first: int = 0,
        take: Callable[[Any, int], Any] | None = None,
        trigger: str | None = None,
    ) -> None:
        self._changed, self._n_done, self._closed = threading.Condition(), first, False
        self._take = take or (lambda frame, number: _to_source_batch(frame.toArrow(), reader.schema))
        self._next: Any = None
        self._folder = folder
        writer = reader.frame.writeStream.foreachBatch(self._hand_over).option("checkpointLocation", folder)
        try:
            if not reader.follow:
                writer = writer.trigger(availableNow=True)
            elif trigger is not None:
                writer = writer.trigger(processingTime=trigger)
            self.query = writer.start()
        except Exception as problem:
            raise _stream_error("the stream could not be started", problem, folder) from problem

    def __iter__(self) -> Iterator[Any]:
        """Yield batches as they come."""
        while (batch := self._wait_for_batch()) is not None:
            yield batch

    def acknowledge(self, n_batches: int) -> None:
        """Mark the first `n_batches` batches as done: they need not come again."""
        with self._changed:
            self._n_done = max(self._n_done, n_batches)
            self._changed.notify_all()

    def close(self) -> None:
        """End the query; a batch that is not done fails in it, and comes again in a later query."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(Exception):  # a Spark that has been stopped has no query to stop
            self.query.stop()

    def _hand_over(self, frame: Any, number: int) -> None:
        """Hand Spark's batch to the reader and wait until it is done."""
        if number < self._n_done:
            return
        batch: Any
        try:
            batch = self._take(frame, number)
        except Exception as problem:
            batch = _stream_error("a batch of the stream could not be computed", problem)
        with self._changed:
            self._next = batch
            self._changed.notify_all()
            while number >= self._n_done and not self._closed:
                self._changed.wait(_POLL_S)
            if number >= self._n_done:
                raise RuntimeError("the run is over, and this batch is not done")

    def _wait_for_batch(self) -> Any:
        with self._changed:
            while self._next is None and not self._closed:
                self._changed.wait(_POLL_S)
                if self._next is None and not self.query.isActive:
                    problem = self.query.exception()
                    if problem is not None:
                        raise _stream_error("the stream failed", problem, self._folder)
                    return None
            batch, self._next = self._next, None
        if isinstance(batch, Exception):
            raise batch
        return batch


def spark(frame: Any, *, follow: bool = True) -> SparkReader | SparkStreamReader:
    """Read a DataFrame of PySpark, batch or streaming: `ps.read.spark(df)`.

    A stream is followed for ever; with `follow=False` what is there now is read, and then the source ends.
    """
    if not hasattr(frame, "toArrow") or not hasattr(frame, "isStreaming"):
        raise ConnectorError(
            f"{type(frame).__name__} is not a Spark DataFrame",
            hint="ps.read.table takes pandas, Polars and Arrow tables",
        )
    if not frame.isStreaming:
        return SparkReader(frame, canonical_schema(frame.limit(0).toArrow().schema))
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise ConnectorError(
            "a stream of Spark Connect cannot be read",
            detail="its batches are handed over on the driver, which is elsewhere",
            hint="use a classic session, or read the files of the stream: ps.read.parquet(...)",
        )
    empty = frame.sparkSession.createDataFrame([], frame.schema)
    return SparkStreamReader(frame, canonical_schema(empty.toArrow().schema), follow)


def _to_source_batch(table: pa.Table, schema: pa.Schema) -> SourceBatch:
    rows = [cast_batch(batch, schema) for batch in table.to_batches()]
    return SourceBatch(concat_batches(rows, schema))


def _stream_error(fact: str, problem: Exception, folder: str | None = None) -> ConnectorError:
    detail, hint = describe_cause(problem).partition("\n")[0], None
    if folder is not None:
        detail += f"; Spark keeps its log of it in {folder}"
        hint = (
            "mend what Spark says, and start again; bring a log that is damaged back from a backup, or start "
            "anew with an empty checkpoint folder and an empty output folder"
        )
    return ConnectorError(fact, detail=detail, hint=hint)
