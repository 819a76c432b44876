"""The settings of a run: `LocalOptions`, checked and with every choice made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from math import inf
from typing import Any

from penstock.engines.local.schedulers import names, preset_of
from penstock.engines.protocol import RunOptions
from penstock.errors import EngineError, NotSupported, PenstockError, nearest_first
from penstock.options import Elastic, LocalOptions
from penstock.plan.plan import Plan
from penstock.timing.units import micros

PER_TASK = "per-task"
UNBOUNDED = "unbounded"
WAIT_MODES = ("auto", "blocking", "spinning")
COMPOSITIONS = ("combined", "dedicated", "centralised")
WORKERS = AUTO, PROCESS, THREAD = ("auto", "process", "thread")


class Settings(LocalOptions, kw_only=True):
    """The options with every choice made; those that are not below mean the same as in `LocalOptions`.

    cores          number of cores that the process may use
    threads        number of workers; 0 gives every task a thread of its own
    quantum_ns     how long a task runs before others get the worker
    queue_size     messages in a channel, or infinity
    dedicated      steps with a thread of their own
    save_every_us  time between two checkpoints
    watchdog_us    how long a step may work on one batch before a warning; None for no limit
    """

    cores: int = 1
    threads: int = 1
    quantum_ns: int = 50_000_000
    queue_size: float = 64  # type: ignore[assignment]  # infinity is a float
    dedicated: tuple[str, ...] = ()
    save_every_us: int = 1_000_000
    watchdog_us: int | None = 30_000_000

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
    options = LocalOptions() if run.engine is None else run.engine
    if not isinstance(options, LocalOptions):
        raise EngineError(
            f"the local engine takes LocalOptions, and got {type(options).__name__}",
            hint="options=ps.LocalOptions(...)",
        )
    dedicated = (options.dedicated,) if isinstance(options.dedicated, str) else options.dedicated
    if not isinstance(dedicated, list | tuple | set | frozenset):
        raise EngineError(
            f"dedicated={dedicated!r} names no steps",
            hint='name them: dedicated=("slow",), or write it at the step',
        )
    words: list[tuple[str, Sequence[str]]] = [
        ("scheduler", names()),
        ("channels", WAIT_MODES),
        ("composition", COMPOSITIONS),
        ("workers", WORKERS),
    ]
    for option, known in words:
        if getattr(options, option) not in known:
            raise _unknown_value(option, getattr(options, option), known)
    for name in dedicated:
        if name not in (steps := [step.name for step in plan]):
            raise _unknown_value("dedicated", name, steps)
    for option in ("pinning", "deterministic", "measure", "preaggregate"):
        if not isinstance(getattr(options, option), bool):
            value = getattr(options, option)
            raise EngineError(f"{option}={value!r} is neither True nor False", hint=f"use {option}=True")
    if options.seed is not None and (isinstance(options.seed, bool) or not isinstance(options.seed, int)):
        raise EngineError(f"seed={options.seed!r} is not a whole number", hint="use seed=7")
    if options.elastic is not None:
        from penstock.engines.local.elastic.controller import resolve_limits

        if not isinstance(options.elastic, Elastic):
            raise EngineError(
                f"elastic={options.elastic!r} does not say when to change what", hint="elastic=ps.Elastic()"
            )
        resolve_limits(options.elastic, available_cores())
    preset = preset_of(options.scheduler)
    threads, queue_size, quantum_ns = available_cores(), float(preset.queue_size), preset.quantum_ns
    if options.threads is not None:
        hint = f'use threads=4, or threads="{PER_TASK}"'
        per_task = options.threads == PER_TASK
        threads = 0 if per_task else _check_count("threads", options.threads, "threads", hint)
    if options.queue_size is not None:
        hint = f'use 1 or more, e.g. queue_size=64, or "{UNBOUNDED}"'
        unbounded = options.queue_size == UNBOUNDED
        queue_size = inf if unbounded else _check_count("queue_size", options.queue_size, "batches", hint)
    if options.quantum is not None:
        quantum_ns = check_length("quantum", options.quantum, "run", 'quantum="50 ms"') * 1_000
    watchdog_us = None
    if options.watchdog is not None:
        watchdog_us = check_length("watchdog", options.watchdog, "run", 'watchdog="50 ms"')
    choices: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)} | {
        "cores": available_cores(),
        "threads": threads,
        "quantum_ns": quantum_ns,
        "queue_size": queue_size,
        "dedicated": tuple(dedicated),
        "save_every_us": check_length("save_every", options.save_every, None, 'save_every="50 ms"'),
        "watchdog_us": watchdog_us,
    }
    return Settings(**choices)


def _check_count(option: str, value: object, of: str, hint: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise EngineError(f"{option}={value!r} is not a number of {of}", hint=hint)
    return value


def check_length(option: str, value: str, need: str | None, hint: str) -> int:
    """Return a length of time in microseconds; raise an error if it is none, or zero.

    need  what takes time; None where zero will do
    """
    try:
        length = micros(value)
    except PenstockError as cause:
        raise EngineError(f"{option}={value!r} is not a length of time", hint=hint) from cause
    if need is not None and length <= 0:
        raise EngineError(f"{option}={value!r} leaves no time to {need}", hint=hint)
    return length


def _unknown_value(option: str, value: object, known: Sequence[str]) -> EngineError:
    """Return the error for a value that an option does not have."""
    near = nearest_first(str(value), known)
    return EngineError(
        f"{option}={value!r} is unknown", detail=f"there is {', '.join(near)}", hint=f'{option}="{near[0]}"'
    )


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
