"""The peers: reading the columns, a bucket per window, pandas and Polars.

Peers work in batch: they have all rows before they begin, as frames built outside the clock. Each is written
as its users would write it. The bucket per window is as fast as NumPy allows: dense window numbers and
`bincount`, batch by batch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from bench.workload import BenchError
from bench.workloads.windows.answer import Answer, LazyAnswer
from bench.workloads.windows.shape import BEGIN, Flow

COPIES = 1 << 18
"""Copies of rows that a bucket per window makes at a time."""


def read_columns(flow: Flow) -> list[float]:
    """Return the sum of each column: the cost of reading the data."""
    return [float(column.sum()) for column in flow.columns]


def sum_columns_by_parts(flow: Flow) -> list[float]:
    """Return the same sums computed by parts, as the oracle of `read_columns`."""
    return [sum(float(part.sum()) for part in np.array_split(column, 7)) for column in flow.columns]


def fill_buckets(flow: Flow) -> LazyAnswer:
    """Copy every row into each of its windows, then group the copies."""
    shape, n_keys, span = flow.shape, max(flow.shape.n_keys, 1), flow.shape.per_window
    first = -span + 1 if shape.counted else BEGIN // shape.every - span + 1
    n_slides = -(-shape.n_rows // shape.every) if shape.counted else shape.n_slices
    totals = np.zeros((n_slides + span) * n_keys)
    back = np.arange(span)
    # Few enough rows at a time for their copies to stay in the caches.
    step = max(min(shape.batch, COPIES // span), 1)
    for start in range(0, shape.n_rows, step):
        part = slice(start, start + step)
        last = _slide_numbers(flow, part) - first
        windows = (last[:, None] - back[None, :]).ravel()
        buckets = windows * n_keys + np.repeat(flow.keys[part], span) if n_keys > 1 else windows
        weights = np.repeat(flow.values[part], span) if shape.function != "count" else None
        # Why: a bincount of all windows in every step would cost more than the copies.
        low = int(buckets.min())
        sums = np.bincount(buckets - low, weights)
        totals[low : low + len(sums)] += sums
    return lambda: _answer_from_buckets(flow, totals, first)


def _slide_numbers(flow: Flow, part: slice) -> Any:
    """Return the number of the slide that each row falls in."""
    if flow.shape.counted:
        return np.arange(part.start, min(part.stop, flow.shape.n_rows)) // flow.shape.every
    return flow.times[part] // flow.shape.every


def _answer_from_buckets(flow: Flow, totals: Any, first: int) -> Answer:
    """Return the answer of non-empty buckets; values are above 0, so a bucket of 0 has no rows."""
    shape = flow.shape
    (filled,) = np.nonzero(totals)
    windows, keys = np.divmod(filled, max(shape.n_keys, 1))
    if not shape.counted:
        return Answer.of((first + windows) * shape.every, keys, totals[filled])
    whole = (first + windows >= 0) & ((first + windows) * shape.every + shape.size <= shape.n_rows)
    return Answer.of((first + windows)[whole], keys[whole], totals[filled][whole] / shape.size)


class Frame(NamedTuple):
    """The rows of a case as a data frame of a peer, and the peer's module."""

    peer: Any
    frame: Any
    flow: Flow


def build_pandas_frame(flow: Flow) -> Frame:
    """Return the rows as a pandas frame."""
    pandas = import_peer("pandas")
    columns = {"time": flow.times, "key": flow.keys, "value": flow.values}
    return Frame(pandas, pandas.DataFrame(columns, copy=False), flow)


def run_pandas(inputs: Frame) -> LazyAnswer:
    """Group rows to panes and roll panes to windows; a window is named by its last pane."""
    _, frame, flow = inputs
    shape, every, span = flow.shape, flow.shape.every, flow.shape.per_window
    if shape.counted:
        means = frame["value"].rolling(shape.size).mean().iloc[shape.size - 1 :: every]
        return lambda: _answer_from_means(means.to_numpy())
    pane = frame["time"] // every
    groups = frame["value"].groupby([pane, frame["key"]] if shape.n_keys else pane)
    panes = groups.count() if shape.function == "count" else groups.sum()
    if span == 1 and shape.n_keys:
        return lambda: _answer_from_pandas(panes, every, span)
    wide = panes.unstack(fill_value=0.0) if shape.n_keys else panes.to_frame(0)
    reach = range(int(wide.index[0]) - span + 1, int(wide.index[-1]) + span)
    windows = wide.reindex(reach, fill_value=0.0).rolling(span).sum().iloc[span - 1 :].stack()
    return lambda: _answer_from_pandas(windows, every, span)


def _answer_from_means(means: Any) -> Answer:
    index = np.arange(len(means))
    return Answer.of(index, np.zeros_like(index), means)


def _answer_from_pandas(windows: Any, every: int, span: int) -> Answer:
    values = windows.to_numpy()
    last, keys = (np.asarray(windows.index.get_level_values(level)) for level in (0, 1))
    filled = values > 0
    return Answer.of((last[filled] - span + 1) * every, keys[filled], values[filled])


def build_polars_frame(flow: Flow) -> Frame:
    """Return the rows as a Polars frame, marked as sorted by time where they are."""
    polars = import_peer("polars")
    frame = polars.DataFrame({"time": flow.times, "key": flow.keys, "value": flow.values})
    rising = frame if flow.shape.mean_delay else frame.with_columns(polars.col("time").set_sorted())
    return Frame(polars, rising, flow)


def run_polars(inputs: Frame) -> LazyAnswer:
    """Group by `group_by_dynamic`, begun one window early to include all windows of the first row.

    It requires sorted times, so late rows are sorted first. Tumbling windows are a plain group-by.
    """
    polars, frame, flow = inputs
    shape = flow.shape
    size, every = shape.size, shape.every
    value = polars.col("value")
    if shape.counted:
        means = frame.select(value.rolling_mean(size).slice(size - 1).gather_every(every))
        return lambda: _answer_from_means(means["value"].to_numpy())
    result = value.len() if shape.function == "count" else value.sum()
    keys = ["key"] if shape.n_keys else []
    if shape.per_window == 1:
        windows = frame.group_by((polars.col("time") // every) * every, *keys).agg(result)
    else:
        rising = frame.sort("time") if shape.mean_delay else frame
        dynamic = rising.group_by_dynamic(
            "time",
            every=f"{every}i",
            period=f"{size}i",
            offset=f"-{size - every}i",
            closed="left",
            group_by=keys or None,
        )
        windows = dynamic.agg(result)
    return lambda: _answer_from_polars(windows)


def _answer_from_polars(windows: Any) -> Answer:
    starts = windows["time"].to_numpy()
    keys = windows["key"].to_numpy() if "key" in windows.columns else np.zeros(len(starts), np.int64)
    return Answer.of(starts, keys, windows["value"].to_numpy())


def import_peer(name: str) -> Any:
    """Import a peer; raise if it is not installed."""
    try:
        return import_module(name)
    except ImportError as cause:
        raise BenchError(f"{name} is not installed", hint="make setup") from cause
