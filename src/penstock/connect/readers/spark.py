"""Read a Spark DataFrame that ends. pyspark is not imported: whoever has a DataFrame has it already.

The Spark engine goes on where the DataFrame's own plan ends, without a hop through the driver; every other
engine takes the rows over as Arrow. A DataFrame has no order: rows of one time go by their columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.connect.columns import fitted, joined
from penstock.connect.protocol import Delivery, SourceBatch
from penstock.errors import ConnectorError
from penstock.expr.failure import reason_of
from penstock.expr.types import canonical_schema


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


def spark(frame: Any) -> SparkReader:
    """Read a batch DataFrame of PySpark: `ps.read.spark(df)`."""
    if not hasattr(frame, "toArrow") or not hasattr(frame, "isStreaming"):
        raise ConnectorError(
            f"{type(frame).__name__} is not a Spark DataFrame",
            hint="ps.read.table takes pandas, Polars and Arrow tables",
        )
    if frame.isStreaming:
        raise ConnectorError(
            "the DataFrame is a stream, and its batches would not be cut by a reader",
            hint="read the files of the stream: ps.read.parquet(...), or give a batch DataFrame: spark.read",
        )
    return SparkReader(frame, canonical_schema(frame.limit(0).toArrow().schema))
