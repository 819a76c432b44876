"""The watermark of a streaming frame: the user's, which Spark lets nobody set twice, or one of ours.

Ours runs on times moved by SHIFT, because Spark's starts at 1970 and what is before it is late. A user's runs
on the true times, so before 1970 everything is late there, as it is for Spark's own windows.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.errors import TimeError
from penstock.frozen import dataclass
from penstock.spark.frames import Frame, in_time, micros
from penstock.timing.duration import Duration, spell
from penstock.timing.duration import micros as length

SHIFT = 2**60 // 1_000 * 1_000
"""Microseconds: times from 36,000 years before 1970 on come after 0."""
MARK = "spark.watermarkDelayMs"
"""By this Spark knows a column whose watermark it keeps."""
AT, CLOSES = "penstock_at", "closes"
_NODES = ("EventTimeWatermark", "UpdateEventTimeWatermarkColumn")


@dataclass(frozen=True, slots=True)
class Marked:
    """A frame with a watermark, by its delay, on times that are moved by `shift` microseconds."""

    df: DataFrame
    delay_ms: int
    shift: int

    @property
    def meta(self) -> dict[str, Any]:
        """What makes Spark close groups of a column by the watermark."""
        return {MARK: self.delay_ms}


def marked(frame: Frame, time: str, delay: Duration | None) -> Marked:
    """The frame with its own watermark, or with one that runs `delay` behind its greatest time."""
    own = frame.df.schema[frame.names.index(time)].metadata.get(MARK)
    if own is not None:
        _leave_out(delay, time, own)
        return Marked(frame.df.where(in_time(time)), int(own), 0)
    _refuse_others(frame, time)
    if delay is None:
        raise TimeError(
            "a streaming frame needs a watermark, and this one has none",
            detail="without one nothing could ever leave",
            hint=f'say how late rows may come, delay="2 s", or call df.withWatermark("{time}", "2 seconds")',
        )
    us = length(delay, what="delay")
    if us < 0 or us % 1_000:
        raise TimeError(
            f"delay {spell(us)} is not a number of milliseconds",
            detail="the watermark of a streaming frame is Spark's, in whole milliseconds",
            hint=f'use delay="{max(us, 0) // 1_000 + 1} ms"',
        )
    at = F.timestamp_micros(micros(time) + F.lit(SHIFT).cast("long")).alias(AT)
    df = frame.df.where(in_time(time)).select("*", at).withWatermark(AT, f"{us // 1_000} milliseconds")
    return Marked(df, us // 1_000, SHIFT)


def closes(end: Column, lateness: int, mark: Marked) -> Column:
    """When a slice that ends then is closed, as the column that Spark's aggregation closes groups by."""
    moved = end + F.lit(lateness + mark.shift).cast("long")
    return F.timestamp_micros(moved).alias(CLOSES, metadata=mark.meta)


def _leave_out(delay: Duration | None, time: str, own: int) -> None:
    if delay is not None:
        raise TimeError(
            f'both delay={delay!r} and a watermark on "{time}" of {spell(int(own) * 1_000)} are given',
            detail="Spark keeps one watermark, and the frame's own comes first",
            hint="leave delay out, or leave withWatermark out",
        )


def _refuse_others(frame: Frame, time: str) -> None:
    others = [field.name for field in frame.df.schema if MARK in field.metadata]
    if others or _has_watermark(frame.df._jdf.queryExecution().analyzed()):
        on = f'on "{others[0]}"' if others else "on a column that is gone"
        raise TimeError(
            f'the frame has a watermark {on}, and none on its time "{time}"',
            detail="Spark refuses a second one",
            hint=f'use time="{others[0]}"' if others else f'call withWatermark("{time}", ...) last',
        )


def _has_watermark(plan: Any) -> bool:
    if plan.nodeName() in _NODES:
        return True
    children = plan.children()
    return any(_has_watermark(children.apply(place)) for place in range(children.size()))
