"""SpikeDetection: sensor values far from the moving average of their device.

The average is over the last 1,000 values of a device, the current one among them. In the form of rows it
begins with the first value, as in the benchmark suites; in the form of columns, which is a count window, with
the first full window. WindFlow, 5.1; the original data are the temperatures of the Intel Berkeley lab.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import col
from penstock.apps.application import (
    Application,
    Options,
    Rows,
    Tables,
    draw_times,
    in_order,
    let_arrive,
    open_source,
    read_csv,
)

N_DEVICES = 52
SPIKE_SHARE = 0.001
AVERAGED = {"time": int, "device": int, "value": float, "average": float}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeOptions(Options):
    """Options of SpikeDetection; by default there are rows for more than a window of every device.

    window     values of a device that are averaged
    threshold  distance from the average, as a share of it, above which a value is a spike. The suite takes
               0.25; its comments say 0.025, and DSPBench on Flink takes 0.03
    """

    rows: int = 100_000
    window: int = 1_000
    threshold: float = 0.25


def generate(options: SpikeOptions) -> Tables:
    """Make temperatures: a day's wave and noise for each device, and now and then a spike."""
    chance = np.random.default_rng(options.seed)
    n, n_devices = options.rows, options.keys or N_DEVICES
    times, devices = draw_times(chance, n, options.rate), chance.integers(0, n_devices, n)
    base = chance.normal(21.0, 1.5, n_devices)[devices] + 2 * np.sin(times / 86_400e6 * 2 * np.pi)
    values = base + chance.normal(0.0, 0.4, n)
    spikes = chance.random(n) < SPIKE_SHARE
    values[spikes] *= chance.uniform(1.5, 4.0, int(spikes.sum()))
    rows = pa.table({"time": times, "device": devices, "value": values})
    return {"readings": let_arrive(rows, chance, options)}


def load(file: Path) -> Tables:
    """Read a CSV file of timestamps and values, such as those of NAB, as the values of one device."""
    rows = read_csv(file, time="timestamp")
    devices = pa.array(np.zeros(rows.num_rows, np.int64))
    return {"readings": rows.add_column(1, "device", devices).select(["time", "device", "value"])}


@dataclass
class LastValues:
    """The last values of a device, and their sum."""

    values: deque[float] = field(default_factory=deque)
    total: float = 0.0


class MovingAverage:
    """The mean of the last values of a device, which are the state."""

    def __init__(self, window: int) -> None:
        self._window = window

    def __call__(self, row: ps.Row, last: LastValues) -> dict[str, Any]:
        """Return the row with the average."""
        value = row.value
        last.values.append(value)
        last.total += value
        if len(last.values) > self._window:
            last.total -= last.values.popleft()
        average = last.total / len(last.values)
        return {"time": row.time, "device": row.device, "value": value, "average": average}


def build(readers: Mapping[str, Any], writer: Any, options: SpikeOptions) -> ps.PipeGraph:
    """Build the graph: an average by device, and a filter."""
    graph, rows = open_source("spike-detection", readers["readings"], options)
    by_device = rows.key_by("device")
    spread: Any = {"parallelism": options.parallelism, "name": "average"}
    if options.form == "columns":
        averages = (
            by_device.window(ps.count_window(options.window, every=1), **spread)
            .aggregate(time=ps.last("time"), value=ps.last("value"), average=ps.mean("value"))
            .select("time", "device", "value", "average", name="columns")
        )
    else:
        average = MovingAverage(options.window)
        averages = by_device.map(average, schema=AVERAGED, state=LastValues, keeps="device", **spread)
    distance = (col("value") - col("average")).abs()
    averages.filter(distance > options.threshold * col("average"), name="spikes").sink(writer, name="sink")
    return graph


def recount(tables: Tables, options: SpikeOptions) -> Rows:
    """Average the last values of each device anew for every value."""
    by_device: dict[int, list[float]] = defaultdict(list)
    spikes = []
    for row in in_order(tables["readings"]):
        values = by_device[row["device"]]
        values.append(row["value"])
        last = values[-options.window :]
        average = sum(last) / len(last)
        is_full = len(last) == options.window or options.form == "rows"
        if is_full and abs(row["value"] - average) > options.threshold * average:
            spikes.append({**row, "average": average})
    return spikes


SPIKE_DETECTION = Application(
    name="spike-detection",
    label="SD",
    paper="WindFlow",
    summary="values far from the moving average of their device",
    reads="time, device, value; or a CSV file of NAB",
    forms=("rows", "columns"),
    options=SpikeOptions,
    generate=generate,
    build=build,
    recount=recount,
    load=load,
)
