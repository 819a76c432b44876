"""Several stages at once: rows dealt out by key beforehand, one stage per part, so many threads.

A stage is one thread's affair; its loops and Arrow let go of the interpreter's lock, so stages that share no
key can run side by side. Dealing rows out is an engine's work and stays outside the clock.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from bench.workload import Way
from bench.workloads.windows.answer import Answer, Given
from bench.workloads.windows.ours import Fed, fed_stage, through_stage
from bench.workloads.windows.shape import Flow, by_key

N_STAGES = 4
THREADS = (1, 2, 4)


def named(n_threads: int) -> str:
    """Return the way with so many threads."""
    return f"{N_STAGES} stages, {n_threads} {'thread' if n_threads == 1 else 'threads'}"


def ways() -> list[Way]:
    """Return one way per number of threads."""
    return [Way(named(n), partial(through_stages, n_threads=n), fed_stages) for n in THREADS]


def fed_stages(flow: Flow) -> list[Fed]:
    """Return a stage for each part of the keys, with the windows before the first row filled."""
    return [fed_stage(part) for part in by_key(flow, N_STAGES)]


def through_stages(fed: list[Fed], *, n_threads: int) -> Given:
    """Return all parts through their stages."""
    with ThreadPoolExecutor(n_threads) as pool:
        given = list(pool.map(through_stage, fed))
    return lambda: _together([each() for each in given])


def _together(parts: list[Answer]) -> Answer:
    starts, keys = (np.concatenate([getattr(part, what) for part in parts]) for what in ("starts", "keys"))
    return Answer.of(starts, keys, np.concatenate([part.values for part in parts]))
