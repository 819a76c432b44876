"""The time of the latest row of a window."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.frozen import dataclass
from penstock.operators.aggregates.base import Aggregate
from penstock.operators.stream import Stream


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
