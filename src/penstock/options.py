"""Options: of a step, of a run, of a run on a particular engine, and of a CUDA device.

`StepOptions` and `RunSettings` are the keywords that every verb and every way to run a graph take; type
checkers and editors know them by name, and `refuse_unknown` in `graph/pipe.py` refuses others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeGuard

from penstock.errors import GraphError
from penstock.frozen import Frozen

if TYPE_CHECKING:
    from os import PathLike

    from penstock.clock import Clock
    from penstock.events import EventSink

Parallelism = int | tuple[int, int] | Literal["auto"] | None
"""Replicas of a step: a number, a range between which the engine may choose, or "auto"."""
OnErrorName = Literal["fail", "skip", "dead_letter"]
RoutingName = Literal["forward", "key_by", "broadcast", "rebalance"]


class StepOptions(TypedDict, total=False):
    """The options of every step.

    name         what the step is called in errors, metrics and checkpoints; made up from the verb by default
    parallelism  number of replicas, a range such as (1, 8), or "auto"; that of the pipe by default
    batch_size   largest number of rows that the step is given at once
    routing      how rows reach the replicas, where the operator does not demand it itself
    on_error     what becomes of a row that fails: "fail" stops the run, "skip" drops and counts the row,
                 "dead_letter" sends it to the step's `.errors`
    dedicated    True gives the step a thread of its own in process, so that a function may block
    """

    name: str | None
    parallelism: Parallelism
    batch_size: int | None
    routing: RoutingName | None
    on_error: OnErrorName
    dedicated: bool


class CollectSettings(TypedDict, total=False):
    """What `collect` takes beside the engine.

    master   a Spark master, e.g. "spark://host:7077"; embedded when left out
    until    stop after this number of rounds
    drain    close all windows at the end; with a checkpoint they are kept for the next run if it is left out
    options  `ps.LocalOptions(...)` or `ps.SparkOptions(...)`
    clock    what tells the time; the machine's by default
    events   a function that is called with every event of the run
    """

    master: str | None
    until: int | None
    drain: bool
    options: LocalOptions | SparkOptions | None
    clock: Clock | None
    events: EventSink | None


class RunSettings(CollectSettings, total=False):
    """What `run` and `start` take beside the engine: a checkpoint, and what `collect` takes.

    checkpoint  a folder that makes the run survive a crash
    renamed     the name of a step in the checkpoint -> its name now
    """

    checkpoint: str | PathLike[str] | None
    renamed: Mapping[str, str]


def is_positive(number: object) -> TypeGuard[int]:
    """Return whether something is a whole number of 1 or more."""
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


class Elastic(Frozen, kw_only=True):
    """When the in-process engine changes its threads and replicas (C-Stream, 5).

    low, high  utilisation below which threads are removed, and above which they are added
    period     how often to look
    hold       how long to leave an operator alone after a replica that brought nothing
    """

    low: float = 0.90
    high: float = 0.95
    period: str = "10 s"
    hold: str = "60 s"


class LocalOptions(Frozen, kw_only=True):
    """How the in-process engine runs a graph; everything has a good default.

    threads        worker threads, by default one per core; "per-task" gives each task a thread of its own
    scheduler      which task runs next: "throughput" or "latency", or a scheduler by name
    quantum        how long a task runs before others do; the scheduler's preset by default
    queue_size     batches that wait between two tasks; the scheduler's preset by default; "unbounded" lets
                   a fast source run ahead of a slow sink as far as memory goes
    channels       how a worker waits: "blocking", "spinning", or "auto": first spinning, then blocking
    pinning        keep every worker on a core of its own
    composition    how steps are put together (WindFlow, 5.3): "combined", "dedicated" or "centralised"
    deterministic  sources go in rounds, and merged rows come in a fixed order
    elastic        change threads and replicas while the graph runs
    seed           replay one interleaving exactly: one thread, and every choice by this seed
    dedicated      names of steps that get a thread of their own, beside those written with dedicated=True
    save_every     how long between two snapshots of the state, where there is a checkpoint
    workers        what replicas of plain-Python functions are: "thread", "process", or "auto": processes if
                   that pays and changes nothing; a process has a copy of everything that a function uses
    preaggregate   combine the rows of windows per slice and key before they go to replicas by key (AIR, 4.3)
    measure        latency and where the time goes, for the run's result, also without a listener to events
    watchdog       report a step that works on one batch for longer than this; None switches it off
    """

    threads: int | Literal["per-task"] | None = None
    scheduler: str = "throughput"
    quantum: str | None = None
    queue_size: int | Literal["unbounded"] | None = None
    channels: Literal["auto", "blocking", "spinning"] = "auto"
    pinning: bool = False
    composition: Literal["combined", "dedicated", "centralised"] = "combined"
    deterministic: bool = False
    elastic: Elastic | None = None
    seed: int | None = None
    dedicated: str | tuple[str, ...] = ()
    save_every: str = "1 s"
    workers: Literal["auto", "thread", "process"] = "auto"
    watchdog: str | None = "30 s"
    preaggregate: bool = False
    measure: bool = False


class SparkOptions(Frozen, kw_only=True):
    """How Spark runs a graph.

    conf        Spark settings, on top of ours
    trigger     how often to start a micro-batch, "5 seconds"; as soon as there is data when left out
    partitions  number of partitions of a shuffle; the number of cores when left out
    session     a SparkSession that exists already
    py_files    modules of yours that functions import and that are not installed on the executors: .py files,
                .zip, .egg and .whl archives, and package folders; a change is sent with the next run

    How much input a micro-batch takes; a batch of a reader (one file, if nothing else is said) is always
    taken whole:

    max_rows_per_batch   rows of all sources
    max_bytes_per_batch  bytes of the files of all sources
    max_files_per_batch  files of all sources
    """

    conf: Mapping[str, str] = field(default_factory=dict, repr=False)  # it may hold passwords and keys
    trigger: str | None = None
    partitions: int | None = None
    session: Any = None
    py_files: str | PathLike[str] | Sequence[str | PathLike[str]] = ()
    max_rows_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    max_files_per_batch: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_rows_per_batch", "max_bytes_per_batch", "max_files_per_batch"):
            limit = getattr(self, name)
            if limit is not None and not is_positive(limit):
                raise GraphError(
                    f"{name}={limit!r} is not a limit of a micro-batch",
                    hint=f"give a whole number above zero, SparkOptions({name}=1000), or leave it out",
                )


class Cuda(Frozen):
    """Windows on a CUDA device, with limits of your own: `device=ps.options.Cuda(...)` (SPRINGALD, VI).

    n_windows           windows of a key and kind that are computed at once: an upper bound, never a wait
    batch_rows          rows copied to the device at once
    max_keys_per_batch  keys that may share such a batch; None for any number
    max_pending         slices per key in device memory; the rest waits on the host

    >>> Cuda(max_keys_per_batch=25)
    Cuda(n_windows=64, batch_rows=262144, max_keys_per_batch=25, max_pending=65536)
    """

    n_windows: int = 64
    batch_rows: int = 1 << 18
    max_keys_per_batch: int | None = 1024
    max_pending: int = 1 << 16

    def __post_init__(self) -> None:
        for name, value in self.limits().items():
            if not is_positive(value) and (name, value) != ("max_keys_per_batch", None):
                usual = next(field.default for field in fields(self) if field.name == name)
                raise GraphError(
                    f"{name}={value!r} of a CUDA device is not a whole number of at least 1",
                    hint=f"leave it out, or say ps.options.Cuda({name}={usual})",
                )

    def __str__(self) -> str:
        own = [
            f"{limit.name}={getattr(self, limit.name)}"
            for limit in fields(self)
            if getattr(self, limit.name) != limit.default
        ]
        return f"cuda ({', '.join(own)})" if own else "cuda"

    def limits(self) -> dict[str, Any]:
        """Return the limits by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
