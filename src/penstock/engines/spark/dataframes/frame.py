"""A DataFrame as a stream: its columns in our types, its time, its key.

Spark's TIMESTAMP is a timestamp in UTC, TIMESTAMP_NTZ one without a zone. Only the columns that are needed
are looked at: others may have any type, and do not travel.

The watermark of a streaming frame is the user's, which Spark lets nobody set twice, or one of ours. Ours runs
on times moved by SHIFT, because Spark's starts at 1970 and what is before it is late. A user's runs on the
true times, so before 1970 everything is late there, as it is for Spark's own windows.
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

from penstock.engines.spark.expressions.columns import column
from penstock.engines.spark.jvm.partials import long
from penstock.engines.spark.session.settings import FIXED
from penstock.errors import SchemaError, TimeError
from penstock.expr.types import canonical
from penstock.frozen import dataclass
from penstock.operators.aggregates import Fold
from penstock.operators.op import Stream, unknown_column
from penstock.operators.windows import Windows
from penstock.timing.units import LIMIT, Duration, spell, time_type
from penstock.timing.units import micros as length
from penstock.timing.windows import CountSpec

_ZONE = "spark.sql.session.timeZone"


class Frame:
    """A DataFrame as the source of a window step."""

    def __init__(self, df: DataFrame) -> None:
        self.df, self.names = df, list(df.columns)
        conf = df.sparkSession.conf
        self.utc = str(conf.get(_ZONE)).lower() in FIXED[_ZONE].same
        self._exact = str(conf.get("spark.sql.caseSensitive")) == "true"

    def stream(self, keys: Sequence[str], time: str, op: Windows) -> Stream:
        """Returns the columns that the step needs, as a stream; raises if one is missing or of no use."""
        self._require(keys)
        self._require([time])
        self._need_timestamp(time)
        needed = {*keys, time, *self._read(op)}
        names = [name for name in self.names if name in needed or (_reads_all(op) and self._fits(name))]
        schema = pa.schema([(name, self._type(name)) for name in names])
        stream = Stream(schema, time_type(schema.field(time).type, None, time), tuple(keys))
        stream.require_key(*keys)
        return stream

    def _read(self, op: Windows) -> set[str]:
        """Returns the columns that aggregates read by name."""
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
        type_ = self.df.schema[self.names.index(name)].dataType.simpleString()
        if type_ not in ("timestamp", "timestamp_ntz"):
            convert = "F.timestamp_millis" if type_ == "bigint" else "F.to_timestamp"
            raise TimeError(
                f'time column "{name}" is of type {type_}, not a timestamp',
                hint=f'make it one: df.withColumn("{name}", {convert}("{name}"))',
            )

    def _type(self, name: str) -> pa.DataType:
        type_ = self.df.schema[self.names.index(name)].dataType
        try:
            return canonical(to_arrow_type(type_, timezone="UTC"), name)
        except PySparkException as cause:
            raise SchemaError(
                f'column "{name}" has type {type_.simpleString()}, which rows cannot hold',
                hint=f'cast it first, e.g. df.withColumn("{name}", F.col("{name}").cast("string"))',
            ) from cause

    def _fits(self, name: str) -> bool:
        """Returns whether a column that nobody names can travel along."""
        try:
            self._require([name])
            self._type(name)
        except SchemaError:
            return False
        return True


def _reads_all(op: Windows) -> bool:
    """Returns whether columns that nobody names matter: to a fold over rows, or for the order of rows."""
    aggregates = (op.aggregates or {}).values()
    folds = [aggregate for aggregate in aggregates if isinstance(aggregate, Fold)]
    if any(fold.columns is None or not fold.commutative for fold in folds):
        return True
    counted = any(isinstance(spec, CountSpec) for _, spec in op.specs())
    return counted or any(aggregate.ordered for aggregate in aggregates)


def micros(name: str) -> Column:
    """Returns a timestamp column as microseconds; one without a zone is read as UTC, in any session."""
    return F.unix_micros(column(name))


def has_valid_time(name: str) -> Column:
    """Returns where a row has a time that can be computed with."""
    return micros(name).between(long(-LIMIT), long(LIMIT))


def result_schema(schema: pa.Schema) -> StructType:
    """Returns the schema of results in Spark: timestamps without a zone stay so."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


