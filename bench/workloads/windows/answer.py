"""The right windows by plain NumPy, from rows to panes to windows, and the comparison of answers.

The answer of a way is a function that returns an `Answer`, so that the conversion is not timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from bench.workloads.windows.shape import NEEDS_EXTREMES, TWINS, Flow, Shape, WindowStatistics

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Windows by (start, key), with their results: values[i] belongs to starts[i] and keys[i].

    For count windows `starts` holds the index.
    """

    starts: Ints
    keys: Ints
    values: Floats

    @classmethod
    def of(cls, starts: npt.NDArray[Any], keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> Answer:
        """Return an answer from windows in any order."""
        order = np.lexsort((keys, starts))
        return cls(starts[order], keys[order], values.reshape(len(starts), -1)[order].astype(np.float64))


LazyAnswer = Callable[[], Answer]
"""The answer of a way, still to be converted."""


def compute_answer(flow: Flow) -> Answer:
    """Return the windows that close while the clock runs."""
    return _count_windows(flow) if flow.shape.counted else _time_windows(flow)


def check_answer(expected: Any, answer: Any) -> str | None:
    """Return what is wrong with an answer, or None; sums are exact, means and deviations agree to 1e-9."""
    if not isinstance(expected, Answer):
        same = bool(np.allclose(expected, answer, rtol=1e-9, atol=0))
        return None if same else f"expected {expected}, got {answer}"
    windows = answer()
    if len(windows.starts) != len(expected.starts):
        return f"expected {len(expected.starts):,} windows, got {len(windows.starts):,}"
    for column in ("starts", "keys"):
        if not np.array_equal(getattr(expected, column), getattr(windows, column)):
            return f"the {column} of windows differ"
    off = ~np.isclose(windows.values, expected.values, rtol=1e-9, atol=0)
    if not off.any():
        return None
    at = int(off.any(axis=1).argmax())
    where = f"window {expected.starts[at]} of key {expected.keys[at]}"
    return f"{where}: expected {expected.values[at].tolist()}, got {windows.values[at].tolist()}"


def _count_windows(flow: Flow) -> Answer:
    """Return the means of count windows of one key; no other function is measured on them."""
    shape = flow.shape
    assert shape.function == "mean", "count windows are only asked for the mean"
    upto = np.concatenate([[0.0], np.cumsum(flow.values[np.argsort(flow.times, kind="stable")])])
    index = np.arange(max(0, (shape.n_rows - shape.size) // shape.every + 1))
    first = index * shape.every
    means = (upto[first + shape.size] - upto[first]) / shape.size
    return Answer.of(index, np.zeros_like(index), means)


def _time_windows(flow: Flow) -> Answer:
    shape = flow.shape
    n_keys = max(shape.n_keys, 1)
    times, keys, values = (
        np.concatenate(both) for both in zip(flow.lead, (flow.times, flow.keys, flow.values), strict=True)
    )
    first = int(times.min()) // shape.every
    n_panes = int(times.max()) // shape.every - first + 1
    cells = (times // shape.every - first) * n_keys + keys
    known = _window_statistics(shape, cells, values, (n_panes, n_keys))
    starts = (first - (shape.per_window - 1) + np.arange(known.n.shape[0])) * shape.every
    closes = _closes_in_run(flow, starts)[:, None] & (known.n > 0)
    closed = WindowStatistics(*(column[closes] if column.size else column for column in known))
    window, key = np.nonzero(closes)
    return Answer.of(starts[window], key, np.stack(TWINS[shape.function](closed), axis=1))


def _closes_in_run(flow: Flow, starts: Ints) -> npt.NDArray[np.bool_]:
    """Return which windows close while the clock runs: in a steady case those between its watermarks."""
    ends = starts + flow.shape.size
    if flow.begin is None:
        return np.ones(len(starts), np.bool_)
    return (ends > flow.begin) & (ends <= flow.watermarks[-1])


def _window_statistics(shape: Shape, cells: Ints, values: Floats, panes: tuple[int, int]) -> WindowStatistics:
    """Return the statistics of every window that touches a pane, as [window, key]."""
    n, span = panes[0] * panes[1], shape.per_window
    counts = np.bincount(cells, minlength=n).astype(np.float64)
    totals, squares = (_sum_per_cell(cells, column, n) for column in (values, values * values))
    n_rows, total, square = (
        _sum_windows(column.reshape(panes), span) for column in (counts, totals, squares)
    )
    if shape.function not in NEEDS_EXTREMES:
        return WindowStatistics(n_rows, total, square, *[np.empty(0)] * 4)
    least, n_least = _least_per_window(cells, values, panes, span)
    most, n_most = _least_per_window(cells, -values, panes, span)
    return WindowStatistics(n_rows, total, square, least, n_least, -most, n_most)


def _sum_per_cell(cells: Ints, values: npt.NDArray[Any], n: int) -> Floats:
    return np.asarray(np.bincount(cells, values, n), np.float64)


def _sum_windows(panes: Floats, span: int) -> Floats:
    """Return the sum of every `span` neighbouring panes, including partial ones at either end."""
    edge = np.zeros((span, panes.shape[1]))
    upto = np.cumsum(np.concatenate([edge, panes, edge[1:]]), axis=0)
    return np.asarray(upto[span:] - upto[:-span])


def _least_per_window(
    cells: Ints, values: Floats, shape: tuple[int, int], span: int
) -> tuple[Floats, Floats]:
    """Return the least value of every window, and the number of rows that have it."""
    least = np.full(shape[0] * shape[1], np.inf)
    np.minimum.at(least, cells, values)
    n_least = _sum_per_cell(cells, values == least[cells], len(least))
    views = [
        sliding_window_view(_pad(column.reshape(shape), span, blank), span, axis=0)
        for column, blank in ((least, np.inf), (n_least, 0.0))
    ]
    of_window = views[0].min(axis=-1)
    return of_window, np.where(views[0] == of_window[..., None], views[1], 0.0).sum(axis=-1)


def _pad(panes: Floats, span: int, blank: float) -> Floats:
    edge = np.full((span - 1, panes.shape[1]), blank)
    return np.concatenate([edge, panes, edge])
