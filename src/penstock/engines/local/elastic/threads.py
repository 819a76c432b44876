"""The size of the thread pool by average utilisation (C-Stream 4.1).

Above `high` there is more work than threads, below `low` more threads than work. C-Stream then moves by one
thread; here the demand says how far, so that sixty-four cores do not take sixty-four periods, and a pool
shrinks only to a size at which the same work stays below `high`, so that it does not grow again at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from penstock.engines.local.elastic.decision import THREADS, Decision, Limits
from penstock.engines.local.elastic.demand import FILL, useful_threads
from penstock.engines.local.elastic.sample import Sample


def resize_pool(sample: Sample, replicas: Mapping[str, int], limits: Limits) -> Decision | None:
    """More threads, fewer, or None for as many as there are; `replicas` are those of the next period."""
    n, used = sample.threads, sample.utilisation
    if not n:
        return None  # every node has a thread of its own
    grown = any(replicas[step.step] > step.replicas for step in sample.steps)
    if n > limits.most_threads or n < limits.least_threads:
        after = min(max(n, limits.least_threads), limits.most_threads)
        return Decision(THREADS, n, after, f"{n} threads are outside the limits")
    if used > limits.high or grown:
        useful = min(useful_threads(sample, replicas), limits.most_threads)
        after = max(n, useful) if grown else max(min(n + 1, limits.most_threads), useful)
        reason = (
            f"utilisation {used:.2f} is above {limits.high}" if used > limits.high else "for more replicas"
        )
    elif used < limits.low:
        # With rows waiting at the sources, the slowest node must find a worker at once: leave some room.
        aim = FILL if sample.pressed(limits.congestion) else (limits.low + limits.high) / 2
        after = min(n, max(limits.least_threads, ceil(used * n / aim - 1e-9)))
        reason = f"utilisation {used:.2f} is below {limits.low}"
    else:
        return None
    return Decision(THREADS, n, after, reason) if after != n else None
