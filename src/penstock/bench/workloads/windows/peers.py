"""What ours is held against: reading the columns, a bucket per window, pandas and Polars.

Peers work in batch: they have all rows before they begin, as frames made outside the clock. Each does what
a user of it would write. The bucket per window is given every help: dense numbers of windows and NumPy's
fastest group-by, batch by batch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from penstock.bench.errors import BenchError
from penstock.bench.workloads.windows.answer import Answer, Given
from penstock.bench.workloads.windows.shape import BEGIN, Flow


def read_columns(flow: Flow) -> list[float]:
    """The sum of each column: what it costs to look at the data at all."""
    return [float(column.sum()) for column in flow.columns]


def sums_of_columns(flow: Flow) -> list[float]:
    """The same by parts, as the oracle of reading."""
    return [sum(float(part.sum()) for part in np.array_split(column, 7)) for column in flow.columns]


def bucket_per_window(flow: Flow) -> Given:
    """Every row copied into each of its windows, then a group-by of the copies."""
    shape, n_keys = flow.shape, max(flow.shape.n_keys, 1)
    span = shape.per_window
    first = BEGIN // shape.every - span + 1
    totals = np.zeros((shape.n_slices + span) * n_keys)
    back = np.arange(span)
    for start in range(0, shape.n_rows, shape.batch):
        part = slice(start, start + shape.batch)
        last = flow.times[part] // shape.every - first
        windows = (last[:, None] - back[None, :]).ravel()
        buckets = windows * n_keys + np.repeat(flow.keys[part], span) if n_keys > 1 else windows
        totals += np.bincount(buckets, np.repeat(flow.values[part], span), len(totals))
    return lambda: _of_buckets(flow, totals, first)


def _of_buckets(flow: Flow, totals: Any, first: int) -> Answer:
    """Values are not negative, and some of any window's are not 0: a bucket of 0 has no rows."""
    (filled,) = np.nonzero(totals)
    windows, keys = np.divmod(filled, max(flow.shape.n_keys, 1))
    return Answer.of((first + windows) * flow.shape.every, keys, totals[filled])


class Frame(NamedTuple):
    """A case as a frame of a peer, and the peer."""

    peer: Any
    frame: Any
    flow: Flow


def pandas_frame(flow: Flow) -> Frame:
    """The rows as a pandas frame."""
    pandas = need("pandas")
    columns = {"time": flow.times, "key": flow.keys, "value": flow.values}
    return Frame(pandas, pandas.DataFrame(columns, copy=False), flow)


def by_pandas(given: Frame) -> Given:
    """Panes by group-by, windows by rolling: the windows end at a pane, so each is named by its last one."""
    _, frame, flow = given
    every, span = flow.shape.every, flow.shape.per_window
    pane = frame["time"] // every
    if flow.shape.n_keys:
        panes = frame["value"].groupby([pane, frame["key"]]).sum().unstack(fill_value=0.0)
    else:
        panes = frame["value"].groupby(pane).sum().to_frame(0)
    reach = range(int(panes.index[0]) - span + 1, int(panes.index[-1]) + span)
    windows = panes.reindex(reach, fill_value=0.0).rolling(span).sum().iloc[span - 1 :].stack()
    return lambda: _of_pandas(windows, every, span)


def _of_pandas(windows: Any, every: int, span: int) -> Answer:
    values = windows.to_numpy()
    last, keys = (np.asarray(windows.index.get_level_values(level)) for level in (0, 1))
    filled = values > 0
    return Answer.of((last[filled] - span + 1) * every, keys[filled], values[filled])


def polars_frame(flow: Flow) -> Frame:
    """The rows as a Polars frame that knows that its times rise."""
    polars = need("polars")
    frame = polars.DataFrame({"time": flow.times, "key": flow.keys, "value": flow.values})
    return Frame(polars, frame.with_columns(polars.col("time").set_sorted()), flow)


def by_polars(given: Frame) -> Given:
    """Windows by group_by_dynamic, begun a window early so that those over the first row are all there."""
    polars, frame, flow = given
    size, every = flow.shape.size, flow.shape.every
    windows = frame.group_by_dynamic(
        "time",
        every=f"{every}i",
        period=f"{size}i",
        offset=f"-{size - every}i",
        closed="left",
        group_by="key" if flow.shape.n_keys else None,
    ).agg(polars.col("value").sum())
    return lambda: _of_polars(windows)


def _of_polars(windows: Any) -> Answer:
    starts = windows["time"].to_numpy()
    keys = windows["key"].to_numpy() if "key" in windows.columns else np.zeros(len(starts), np.int64)
    return Answer.of(starts, keys, windows["value"].to_numpy())


def need(name: str) -> Any:
    """A peer, if it is installed."""
    try:
        return import_module(name)
    except ImportError as cause:
        raise BenchError(f"{name} is not installed", hint='pip install "penstock[bench]"') from cause
