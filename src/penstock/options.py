"""Options of a run on a particular engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from penstock.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """When the in-process engine changes its threads and replicas (C-Stream, 5).

    low, high  utilisation below which threads are taken away, above which they are added
    period     how often to look
    hold       how long to leave an operator alone after a replica that brought nothing
    """

    low: float = 0.90
    high: float = 0.95
    period: str = "10 s"
    hold: str = "60 s"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """How the in-process engine runs a graph; everything has a good default.

    threads        workers, by default as many as there are cores; "per-node" gives each node its own thread
    scheduler      who runs next: "throughput" or "latency", or a scheduler by name
    quantum        how long a node runs before others have their turn; the scheduler's preset by default
    queue_size     batches that wait between two nodes; the scheduler's preset by default; "unbounded" lets
                   a fast source run ahead of a slow sink as far as memory goes
    channels       how a worker waits: "blocking", "spinning", or "auto": the one after the other
    pinning        keep every worker on a core of its own
    composition    how steps are put together (WindFlow, 5.3): "combined", "dedicated" or "centralised"
    deterministic  sources go in rounds, and rows flow together in a fixed order
    elastic        change threads and replicas while the graph runs
    seed           replay one interleaving exactly: one thread, and every choice by this seed
    dedicated      names of steps that get a thread of their own, beside those written with dedicated=True
    save_every     how long between two snapshots of the state, where there is a checkpoint
    workers        what replicas of plain-Python functions are: "thread", "process", or "auto", processes if
                   that pays and changes nothing; a process has a copy of everything that a function uses
    preaggregate   combine the rows of windows per slice and key before they go to replicas by key (AIR, 4.3)
    measure        latency and where the time goes, for the run's result, also if nobody listens to events
    watchdog       tell of a step that is at work on one batch for so long; None switches it off
    """

    threads: int | str | None = None
    scheduler: str = "throughput"
    quantum: str | None = None
    queue_size: int | str | None = None
    channels: str = "auto"
    pinning: bool = False
    composition: str = "combined"
    deterministic: bool = False
    elastic: Elastic | None = None
    seed: int | None = None
    dedicated: str | tuple[str, ...] = ()
    save_every: str = "1 s"
    workers: str = "auto"
    watchdog: str | None = "30 s"
    preaggregate: bool = False
    measure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """How Spark runs a graph.

    conf        Spark settings, on top of ours
    trigger     how often to start a batch; as soon as there is data when left out
    partitions  parts of a shuffle; the number of cores when left out
    session     a SparkSession that exists already
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords and keys
    trigger: str | None = None
    partitions: int | None = None
    session: Any = None
