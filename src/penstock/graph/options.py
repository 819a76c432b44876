"""Options of a run on a particular engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
    """How the in-process engine runs a graph; everything has a good default."""

    threads: int | str | None = None
    scheduler: str = "throughput"
    quantum: str = "50 ms"
    queue_size: int = 64
    channels: str = "auto"
    pinning: bool = False
    composition: str = "combined"
    deterministic: bool = False
    elastic: Elastic | None = None
    seed: int | None = None


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
