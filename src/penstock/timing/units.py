"""Units of time: durations as people write them, and time columns; inside, all are microseconds.

A duration is "10 s", "100 ms", "5 min", a timedelta, or a bare count of an int64 column's units. Rows carry
their time as microseconds since 1970 apart from their columns, so a map may drop or change the time column
without changing when the row happened. Results return in the input's type and unit.
"""

from __future__ import annotations

import re
from datetime import timedelta

import pyarrow as pa

from penstock.errors import TimeError
from penstock.frozen import Frozen

Duration = str | timedelta | int

MICROS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_NAMES = {
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}
_FORM = re.compile(r"\s*(\d+)(?:\.(\d+))?\s*([A-Za-zµ]+)\s*")
_HINT = 'durations look like "10 s", "100 ms", "5 min", "1.5 h" or timedelta(seconds=10)'
LIMIT = 2**61
"""Times beyond this many microseconds from 1970 are row errors: sums of two times must stay in int64."""
_MOST_IN_NS = (2**63 - 1) // 1_000
_STEPS = {"ns": 1, "us": 1, "ms": 1_000, "s": 1_000_000, "day": 86_400_000_000}
"""The microseconds between two neighbouring values (1 for nanoseconds, which are floored)."""


def micros(duration: Duration, *, unit: int | None = None, subject: str = "duration") -> int:
    """Return a duration in microseconds.

    `unit` is the length of one step of an int64 time column in microseconds: only there is a bare int a
    duration. Fractions are kept exactly or refused, never rounded.

    >>> micros("1.5 s")
    1500000
    """
    if isinstance(duration, timedelta):
        return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds
    if isinstance(duration, bool) or not isinstance(duration, (int, str)):
        raise TimeError(f"{subject} {duration!r} is not a duration", hint=_HINT)
    if isinstance(duration, int):
        if unit is None:
            raise TimeError(
                f"{subject} {duration} has no unit",
                detail="a bare number is a duration only where the time column is int64",
                hint=f'write "{duration} s", "{duration} ms" or a timedelta',
            )
        return duration * unit
    form = _FORM.fullmatch(duration)
    name = _NAMES.get(form[3]) if form else None
    if form is None or name is None:
        raise TimeError(f"{subject} {duration!r} is not a duration", hint=_HINT)
    scale = MICROS[name]
    fraction = form[2] or ""
    tenths: int = 10 ** len(fraction)
    part, rest = divmod(int(fraction or 0) * scale, tenths)
    if rest:
        raise TimeError(f"{subject} {duration!r} is not a whole number of microseconds", hint=_HINT)
    return int(form[1]) * scale + part


def spell(us: int) -> str:
    """Return a duration in the largest unit that keeps it whole, for explain() and errors.

    >>> spell(90_000_000)
    '90 s'
    """
    for name in ("d", "h", "min", "s", "ms"):
        if us and us % MICROS[name] == 0:
            return f"{us // MICROS[name]} {name}"
    return f"{us} us"


class TimeType(Frozen):
    """Type of a time column. `unit` is "us" for timestamps, "day" for dates, and as declared for int64."""

    type: pa.DataType
    unit: str

    @property
    def step(self) -> int:
        """Return the microseconds between two neighbouring values (1 for nanoseconds, which are floored)."""
        return _STEPS[self.unit]

    def micros(self, value: int) -> int:
        """Return a value of the column in microseconds; nanoseconds are floored."""
        return value // 1_000 if self.unit == "ns" else value * self.step

    def value(self, us: int) -> int:
        """Return microseconds in the unit of the column, floored; raise TimeError if that does not fit."""
        if self.unit != "ns":
            return us // self.step
        if abs(us) > _MOST_IN_NS:
            raise TimeError(
                f"the time {us} us does not fit into nanoseconds of 64 bits",
                detail="these end 292 years before and after 1970, and so must windows",
                hint='use a timestamp column, or an int64 with time_unit="us"',
            )
        return us * 1_000

    def length(self, duration: Duration, subject: str) -> int:
        """Return a duration in microseconds; a bare int counts the column's own unit."""
        if self.unit == "ns" and isinstance(duration, int) and not isinstance(duration, bool):
            us, rest = divmod(duration, 1_000)
            if rest:
                raise TimeError(
                    f"{subject} {duration} ns is not a whole number of microseconds",
                    detail="times in nanoseconds are floored to microseconds",
                    hint=f'write {us * 1_000}, or a duration such as "10 s"',
                )
            return us
        return micros(duration, unit=self.step if pa.types.is_int64(self.type) else None, subject=subject)

    def __str__(self) -> str:
        return f"{self.type} in {self.unit}" if pa.types.is_int64(self.type) else str(self.type)


def time_type(type_: pa.DataType, unit: str | None, column: str) -> TimeType:
    """Return the TimeType of a column, or a TimeError that says which columns can be time."""
    if pa.types.is_int64(type_):
        if unit is None:
            raise TimeError(
                f'time column "{column}" is int64 and has no unit',
                hint='say what it counts: time_unit="s", "ms", "us" or "ns"',
            )
        if unit == "day" or unit not in _STEPS:
            raise TimeError(f"time_unit {unit!r} is unknown", hint='use "s", "ms", "us" or "ns"')
        return TimeType(type_, unit)
    if pa.types.is_floating(type_):
        raise TimeError(
            f'time column "{column}" is {type_}, and time is counted in whole microseconds',
            detail="floats, such as those of time.time(), are rounded here and there to other microseconds",
            hint='give an int64, int(time.time() * 1_000_000), with time_unit="us"; or a timestamp, '
            "datetime.now(UTC)",
        )
    if not (pa.types.is_timestamp(type_) or pa.types.is_date32(type_)):
        raise TimeError(
            f'column "{column}" of type {type_} cannot be time',
            hint="use a timestamp, a date, or an int64 with time_unit=",
        )
    if unit is not None:
        raise TimeError(
            f'time_unit={unit!r} does not go with time column "{column}" of type {type_}',
            detail="a timestamp or date says its own unit",
            hint="leave time_unit out",
        )
    return TimeType(type_, "us" if pa.types.is_timestamp(type_) else "day")
