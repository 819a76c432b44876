"""The settings of a run: `LocalOptions`, checked and with every choice made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from typing import Any

from penstock.engines.local.schedulers import names, preset_of
from penstock.engines.protocol import RunOptions
from penstock.errors import EngineError, NotSupported, PenstockError, nearest_first
from penstock.frozen import dataclass
from penstock.options import Elastic, LocalOptions
from penstock.plan.plan import Plan
from penstock.timing.units import micros

PER_TASK = "per-task"
UNBOUNDED = "unbounded"
WAIT_MODES = ("auto", "blocking", "spinning")
COMPOSITIONS = ("combined", "dedicated", "centralised")
WORKERS = AUTO, PROCESS, THREAD = ("auto", "process", "thread")


@dataclass(frozen=True, slots=True)
class Settings:
    """How the engine runs a plan.

    cores          number of cores that the process may use
    threads        number of workers; 0 gives every task a thread of its own
    scheduler      its name
    quantum_ns     how long a task runs before others get the worker
    queue_size     messages in a channel, or infinity
    channels       how a worker waits: "auto" spins for a while and then sleeps
    pinning        workers stay on their cores
    deterministic  in rounds: the same batches always give the same rows in the same order
    seed           simulate one interleaving: one thread, random quanta
    dedicated      steps with a thread of their own
    save_every_us  time between two checkpoints
    workers        what replicas of plain-Python functions are
    preaggregate   windows by key are combined per slice and key before the exchange
    measure        measure latency and where the time goes, also without a listener
    watchdog_us    how long a step may work on one batch before a warning; None for no limit
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
    elastic: Elastic | None = None
    seed: int | None = None
    dedicated: tuple[str, ...] = ()
    save_every_us: int = 1_000_000
    workers: str = AUTO
    watchdog_us: int | None = 30_000_000
    measure: bool = False
    preaggregate: bool = False

    @property
    def max_replicas(self) -> int:
        """Return the most replicas of an elastic step: 1 if deterministic, as rescales change the order."""
        return self.cores if self.elastic is not None and not self.deterministic else 1


def resolve_settings(run: RunOptions, plan: Plan) -> Settings:
    """Return the settings that a run's options ask for; raise an error where they make no sense."""
    if run.master is not None:
        raise NotSupported(
            f'the local engine runs in this process, and was given master="{run.master}"',
            hint='leave master out, or use engine="spark"',
        )
    options = run.engine
    if options is None:
        return Settings(cores=available_cores(), threads=available_cores())
    if not isinstance(options, LocalOptions):
        raise EngineError(
            f"the local engine takes LocalOptions, and got {type(options).__name__}",
            hint="options=ps.LocalOptions(...)",
        )
    _check_one_of("scheduler", options.scheduler, names())
    _check_one_of("channels", options.channels, WAIT_MODES)
    _check_one_of("composition", options.composition, COMPOSITIONS)
    _check_one_of("workers", options.workers, WORKERS)
    dedicated = _check_names("dedicated", options.dedicated)
    for name in dedicated:
        _check_one_of("dedicated", name, [step.name for step in plan])
    preset = preset_of(options.scheduler)
    if options.elastic is not None:
        from penstock.engines.local.elastic.live import resolve_limits

        if not isinstance(options.elastic, Elastic):
            raise EngineError(
                f"elastic={options.elastic!r} does not say when to change what", hint="elastic=ps.Elastic()"
            )
        resolve_limits(options.elastic, available_cores())
    threads, queue_size = available_cores(), float(preset.queue_size)
    if options.threads is not None:
        hint = f'use threads=4, or threads="{PER_TASK}"'
        per_task = options.threads == PER_TASK
        threads = 0 if per_task else _check_count("threads", options.threads, "threads", hint)
    if options.queue_size is not None:
        hint = f'use 1 or more, e.g. queue_size=64, or "{UNBOUNDED}"'
        unbounded = options.queue_size == UNBOUNDED
        queue_size = inf if unbounded else _check_count("queue_size", options.queue_size, "batches", hint)
    return Settings(
        cores=available_cores(),
        threads=threads,
        scheduler=options.scheduler,
        quantum_ns=preset.quantum_ns
        if options.quantum is None
        else _check_length("quantum", options.quantum) * 1_000,
        queue_size=queue_size,
        channels=options.channels,
        pinning=_check_switch("pinning", options.pinning),
        composition=options.composition,
        deterministic=_check_switch("deterministic", options.deterministic),
        elastic=options.elastic,
        seed=_check_seed(options.seed),
        dedicated=dedicated,
        save_every_us=_check_length("save_every", options.save_every, positive=False),
        workers=options.workers,
        measure=_check_switch("measure", options.measure),
        preaggregate=_check_switch("preaggregate", options.preaggregate),
        watchdog_us=None if options.watchdog is None else _check_length("watchdog", options.watchdog),
    )


def _check_switch(option: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise EngineError(f"{option}={value!r} is neither True nor False", hint=f"use {option}=True")
    return value


def _check_count(option: str, value: object, of: str, hint: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EngineError(f"{option}={value!r} is not a number of {of}", hint=hint)
    return value


def _check_seed(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise EngineError(f"seed={value!r} is not a whole number", hint="use seed=7")
    return value


def _check_names(option: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple | set | frozenset):
        raise EngineError(
            f"{option}={value!r} names no steps",
            hint=f'name them: {option}=("slow",), or write it at the step',
        )
    return tuple(value)


def _check_length(option: str, value: Any, *, positive: bool = True) -> int:
    try:
        length = micros(value)
    except PenstockError as cause:
        raise EngineError(f"{option}={value!r} is not a length of time", hint=f'{option}="50 ms"') from cause
    if positive and length <= 0:
        raise EngineError(f"{option}={value!r} leaves no time to run", hint=f'{option}="50 ms"')
    return length


def _check_one_of(option: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        near = nearest_first(str(value), known)
        raise EngineError(
            f"{option}={value!r} is unknown",
            detail=f"there is {', '.join(near)}",
            hint=f'{option}="{near[0]}"',
        )


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
