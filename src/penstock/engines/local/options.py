"""What was asked of the engine, checked: `LocalOptions` with every choice made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from math import inf
from typing import Any

from penstock.engines.local.schedulers.registry import names, preset_of
from penstock.errors import EngineError, PenstockError, nearest_first
from penstock.frozen import dataclass
from penstock.plan.plan import Plan
from penstock.timing.duration import micros

PER_TASK = "per-node"
UNBOUNDED = "unbounded"
WAIT_MODES = ("auto", "blocking", "spinning")
COMPOSITIONS = ("combined", "dedicated", "centralised")
WORKERS = AUTO, PROCESS, THREAD = ("auto", "process", "thread")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a plan is run here.

    cores          what there is to use
    threads        workers; 0 gives every node a thread of its own
    scheduler      by name
    quantum_ns     how long a node runs before others have their turn
    queue_size     messages in a channel; infinity for any number
    channels       how a worker waits: "auto" looks for work for a while and then sleeps
    pinning        workers stay on their cores
    deterministic  in rounds: the same batches give the same rows in the same order, always
    seed           replay one interleaving: one thread, turns by chance
    dedicated      steps with a thread of their own
    save_every_us  how long between two snapshots, where there is a checkpoint
    workers        what replicas of plain-Python functions are
    preaggregate   windows by key are combined per slice and key where rows are, and then dealt
    measure        latency and where the time goes, also if nobody listens
    watchdog_us    how long a step may be at work on one batch before it is told of; None for ever
    """

    cores: int = 1
    threads: int = 1
    scheduler: str = "throughput"
    quantum_ns: int = 50_000_000
    queue_size: float = 64
    channels: str = "auto"
    pinning: bool = False
    composition: str = "combined"
    deterministic: bool = False
    elastic: Any = None
    seed: int | None = None
    dedicated: tuple[str, ...] = ()
    save_every_us: int = 1_000_000
    workers: str = AUTO
    watchdog_us: int | None = 30_000_000
    measure: bool = False
    preaggregate: bool = False

    @property
    def max_replicas(self) -> int:
        """Of an elastic step; with others rows come in another order, which deterministic=True rules out."""
        return self.cores if self.elastic is not None and not self.deterministic else 1


_ASKED = tuple(field.name for field in fields(Settings) if "_" not in field.name and field.name != "cores")


def resolve_settings(asked: Any, plan: Plan) -> Settings:
    """The settings that `LocalOptions` ask for; EngineError where they make no sense."""
    if asked is None:
        return Settings(cores=_cores(), threads=_cores())
    if not all(hasattr(asked, name) for name in _ASKED):
        raise EngineError(
            f"the local engine takes LocalOptions, and got {type(asked).__name__}",
            hint="options=ps.LocalOptions(...)",
        )
    _one_of("scheduler", asked.scheduler, names())
    _one_of("channels", asked.channels, WAIT_MODES)
    _one_of("composition", asked.composition, COMPOSITIONS)
    _one_of("workers", asked.workers, WORKERS)
    dedicated = _names("dedicated", asked.dedicated)
    for name in dedicated:
        _one_of("dedicated", name, [step.name for step in plan])
    sizes = preset_of(asked.scheduler)
    if asked.elastic is not None:
        from penstock.engines.local.elastic.live import resolve_limits

        if not all(hasattr(asked.elastic, name) for name in ("low", "high", "period", "hold")):
            raise EngineError(
                f"elastic={asked.elastic!r} does not say when to change what", hint="elastic=ps.Elastic()"
            )
        resolve_limits(asked.elastic, _cores())
    return Settings(
        cores=_cores(),
        threads=_threads(asked.threads),
        scheduler=asked.scheduler,
        quantum_ns=sizes.quantum_ns if asked.quantum is None else _quantum(asked.quantum),
        queue_size=sizes.queue_size if asked.queue_size is None else _size(asked.queue_size),
        channels=asked.channels,
        pinning=_switch("pinning", asked.pinning),
        composition=asked.composition,
        deterministic=_switch("deterministic", asked.deterministic),
        elastic=asked.elastic,
        seed=_seed(asked.seed),
        dedicated=dedicated,
        save_every_us=_length("save_every", asked.save_every),
        workers=asked.workers,
        measure=_switch("measure", asked.measure),
        preaggregate=_switch("preaggregate", asked.preaggregate),
        watchdog_us=None if asked.watchdog is None else _positive("watchdog", asked.watchdog),
    )


def _threads(asked: object) -> int:
    if asked is None:
        return _cores()
    if asked == PER_TASK:
        return 0
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise EngineError(
            f"threads={asked!r} is not a number of threads", hint=f'use threads=4, or threads="{PER_TASK}"'
        )
    return asked


def _switch(what: str, asked: object) -> bool:
    if not isinstance(asked, bool):
        raise EngineError(f"{what}={asked!r} is neither True nor False", hint=f"use {what}=True")
    return asked


def _size(asked: object) -> float:
    if asked == UNBOUNDED:
        return inf
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise EngineError(
            f"queue_size={asked!r} is not a number of batches",
            hint=f'use 1 or more, e.g. queue_size=64, or "{UNBOUNDED}"',
        )
    return asked


def _seed(asked: object) -> int | None:
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int)):
        raise EngineError(f"seed={asked!r} is not a whole number", hint="use seed=7")
    return asked


def _names(what: str, asked: object) -> tuple[str, ...]:
    if isinstance(asked, str):
        return (asked,)
    if not isinstance(asked, list | tuple | set | frozenset):
        raise EngineError(
            f"{what}={asked!r} names no steps", hint=f'name them: {what}=("slow",), or write it at the step'
        )
    return tuple(asked)


def _length(what: str, asked: Any) -> int:
    try:
        return micros(asked)
    except PenstockError as cause:
        raise EngineError(f"{what}={asked!r} is not a length of time", hint=f'{what}="50 ms"') from cause


def _quantum(asked: Any) -> int:
    return _positive("quantum", asked) * 1_000


def _positive(what: str, asked: Any) -> int:
    found = _length(what, asked)
    if found <= 0:
        raise EngineError(f"{what}={asked!r} leaves no time to run", hint=f'{what}="50 ms"')
    return found


def _one_of(what: str, asked: object, known: Sequence[str]) -> None:
    if asked not in known:
        near = nearest_first(str(asked), known)
        raise EngineError(
            f"{what}={asked!r} is unknown", detail=f"there is {', '.join(near)}", hint=f'{what}="{near[0]}"'
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
