"""Read a streaming DataFrame: a query of its own hands over every batch that Spark cuts.

A batch is not done for Spark before whoever reads it says so: until then the query waits in it. So Spark's
own checkpoint of the query never runs ahead of the reader's, and a batch that was not done comes again, the
same.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pyarrow as pa

from penstock.connect.batches import cast_batch, concat_batches
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.errors import ConnectorError, describe_cause
from penstock.expr.types import canonical_schema
from penstock.frozen import dataclass

_POLL_S = 0.1
"""Seconds between looks whether the query is still there."""


@dataclass(frozen=True, slots=True)
class SparkStreamReader:
    """The rows of a streaming DataFrame, in the batches that Spark cuts."""

    frame: Any
    columns: pa.Schema
    follow: bool

    @property
    def schema(self) -> pa.Schema:
        """The DataFrame's columns, in canonical types."""
        return self.columns

    @property
    def bounded(self) -> bool:
        """Whether it ends with what is there now."""
        return not self.follow

    @property
    def delivery(self) -> Delivery:
        """As far as the sources of the DataFrame give the same rows again."""
        return Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """Spark has parsed every row."""
        return False

    def batches(self) -> Iterator[SourceBatch]:
        """Batches as they come; one is done when the next is asked for."""
        with (
            tempfile.TemporaryDirectory(prefix="penstock-stream-", ignore_cleanup_errors=True) as folder,
            closing(StreamBatches(self, folder)) as stream,
        ):
            for number, batch in enumerate(stream):
                yield batch
                stream.done(number + 1)

    def describe(self) -> str:
        """Such as `Spark stream (t, key, price)`."""
        return f"Spark stream ({', '.join(self.columns.names)})"


class StreamBatches:
    """A query at work: its batches, from number `first` on. `folder` is Spark's checkpoint of it."""

    def __init__(self, reader: SparkStreamReader, folder: str, first: int = 0) -> None:
        self._reader, self._changed = reader, threading.Condition()
        self._done, self._closed = first, False
        self._came: SourceBatch | Exception | None = None
        writer = reader.frame.writeStream.foreachBatch(self._take).option("checkpointLocation", folder)
        try:
            self._query = (writer if reader.follow else writer.trigger(availableNow=True)).start()
        except Exception as problem:
            raise _stream_error("the stream could not be started", problem) from problem

    def __iter__(self) -> Iterator[SourceBatch]:
        """Batches as they come."""
        while (batch := self._awaited()) is not None:
            yield batch

    def done(self, n_batches: int) -> None:
        """So many batches need not come again."""
        with self._changed:
            self._done = max(self._done, n_batches)
            self._changed.notify_all()

    def close(self) -> None:
        """End the query; a batch that is not done fails in it, and comes again another time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(Exception):  # a Spark that has been stopped has no query to stop
            self._query.stop()

    def _take(self, frame: Any, number: int) -> None:
        """Spark's batch: handed over, and waited for."""
        if number < self._done:
            return
        try:
            rows = [cast_batch(batch, self._reader.columns) for batch in frame.toArrow().to_batches()]
            given: SourceBatch | Exception = SourceBatch(concat_batches(rows, self._reader.columns))
        except Exception as problem:
            given = _stream_error("a batch of the stream could not be computed", problem)
        with self._changed:
            self._came = given
            self._changed.notify_all()
            while number >= self._done and not self._closed:
                self._changed.wait(_POLL_S)
            if number >= self._done:
                raise RuntimeError("the run is over, and this batch is not done")

    def _awaited(self) -> SourceBatch | None:
        with self._changed:
            while self._came is None and not self._closed:
                self._changed.wait(_POLL_S)
                if self._came is None and not self._query.isActive:
                    problem = self._query.exception()
                    if problem is not None:
                        raise _stream_error("the stream failed", problem)
                    return None
            came, self._came = self._came, None
        if isinstance(came, Exception):
            raise came
        return came


def _stream_error(what: str, problem: Exception) -> ConnectorError:
    return ConnectorError(what, detail=describe_cause(problem).partition("\n")[0])


# Read a Spark DataFrame. pyspark is not imported: whoever has a DataFrame has it already.
#
# The Spark engine goes on where the plan of a DataFrame that ends does, without a hop through the driver;
# every other engine takes the rows over as Arrow. A DataFrame has no order: rows of one time go by their
# columns. Those of a stream come in the batches that Spark cuts (`spark_stream.py`).


@dataclass(frozen=True, slots=True)
class SparkReader:
    """The rows of a DataFrame, as one batch."""

    frame: Any
    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The DataFrame's columns, in canonical types."""
        return self.columns

    @property
    def bounded(self) -> bool:
        """A batch DataFrame ends."""
        return True

    @property
    def delivery(self) -> Delivery:
        """As far as the DataFrame gives the same rows again."""
        return Delivery.EXACTLY_ONCE

    @property
    def keeps_raw(self) -> bool:
        """Spark has parsed every row."""
        return False

    def batches(self) -> Iterator[SourceBatch]:
        """All rows, once; they have no numbers."""
        try:
            table = self.frame.toArrow()
        except Exception as problem:
            raise ConnectorError(
                "the DataFrame could not be computed", detail=describe_cause(problem).partition("\n")[0]
            ) from problem
        rows = [cast_batch(batch, self.columns) for batch in table.to_batches()]
        yield SourceBatch(concat_batches(rows, self.columns))

    def describe(self) -> str:
        """Such as `Spark DataFrame (t, key, price)`."""
        return f"Spark DataFrame ({', '.join(self.columns.names)})"


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
