"""The first value in order of time."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expr import Expr
from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate, aggregated
from penstock.operators.stream import Stream


@dataclass(frozen=True, slots=True)
class First(Aggregate):
    """The first value that is not null, in the order (time, seq)."""

    label: ClassVar[str] = "first"
    ordered: ClassVar[bool] = True

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        return self.value_type(up)


def first(value: str | Expr) -> First:
    """The first value of a column or an expression, in order of time."""
    return First(aggregated(value))


# The last value in order of time.


@dataclass(frozen=True, slots=True)
class Last(Aggregate):
    """The last value that is not null, in the order (time, seq)."""

    label: ClassVar[str] = "last"
    ordered: ClassVar[bool] = True

    def type(self, up: Stream) -> pa.DataType:
        """The type of the value."""
        return self.value_type(up)


def last(value: str | Expr) -> Last:
    """The last value of a column or an expression, in order of time."""
    return Last(aggregated(value))


# All the values, as a list.


@dataclass(frozen=True, slots=True)
class Collect(Aggregate):
    """All values that are not null, in the order (time, seq)."""

    label: ClassVar[str] = "collect"
    ordered: ClassVar[bool] = True

    def type(self, up: Stream) -> pa.DataType:
        """A list of the value's type."""
        return pa.list_(self.value_type(up))


def collect(value: str | Expr) -> Collect:
    """A list of the values of a column or an expression, in order of time."""
    return Collect(aggregated(value))


# The time of the latest row of a window.


@dataclass(frozen=True, slots=True)
class EventTimeMax(Aggregate):
    """The greatest event time that contributed, in the input's type and unit."""

    label: ClassVar[str] = "event_time_max"

    def type(self, up: Stream) -> pa.DataType:
        """The type of the time column."""
        return up.require_time("event_time_max").type


def event_time_max() -> EventTimeMax:
    """The greatest event time among the window's rows: what latency is measured from."""
    return EventTimeMax(None)
