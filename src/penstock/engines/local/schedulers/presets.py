"""Presets: which scheduler, quantum, batch and queue sizes serve low latency, and which high throughput.

From C-Stream's experiments (5.1): LeastRecentlyRun has the lowest latency on most topologies, Random a good
throughput on all of them. Short queues bound how long a row can wait; long quanta and large batches spread
the price of a turn over more rows.
"""

from __future__ import annotations

from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """A scheduler and the sizes that go with it; what a run's options name beside it wins.

    scheduler   name of the scheduler
    quantum_ns  how long a node runs before another may have its turn
    batch_size  rows sent at a time where the steps say nothing
    queue_size  batches that fit into a channel
    """

    scheduler: str
    quantum_ns: int
    batch_size: int
    queue_size: int


PRESETS = {
    "latency": Preset("least-recently-run", quantum_ns=1_000_000, batch_size=1, queue_size=16),
    "throughput": Preset("random", quantum_ns=50_000_000, batch_size=1_024, queue_size=64),
}


def preset(name: str) -> Preset:
    """The preset of that name; a scheduler's own name comes with the sizes of `throughput`."""
    sizes = PRESETS["throughput"]
    return PRESETS.get(name) or Preset(name, sizes.quantum_ns, sizes.batch_size, sizes.queue_size)