SHIFT = 2**60 // 1_000 * 1_000
"""In microseconds: times from 36,000 years before 1970 on come after 0."""
MARK = "spark.watermarkDelayMs"
"""By this Spark knows a column whose watermark it keeps."""
AT, CLOSES = "penstock_at", "closes"
_NODES = ("EventTimeWatermark", "UpdateEventTimeWatermarkColumn")


@dataclass(frozen=True, slots=True)
class WatermarkedFrame:
    """A frame with a watermark, by its delay, on times that are moved by `shift` microseconds."""

    df: DataFrame
    delay_ms: int
    shift: int

    @property
    def meta(self) -> dict[str, Any]:
        """Returns the metadata that makes Spark close groups of a column by the watermark."""
        return {MARK: self.delay_ms}


def add_watermark(frame: Frame, time: str, delay: Duration | None) -> WatermarkedFrame:
    """Returns the frame with its own watermark, or with one that runs `delay` behind its greatest time."""
    own = frame.df.schema[frame.names.index(time)].metadata.get(MARK)
    if own is not None:
        _refuse_two_watermarks(delay, time, own)
        return WatermarkedFrame(frame.df.where(has_valid_time(time)), int(own), 0)
    _refuse_other_watermark(frame, time)
    if delay is None:
        raise TimeError(
            "a streaming frame needs a watermark, and this one has none",
            detail="without one nothing could ever leave",
            hint=f'say how late rows may come, delay="2 s", or call df.withWatermark("{time}", "2 seconds")',
        )
    us = length(delay, subject="delay")
    if us < 0 or us % 1_000:
        raise TimeError(
            f"delay {spell(us)} is not a number of milliseconds",
            detail="the watermark of a streaming frame is Spark's, in whole milliseconds",
            hint=f'use delay="{max(us, 0) // 1_000 + 1} ms"',
        )
    at = F.timestamp_micros(micros(time) + long(SHIFT)).alias(AT)
    df = frame.df.where(has_valid_time(time)).select("*", at).withWatermark(AT, f"{us // 1_000} milliseconds")
    return WatermarkedFrame(df, us // 1_000, SHIFT)


def closing_time(end: Column, lateness: int, mark: WatermarkedFrame) -> Column:
    """Returns when a slice that ends then is closed, as the column by which Spark closes groups."""
    moved = end + long(lateness + mark.shift)
    return F.timestamp_micros(moved).alias(CLOSES, metadata=mark.meta)


def _refuse_two_watermarks(delay: Duration | None, time: str, own: int) -> None:
    if delay is not None:
        raise TimeError(
            f'both delay={delay!r} and a watermark on "{time}" of {spell(int(own) * 1_000)} are given',
            detail="Spark keeps one watermark, and the frame's own comes first",
            hint="leave delay out, or leave withWatermark out",
        )


def _refuse_other_watermark(frame: Frame, time: str) -> None:
    watermarked = [field.name for field in frame.df.schema if MARK in field.metadata]
    if watermarked or _has_watermark(frame.df._jdf.queryExecution().analyzed()):
        on = f'on "{watermarked[0]}"' if watermarked else "on a column that is gone"
        raise TimeError(
            f'the frame has a watermark {on}, and none on its time "{time}"',
            detail="Spark refuses a second one",
            hint=f'use time="{watermarked[0]}"' if watermarked else f'call withWatermark("{time}", ...) last',
        )


def _has_watermark(plan: Any) -> bool:
    if plan.nodeName() in _NODES:
        return True
    children = plan.children()
    return any(_has_watermark(children.apply(place)) for place in range(children.size()))
