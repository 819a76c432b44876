"""Source and Sink: the ends of a graph. Where rows come from, when they happened, how late they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.connect.protocol import CheckedReader, Reader, SelectiveWriter, Writer
from penstock.errors import GraphError, TimeError
from penstock.expr import Expr, col, type_of
from penstock.frozen import Frozen
from penstock.operators.function import require_call
from penstock.operators.op import OUT, OnError, Op, Stream
from penstock.timing.units import Duration, TimeType, spell, time_type


class IngestTime(Frozen):
    """Time is when a row was read, by the run's clock."""

    def __str__(self) -> str:
        return "ingest time"


class WatermarkFromSource(Frozen):
    """Watermarks are what the generator yields, and nothing else."""


def ingest_time() -> IngestTime:
    """Use the moment at which a row was read as its time: `source(reader, time=ps.ingest_time())`.

    It never goes back, also when the clock does.
    """
    return IngestTime()


def source_watermark() -> WatermarkFromSource:
    """Let the source's own `ps.Watermark(t)` be the only watermark: `watermark=ps.source_watermark()`."""
    return WatermarkFromSource()


WatermarkRule = Expr | Callable[[pa.RecordBatch], Any] | WatermarkFromSource | None


class SourceTime(Frozen):
    """A source's time, resolved: durations in microseconds.

    column     the time column; None for ingest time
    delay      how far behind the greatest time seen a row may come; None when only `rule` counts
    rule       the source's own watermark: an expression, a function of a batch, or yielded

    follows_clock  whether the watermark goes on with the clock, though no row comes
    """

    column: str | None
    type: TimeType
    delay: int | None
    rule: WatermarkRule
    idle: int | None
    max_future: int | None
    follows_clock: bool = False


class Source(Op, kind="SRC", verb="source", ports=()):
    """Read rows into the graph."""

    reader: Reader
    time: str | IngestTime | None = None
    time_unit: str | None = None
    delay: Duration | None = None
    idle: Duration | None = None
    watermark: str | Expr | Callable[[pa.RecordBatch], Any] | WatermarkFromSource | None = None
    max_future: Duration | None = None

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if not isinstance(self.reader, Reader):
            raise GraphError(
                f"a source reads from a reader, and got {type(self.reader).__name__}",
                hint="use ps.read.rows([...]), ps.read.table(...), ps.read.parquet(...), ...",
            )
        if self.on_error == OnError.FAIL and isinstance(self.reader, CheckedReader):
            self.reader.check_files()
        if self.routing is not None:
            raise GraphError(
                f'routing="{self.routing}" is not for a source: its replicas read for themselves',
                hint="give it to the step behind the source",
            )

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return the reader's columns, and its time."""
        resolved = self.resolve()
        schema = self.reader.schema
        with_raw = self.reader.keeps_raw and "raw" not in schema.names
        malformed = schema.append(pa.field("raw", pa.string())) if with_raw else schema
        out = Stream(schema, resolved.type if resolved else None)
        return {OUT: out, **self.errors_port(Stream(malformed))}

    def resolve(self) -> SourceTime | None:
        """Return the source's time in microseconds; None when it has none."""
        if self.time is None:
            for option in ("time_unit", "delay", "idle", "watermark", "max_future"):
                if getattr(self, option) is not None:
                    raise TimeError(
                        f"{option}= says nothing without time=", hint='name the time column: time="ts"'
                    )
            return None
        schema = self.reader.schema
        if isinstance(self.time, IngestTime):
            if self.time_unit is not None:
                raise TimeError("time_unit= does not go with ps.ingest_time()", hint="leave time_unit out")
            column, type_ = None, TimeType(pa.timestamp("us", "UTC"), "us")
        elif not isinstance(self.time, str):
            raise TimeError(
                f"time={self.time!r} is not a column", hint='use time="ts" or time=ps.ingest_time()'
            )
        else:
            Stream(schema).require(self.time)
            column = self.time
            type_ = time_type(schema.field(self.time).type, self.time_unit, self.time)
        delay = _resolve_optional(self.delay, type_, "delay")
        if delay is not None and isinstance(self.watermark, WatermarkFromSource):
            raise TimeError(
                "delay= and watermark=ps.source_watermark() contradict each other", hint="leave delay out"
            )
        if delay is None and isinstance(self.time, IngestTime):
            delay = 0
        if delay is None and self.watermark is None:
            raise TimeError(
                "a source with time= needs delay=",
                detail="the delay says how far behind the latest row another one may still come",
                hint='delay="0 s" for sorted input, delay="2 s" for rows up to two seconds out of order',
            )
        return SourceTime(
            column=column,
            type=type_,
            delay=delay,
            rule=None if self.watermark is None else self._resolve_rule(schema, type_),
            idle=_resolve_optional(self.idle, type_, "idle"),
            max_future=_resolve_optional(self.max_future, type_, "max_future"),
            follows_clock=column is None and not isinstance(self.watermark, WatermarkFromSource),
        )

    def describe(self) -> str:
        """Return the reader, the time and the delay."""
        resolved = self.resolve()
        text = f"read {self.reader.describe()}"
        if resolved is None:
            return f"{text}; no event time"
        late = "" if resolved.delay is None else f", delay {spell(resolved.delay)}"
        return f"{text}; time {resolved.column or 'of arrival'} ({resolved.type}){late}"

    def _resolve_rule(self, schema: pa.Schema, type_: TimeType) -> WatermarkRule:
        rule = self.watermark
        if isinstance(rule, str):
            Stream(schema).require(rule)
            rule = col(rule)
        if isinstance(rule, Expr):
            rule_type = type_of(rule, schema)
            if rule_type != type_.type:
                raise TimeError(
                    f"watermark {rule} is {rule_type}, and time is {type_.type}",
                    hint="cast it to the type of time",
                )
        elif not isinstance(rule, WatermarkFromSource):
            if not callable(rule):
                raise TimeError(
                    f"watermark={rule!r} is not a column, an expression or a function",
                    hint='use watermark="column", an expression, fn(batch), or ps.source_watermark()',
                )
            require_call(rule, "batch")
        return rule


class Sink(Op, kind="SNK", verb="sink"):
    """Write rows out."""

    writer: Writer

    def __post_init__(self) -> None:
        Op.__post_init__(self)
        if not isinstance(self.writer, Writer):
            raise GraphError(
                f"a sink writes to a writer, and got {type(self.writer).__name__}",
                hint="use ps.write.memory(), ps.write.parquet(...), ps.write.jsonl(...), ...",
            )
        if self.on_error != OnError.FAIL:
            raise GraphError(
                f'on_error="{self.on_error}" is not for a sink: rows that cannot be written stop the run',
                hint="leave on_error out",
            )

    def outputs(self, inputs: Mapping[str, Stream]) -> dict[str, Stream]:
        """Return no stream, because rows end here; raise SchemaError if the writer cannot take them."""
        if isinstance(self.writer, SelectiveWriter):
            for stream in inputs.values():
                self.writer.check_schema(stream.schema)
        return {}

    def describe(self) -> str:
        """Return the writer."""
        return f"write {self.writer.describe()}, {self.writer.delivery}"


def _resolve_optional(duration: Duration | None, time: TimeType, option: str) -> int | None:
    if duration is None:
        return None
    us = time.length(duration, option)
    if us < 0:
        raise TimeError(f"{option} {spell(us)} is negative", hint=f'use zero or more: {option}="2 s"')
    return us
