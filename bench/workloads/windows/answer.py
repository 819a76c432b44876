"""What is right: the windows by plain NumPy, rows to panes to windows, and how answers are compared.

A way's answer is a function that gives it as an Answer: turning it into one is not what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from bench.workloads.windows.functions import NEEDS_EXTREMES, TWINS, Known
from bench.workloads.windows.shape import Flow, Shape

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Windows by (start, key), with their results: values[i] belongs to starts[i] and keys[i].

    Of count windows `starts` holds the index.
    """

    starts: Ints
    keys: Ints
    values: Floats

    @classmethod
    def of(cls, starts: npt.NDArray[Any], keys: npt.NDArray[Any], values: npt.NDArray[Any]) -> Answer:
        """Return an answer whose windows come in any order."""
        order = np.lexsort((keys, starts))
        return cls(starts[order], keys[order], values.reshape(len(starts), -1)[order].astype(np.float64))


Given = Callable[[], Answer]
"""What a way gives back."""


def right(flow: Flow) -> Answer:
    """Return the windows that leave while the clock runs."""
    return _counted(flow) if flow.shape.counted else _timed(flow)


def wrong(expected: Any, answer: Any) -> str | None:
    """Return what is wrong with an answer, or None. Sums are exact; means and deviations agree to 1e-9."""
    if not isinstance(expected, Answer):
        same = bool(np.allclose(expected, answer, rtol=1e-9, atol=0))
        return None if same else f"expected {expected}, got {answer}"
    given = answer()
    if len(given.starts) != len(expected.starts):
        return f"expected {len(expected.starts):,} windows, got {len(given.starts):,}"
    for what in ("starts", "keys"):
        if not np.array_equal(getattr(expected, what), getattr(given, what)):
            return f"the {what} of windows differ"
    off = ~np.isclose(given.values, expected.values, rtol=1e-9, atol=0)
    if not off.any():
        return None
    at = int(off.any(axis=1).argmax())
    where = f"window {expected.starts[at]} of key {expected.keys[at]}"
    return f"{where}: expected {expected.values[at].tolist()}, got {given.values[at].tolist()}"


def _counted(flow: Flow) -> Answer:
    """Count windows of one key; the mean, since nothing else is asked of them."""
    shape = flow.shape
    assert shape.function == "mean", "count windows are only asked for the mean"
    upto = np.concatenate([[0.0], np.cumsum(flow.values[np.argsort(flow.times, kind="stable")])])
    index = np.arange(max(0, (shape.n_rows - shape.size) // shape.every + 1))
    first = index * shape.every
    means = (upto[first + shape.size] - upto[first]) / shape.size
    return Answer.of(index, np.zeros_like(index), means)


def _timed(flow: Flow) -> Answer:
    shape = flow.shape
    n_keys = max(shape.n_keys, 1)
    times, keys, values = (
        np.concatenate(both) for both in zip(flow.lead, (flow.times, flow.keys, flow.values), strict=True)
    )
    first = int(times.min()) // shape.every
    n_panes = int(times.max()) // shape.every - first + 1
    cells = (times // shape.every - first) * n_keys + keys
    known = _windows(shape, cells, values, (n_panes, n_keys))
    starts = (first - (shape.per_window - 1) + np.arange(known.n.shape[0])) * shape.every
    leaving = _leaving(flow, starts)[:, None] & (known.n > 0)
    found = Known(*(each[leaving] if each.size else each for each in known))
    window, key = np.nonzero(leaving)
    return Answer.of(starts[window], key, np.stack(TWINS[shape.function](found), axis=1))


def _leaving(flow: Flow, starts: Ints) -> npt.NDArray[np.bool_]:
    """Return which windows leave while the clock runs: in a steady case those between its watermarks."""
    ends = starts + flow.shape.size
    if flow.begin is None:
        return np.ones(len(starts), np.bool_)
    return (ends > flow.begin) & (ends <= flow.watermarks[-1])


def _windows(shape: Shape, cells: Ints, values: Floats, panes: tuple[int, int]) -> Known:
    """Return what is known of every window that touches a pane, as [window, key]."""
    n, span = panes[0] * panes[1], shape.per_window
    counts = np.bincount(cells, minlength=n).astype(np.float64)
    totals, squares = (_added(cells, each, n) for each in (values, values * values))
    n_rows, total, square = (_sums(each.reshape(panes), span) for each in (counts, totals, squares))
    if shape.function not in NEEDS_EXTREMES:
        return Known(n_rows, total, square, *[np.empty(0)] * 4)
    least, n_least = _least(cells, values, panes, span)
    most, n_most = _least(cells, -values, panes, span)
    return Known(n_rows, total, square, least, n_least, -most, n_most)


def _added(cells: Ints, values: npt.NDArray[Any], n: int) -> Floats:
    return np.asarray(np.bincount(cells, values, n), np.float64)


def _sums(panes: Floats, span: int) -> Floats:
    """Return the sum of every `span` neighbouring panes, also of those at either end; exact here."""
    edge = np.zeros((span, panes.shape[1]))
    upto = np.cumsum(np.concatenate([edge, panes, edge[1:]]), axis=0)
    return np.asarray(upto[span:] - upto[:-span])


def _least(cells: Ints, values: Floats, shape: tuple[int, int], span: int) -> tuple[Floats, Floats]:
    """Return the least value of every window, and how many rows have it."""
    least = np.full(shape[0] * shape[1], np.inf)
    np.minimum.at(least, cells, values)
    n_least = _added(cells, values == least[cells], len(least))
    views = [
        sliding_window_view(_padded(each.reshape(shape), span, blank), span, axis=0)
        for each, blank in ((least, np.inf), (n_least, 0.0))
    ]
    of_window = views[0].min(axis=-1)
    return of_window, np.where(views[0] == of_window[..., None], views[1], 0.0).sum(axis=-1)


def _padded(panes: Floats, span: int, blank: float) -> Floats:
    edge = np.full((span - 1, panes.shape[1]), blank)
    return np.concatenate([edge, panes, edge])
