"""The cost model of DP-Join as pure functions: expressions 2 to 9, and what follows from them.

Expression 1 only says on what the bandwidth depends. Expression 9 is printed with a p too many: a latency is
a time, and 7 and 8 give it without. Rates are rows per second, times are seconds, and `compare_s` is T_on,
the time to evaluate the predicate on one pair: the one constant that has to be measured.

>>> round(max_bandwidth((2100, 2100), 300, 3.6e-6))
9526
>>> best_degree((2100, 2100), 300, 2.32e-9)
7
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, sqrt

Rates = tuple[float, float]
Layout = tuple[int, int]


def latency_of(result_at: float, left_at: float, right_at: float) -> float:
    """Return the latency of one result (2)."""
    return result_at - max(left_at, right_at)


def count_results(rates: Rates, window_s: float, hit_rate: float, seconds: float) -> float:
    """Return the results of an interval (3)."""
    return 2 * rates[0] * rates[1] * seconds * window_s * hit_rate


def max_bandwidth(rates: Rates, window_s: float, hit_rate: float) -> float:
    """Return the results per second if nothing is a bottleneck (4)."""
    return count_results(rates, window_s, hit_rate, 1.0)


def offered_bandwidth(layout: Layout, compare_s: float, hit_rate: float) -> float:
    """Return the results per second that workers can find at most (6)."""
    return layout[0] * layout[1] / compare_s * hit_rate


def predict_bandwidth(
    layout: Layout, rates: Rates, window_s: float, compare_s: float, hit_rate: float
) -> float:
    """Return the results per second of a layout: the lesser of 4 and 6."""
    return min(
        max_bandwidth(rates, window_s, hit_rate), offered_bandwidth(layout, compare_s, hit_rate)
    )


def scalability(bandwidth: float, of_one: float) -> float:
    """Return the scalability (5)."""
    return bandwidth / of_one


def best_degree(rates: Rates, window_s: float, compare_s: float) -> int:
    """Return the least number of workers that reach the greatest bandwidth (3.3.3, by 4 and 6)."""
    return ceil(2 * rates[0] * rates[1] * window_s * compare_s)


def sustainable_rate(n_workers: int, window_s: float, compare_s: float) -> float:
    """Return the greatest rate per stream, both alike, that workers sustain: 6 equals 4."""
    return sqrt(n_workers / (2 * window_s * compare_s))


def average_latency(
    layout: Layout, rates: Rates, window_s: float, compare_s: float, hop_s: float = 0.0
) -> float:
    """Return the average latency of results: 7 for each side, weighted as in 8, and the hops to a worker.

    Of all results, those that a left row finds are as many as those that a right row does (3), whatever the
    rates are: so both weights are a half. A row reaches the k-th worker of its row or column by k hops.

    >>> f"{average_latency((4, 4), (1000, 1000), 300, 2e-9):.2e}"
    '7.50e-05'
    """
    rows, columns = layout
    left = rates[1] * window_s * compare_s / (2 * columns) + hop_s * (columns + 1) / 2
    right = rates[0] * window_s * compare_s / (2 * rows) + hop_s * (rows + 1) / 2
    return (left + right) / 2


def symmetric_latency(layout: Layout, rate: float, window_s: float, compare_s: float) -> float:
    """Return the average latency of streams of one rate (9, without its stray p)."""
    m, n = layout
    return rate * compare_s * window_s * (m + n) / (4 * m * n)


def layouts_of(degree: int) -> list[Layout]:
    """Return all layouts of that many workers."""
    return [(m, degree // m) for m in range(1, degree + 1) if degree % m == 0]


def best_layout(
    degrees: Iterable[int], rates: Rates, window_s: float, compare_s: float, hop_s: float = 0.0
) -> Layout:
    """Return the layout of these degrees with the least average latency."""
    layouts = [layout for degree in degrees for layout in layouts_of(degree)]
    return min(layouts, key=lambda one: average_latency(one, rates, window_s, compare_s, hop_s))


def handshake_latency(window_s: float) -> float:
    """Return the average latency of a handshake pipeline with many workers: a quarter of the window.

    The two rows of a pair flow towards each other. If they came d apart, they meet half of what is left of
    the window later, (T_w - d) / 2, and d is anything from nothing to T_w.
    """
    return window_s / 4
