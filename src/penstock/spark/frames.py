"""A DataFrame as a stream: its columns in our types, its time, its key.

Spark's TIMESTAMP is a timestamp in UTC, TIMESTAMP_NTZ one without a zone. Only the columns that are needed
are looked at: others may have any type, and do not travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType

from penstock.engines.spark.expressions.leaves import column
from penstock.engines.spark.settings import FIXED
from penstock.errors import SchemaError, TimeError
from penstock.expr.types import canonical
from penstock.operators.aggregates import Fold
from penstock.operators.stream import Stream, unknown_column
from penstock.operators.window import Counted
from penstock.operators.windows import Windows
from penstock.timing.column import LIMIT, time_type

_ZONE = "spark.sql.session.timeZone"


class Frame:
    """A DataFrame, and what is to be known of it."""

    def __init__(self, df: DataFrame) -> None:
        self.df, self.names = df, list(df.columns)
        conf = df.sparkSession.conf
        self.utc = str(conf.get(_ZONE)).lower() in FIXED[_ZONE].same
        self._exact = str(conf.get("spark.sql.caseSensitive")) == "true"

    def stream(self, keys: Sequence[str], time: str, op: Windows) -> Stream:
        """The columns that the step needs, as a stream; an error if one is missing or of no use."""
        self._require(keys)
        self._require([time])
        self._need_timestamp(time)
        needed = {*keys, time, *self._read(op)}
        kept = [name for name in self.names if name in needed or (_reads_all(op) and self._fits(name))]
        schema = pa.schema([(name, self._type(name)) for name in kept])
        made = Stream(schema, time_type(schema.field(time).type, None, time), tuple(keys))
        made.require_key(*keys)
        return made

    def _read(self, op: Windows) -> set[str]:
        """The columns that aggregates read by name."""
        read: set[str] = set()
        for aggregate in (op.aggregates or {}).values():
            names = () if aggregate.value is None else aggregate.value.columns()
            if isinstance(aggregate, Fold):
                names = aggregate.columns or ()
            self._require(names)
            read |= {*names}
        return read

    def _require(self, names: Iterable[Any]) -> None:
        for name in names:
            if not isinstance(name, str):
                raise SchemaError(f"{name!r:.80} is not the name of a column", hint='name it: keys=["page"]')
            if name not in self.names:
                raise unknown_column(name, self.names)
            alike = [other for other in self.names if self._same(name, other)]
            if len(alike) > 1:
                raise SchemaError(
                    f'the frame has {len(alike)} columns that Spark takes for "{name}"',
                    detail=f"they are {', '.join(alike)}",
                    hint="rename or drop all but one of them",
                )

    def _same(self, one: str, other: str) -> bool:
        return one == other if self._exact else one.lower() == other.lower()

    def _need_timestamp(self, name: str) -> None:
        found = self.df.schema[self.names.index(name)].dataType.simpleString()
        if found not in ("timestamp", "timestamp_ntz"):
            made = {"string": "F.to_timestamp", "bigint": "F.timestamp_millis", "date": "F.to_timestamp"}
            raise TimeError(
                f'time column "{name}" is of type {found}, not a timestamp',
                hint=f'make it one: df.withColumn("{name}", {made.get(found, "F.to_timestamp")}("{name}"))',
            )

    def _type(self, name: str) -> pa.DataType:
        found = self.df.schema[self.names.index(name)].dataType
        try:
            return canonical(to_arrow_type(found, timezone="UTC"), name)
        except PySparkException as cause:
            raise SchemaError(
                f'column "{name}" has type {found.simpleString()}, which rows cannot hold',
                hint=f'cast it first, e.g. df.withColumn("{name}", F.col("{name}").cast("string"))',
            ) from cause

    def _fits(self, name: str) -> bool:
        """Whether a column that nobody names can travel along."""
        try:
            self._require([name])
            self._type(name)
        except SchemaError:
            return False
        return True


def _reads_all(op: Windows) -> bool:
    """Whether columns that nobody names matter: to a fold over rows, and where they put rows in order."""
    aggregates = (op.aggregates or {}).values()
    folds = [each for each in aggregates if isinstance(each, Fold)]
    if any(each.columns is None or not each.commutative for each in folds):
        return True
    counted = any(isinstance(spec, Counted) for _, spec in op.named())
    return counted or any(each.ordered for each in aggregates)


def micros(name: str) -> Column:
    """A timestamp column as microseconds; one without a zone is read as UTC, whatever the session's."""
    return F.unix_micros(column(name))


def in_time(name: str) -> Column:
    """Where a row has a time that can be computed with."""
    return micros(name).between(F.lit(-LIMIT).cast("long"), F.lit(LIMIT).cast("long"))


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of results in Spark: timestamps without a zone stay so."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def as_ours(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that Spark handed over, by place, in our types: only zones and widths differ."""
    columns = [
        each if each.type == field.type else each.cast(field.type, safe=False)
        for each, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
