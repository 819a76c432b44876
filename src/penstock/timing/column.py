"""The time column: how its values and microseconds turn into each other.

Rows carry their time as microseconds since 1970 apart from their columns, so a map may drop or change
the time column without changing when the row happened. Results return in the input's type and unit.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import TimeError
from penstock.frozen import dataclass
from penstock.timing.duration import Duration, micros

LIMIT = 2**61
"""Times beyond this many microseconds from 1970 are row errors: sums of two times must stay in int64."""

_MOST_IN_NS = (2**63 - 1) // 1_000
_INT_UNITS = {"ns": None, "us": 1, "ms": 1_000, "s": 1_000_000}


@dataclass(frozen=True, slots=True)
class TimeType:
    """Type of a time column. `unit` is "us" for timestamps, "day" for dates, and as declared for int64."""

    type: pa.DataType
    unit: str

    @property
    def step(self) -> int:
        """Return the microseconds between two neighbouring values (1 for nanoseconds, which are floored)."""
        return {"ns": 1, "us": 1, "ms": 1_000, "s": 1_000_000, "day": 86_400_000_000}[self.unit]

    @property
    def counts_units(self) -> bool:
        """Return whether a bare int is a duration here: only for int64 columns."""
        return bool(pa.types.is_int64(self.type))

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
        return micros(duration, unit=self.step if self.counts_units else None, subject=subject)

    def __str__(self) -> str:
        return f"{self.type} in {self.unit}" if self.counts_units else str(self.type)


def time_type(type_: pa.DataType, unit: str | None, column: str) -> TimeType:
    """Return the TimeType of a column, or a TimeError that says which columns can be time."""
    if pa.types.is_int64(type_):
        if unit is None:
            raise TimeError(
                f'time column "{column}" is int64 and has no unit',
                hint='say what it counts: time_unit="s", "ms", "us" or "ns"',
            )
        if unit not in _INT_UNITS:
            raise TimeError(f"time_unit {unit!r} is unknown", hint='use "s", "ms", "us" or "ns"')
        return TimeType(type_, unit)
    if unit is not None:
        raise TimeError(
            f'time_unit={unit!r} does not go with time column "{column}" of type {type_}',
            detail="a timestamp or date says its own unit",
            hint="leave time_unit out",
        )
    if pa.types.is_timestamp(type_):
        return TimeType(type_, "us")
    if pa.types.is_date32(type_):
        return TimeType(type_, "day")
    raise TimeError(
        f'column "{column}" of type {type_} cannot be time',
        hint="use a timestamp, a date, or an int64 with time_unit=",
    )
