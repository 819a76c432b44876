"""Window tasks over the rows of `dataframes.py`, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import penstock as ps
from penstock.engines.spark.dataframes.window_task import WindowTask
from penstock.errors import Where
from penstock.operators.aggregates import Aggregate
from penstock.operators.op import Stream
from penstock.operators.windows import KeyedWindows
from penstock.timing.units import TimeType
from tests.support.dataframes import SCHEMA, UTC

HERE = Where("program.py", 7)


def recipe(
    window: Any,
    aggregates: Mapping[str, Aggregate] | None = None,
    *,
    keys: Sequence[str] = ("page",),
    utc: bool = True,
    streams: bool = True,
    lateness: str = "0 s",
) -> WindowTask:
    up = Stream(SCHEMA, TimeType(UTC, "us"), tuple(keys))
    op = KeyedWindows(window, aggregates=aggregates or {"rows": ps.count()}, lateness=lateness)
    return WindowTask.of(op, up, "ts", HERE, utc=utc, streams=streams)
