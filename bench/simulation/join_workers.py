"""A join on simulated cores: m x n active workers, each with a queue of its own, in virtual time.

DP-Join (4.3, 4.4): left row k goes to row k mod m of the workers, right row k to column k mod n. The first
worker of the row takes it and passes it on to the next when it takes it from its queue, which costs a hop.
A worker scans its segment of the other window, in order of arrival, one row after the other. So what a
simulation knows and the model does not are queues, hops, the cost of a row besides its comparisons, windows
whose content varies, and segments that differ by a row.

In a handshake pipeline (4.2) both streams flow through n workers in opposite directions, and a row moves on
when the next n-th of its window has passed; a pair meets where the rows come into one worker.

Every queue is computed at once: the end of a row's work is the greatest, over the rows before it, of when one
came plus all work since then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class JoinCosts:
    """What workers are charged, in seconds.

    compare_s  one comparison (T_on)
    row_s      one row, besides its comparisons
    cell_delay_s      passing a row on to another worker
    """

    compare_s: float
    row_s: float = 0.0
    cell_delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JoinSetting:
    """Two streams, observed for some seconds after their windows are full."""

    rates: tuple[float, float]
    window_s: float
    seconds: float
    hit_rate: float
    costs: JoinCosts
    seed: int = 1


@dataclass(frozen=True, slots=True)
class SimulatedJoin:
    """What came out.

    n_results   pairs that were found
    bandwidth   results per second, until the last worker was done
    latency_s   of a result, on average: since the later of its rows came
    behind_s    how long after the last row the last worker was done
    n_compared  by all workers
    """

    n_results: int
    bandwidth: float
    latency_s: float
    behind_s: float
    n_compared: int


def simulate_join(setting: JoinSetting, layout: tuple[int, int]) -> SimulatedJoin:
    """Run the rows of the observed time through the workers."""
    (m, n), costs = layout, setting.costs
    rng = np.random.default_rng([setting.seed, 17])
    left, right = (_draw_arrivals(rng, rate, setting) for rate in setting.rates)
    passed_left = [left.times[left.new[left.new % m == row]] + costs.cell_delay_s for row in range(m)]
    passed_right = [
        right.times[right.new[right.new % n == column]] + costs.cell_delay_s for column in range(n)
    ]
    n_results, n_compared, total_latency, last = 0, 0, 0.0, 0.0
    for row in range(m):
        lefts = left.new[left.new % m == row]
        for column in range(n):
            rights = right.new[right.new % n == column]
            arrivals = np.concatenate([passed_left[row], passed_right[column]])
            due = np.concatenate([left.times[lefts], right.times[rights]])
            compared = np.concatenate(
                [
                    right.count_stored(left.times[lefts], setting.window_s, column, n),
                    left.count_stored(right.times[rights], setting.window_s, row, m),
                ]
            )
            order = np.argsort(arrivals, kind="stable")
            starts = np.empty(len(arrivals))
            work = costs.row_s + compared * costs.compare_s
            starts[order], end = _serve(arrivals[order], work[order])
            passed_left[row] = starts[: len(lefts)] + costs.cell_delay_s
            passed_right[column] = starts[len(lefts) :] + costs.cell_delay_s
            hits = rng.binomial(compared, setting.hit_rate)
            waited = starts - due + costs.row_s
            found_at = rng.random(int(hits.sum())) * np.repeat(compared * costs.compare_s, hits)
            total_latency += float((waited * hits).sum() + found_at.sum())
            n_results += int(hits.sum())
            n_compared += int(compared.sum())
            last = max(last, end)
    took = max(last - setting.window_s, setting.seconds)
    return SimulatedJoin(
        n_results,
        n_results / took,
        total_latency / max(1, n_results),
        took - setting.seconds,
        n_compared,
    )


def simulate_handshake(setting: JoinSetting, n_workers: int) -> SimulatedJoin:
    """Run the pairs of the observed time through a handshake pipeline; only its latency is followed."""
    rng = np.random.default_rng([setting.seed, 23])
    left, right = setting.rates
    n_results = int(rng.poisson(2 * left * right * setting.window_s * setting.hit_rate * setting.seconds))
    apart = rng.random(n_results) * setting.window_s
    phases = rng.random((2, n_results))
    step = setting.window_s / n_workers
    # After s seconds the later row is in worker floor(s / step + its phase), the earlier one, from the other
    # end, in n - 1 - floor((s + apart) / step + its phase). They have met as soon as these are not apart.
    latency = np.full(n_results, np.inf)
    for number in range(n_workers):
        entered = np.maximum(0.0, (number - phases[0]) * step) if number else np.zeros(n_results)
        met = np.maximum(entered, (n_workers - 1 - number - phases[1]) * step - apart)
        latency = np.minimum(latency, met)
    compared = round(2 * left * right * setting.window_s * setting.seconds)
    mean = float(latency.mean()) if n_results else 0.0
    return SimulatedJoin(n_results, n_results / setting.seconds, mean, 0.0, compared)


def search_sustainable_rate(
    setting: JoinSetting, layout: tuple[int, int], *, tolerance: float = 0.01
) -> float:
    """Return the greatest rate, of both streams, at which no worker falls behind by more than a fiftieth.

    Bisection, as the handshake prototype looks for it; overload is a queue that grows.
    """
    low, high = 1.0, 2.0 * np.sqrt(layout[0] * layout[1] / (2 * setting.window_s * setting.costs.compare_s))
    while high / low > 1 + tolerance:
        rate = float(np.sqrt(low * high))
        tried = JoinSetting(
            (rate, rate), setting.window_s, setting.seconds, setting.hit_rate, setting.costs, setting.seed
        )
        if simulate_join(tried, layout).behind_s <= 0.02 * setting.seconds:
            low = rate
        else:
            high = rate
    return low


@dataclass(frozen=True, slots=True, eq=False)
class _Arrivals:
    """The rows of one stream: all their times, and the numbers of those that are observed."""

    times: Floats
    new: Ints

    def count_stored(self, at: Floats, window_s: float, part: int, n_parts: int) -> Ints:
        """Return how many rows of a part are in the window that ends at each time."""
        begins, ends = np.searchsorted(self.times, at - window_s), np.searchsorted(self.times, at)
        return (ends - part + n_parts - 1) // n_parts - (begins - part + n_parts - 1) // n_parts


def _draw_arrivals(rng: np.random.Generator, rate: float, setting: JoinSetting) -> _Arrivals:
    """Draw gaps from nothing to twice their mean, as the handshake prototype does."""
    length = setting.window_s + setting.seconds
    gaps = rng.random(int(length * rate * 1.01) + 1_000) * (2 / rate)
    times = np.cumsum(gaps)
    times = times[times < length]
    return _Arrivals(times, np.arange(np.searchsorted(times, setting.window_s), len(times)))


def _serve(arrivals: Floats, work: Floats) -> tuple[Floats, float]:
    """Return when each row is begun, one after the other, and when the last is done."""
    if not len(arrivals):
        return arrivals, 0.0
    done = np.cumsum(work)
    ends = done + np.maximum.accumulate(arrivals - (done - work))
    return ends - work, float(ends[-1])
