"""Read a Spark DataFrame. pyspark is not imported: whoever has a DataFrame has it already.

The Spark engine goes on where the plan of a DataFrame that ends does, without a hop through the driver; every
other engine takes the rows over as Arrow. A DataFrame has no order: rows of one time go by their columns.
Those of a stream come in the batches that Spark cuts (`spark_stream.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.connect.columns import fitted, joined
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.connect.readers.spark_stream import SparkStreamReader
from penstock.errors import ConnectorError
from penstock.expr.failure import reason_of
from penstock.expr.types import canonical_schema
from penstock.frozen import dataclass


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
                "the DataFrame could not be computed", detail=reason_of(problem).partition("\n")[0]
            ) from problem
        rows = [fitted(batch, self.columns) for batch in table.to_batches()]
        yield SourceBatch(joined(rows, self.columns))

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
