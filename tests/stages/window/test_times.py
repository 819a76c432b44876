"""Bounds of windows that their time column cannot hold: an error, and never another time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.accounts import Accounts
from penstock.clock import ManualClock
from penstock.errors import TimeError
from penstock.operators import aggregates as spec
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import Stream
from penstock.operators.windows import KeyedWindows
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import StageContext
from penstock.stages.window.stage import WindowStage
from penstock.timing.units import TimeType
from penstock.timing.windows import WindowSpec, count_window, session, tumbling

SCHEMA = pa.schema([("t", pa.int64())])
FIRST, LAST = -(2**63), 2**63 - 1


def results(window: WindowSpec, nanoseconds: int, aggregate: Aggregate) -> list[dict[str, int]]:
    """What one row gives whose time column counts nanoseconds."""
    time = TimeType(pa.int64(), "ns")
    op = KeyedWindows(windows=window, aggregates={"found": aggregate})
    stage = WindowStage(op, Stream(SCHEMA, time), StageContext("w", None, Accounts(), ManualClock()))
    rows = pa.RecordBatch.from_arrays([pa.array([nanoseconds])], schema=SCHEMA)
    batch = Batch(rows, np.array([time.micros(nanoseconds)], np.int64))
    result = [*stage.on_batch(batch, -(2**62)), *stage.drain()]
    return [row for _, batch_ in result for row in batch_.rows.to_pylist()]


@pytest.mark.parametrize("window", [tumbling("1 s"), session("1 s"), tumbling("200000 d")])
def test_a_window_that_ends_behind_the_last_nanosecond_stops_the_run(window: WindowSpec) -> None:
    with pytest.raises(TimeError, match="does not fit into nanoseconds of 64 bits") as failed:
        results(window, LAST, spec.count())
    assert failed.value.step == "w"


def test_a_time_that_was_floored_to_before_the_first_nanosecond_stops_the_run() -> None:
    with pytest.raises(TimeError, match="-9223372036854776 us does not fit"):
        results(count_window(1), FIRST, spec.event_time_max())


@pytest.mark.parametrize("nanoseconds", [FIRST + 2 * 10**9, LAST - 2 * 10**9])
def test_windows_up_to_there_are_given_as_they_are(nanoseconds: int) -> None:
    start = nanoseconds // 10**9 * 10**9
    wanted = {"window_start": start, "window_end": start + 10**9, "found": 1}
    assert results(tumbling("1 s"), nanoseconds, spec.count()) == [wanted]
