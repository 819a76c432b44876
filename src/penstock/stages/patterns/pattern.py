"""A window step as replicas: which rows go where, who does the work, and who merges the results.

    rows → partitioner → replicas → between → final_partitioner → final_stages → results ↘ late, errors

The answer, the late rows and the accounts (summed over all stages) are those of keyed windows with one
replica, for every pattern and degree. An engine carries the batches, and gives each stage the least watermark
of those before it, after what they emitted at that watermark; `lateness` is taken off only behind the last.

A partitioner is the distribution function of a pattern (WindFlow, 2.1 and Table 1). It looks at the rows only
and keeps no state that an answer depends on, so every producer can have one of its own, and a row that is
replayed goes where it went before or to a replica that does as well. Late rows are found where they arrive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeVar

import numpy as np
import pyarrow as pa

from penstock.frozen import Frozen
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.windows import KEYED, PANED, PARALLEL, PATTERNS, Windows, as_pattern, pattern_refusal
from penstock.stages.keys.slots import BUCKETS, KeyBuckets
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.stage import Stage, StageContext
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

PARTIALS = "partials"
"""The port on which partials leave a stage."""
AnyStage = TypeVar("AnyStage", bound=Stage)
Partitions = list[tuple[int, Batch]]
"""(replica, its rows), by replica; replicas that get none are not named."""


class Partitioner(ABC):
    """A distribution function for a number of replicas."""

    rule: ClassVar[str]

    def __init__(self, degree: int) -> None:
        self.degree = degree

    def __call__(self, batch: Batch) -> Partitions:
        """Return the rows of each replica, in the order they have in the batch."""
        if self.degree == 1:
            return [(0, batch)] if batch.num_rows else []
        replicas = self.replicas(batch)
        masks = ((replica, replicas == replica) for replica in range(self.degree))
        return [(replica, batch.where(mask)) for replica, mask in masks if mask.any()]

    @abstractmethod
    def replicas(self, batch: Batch) -> Ints:
        """Return the replica of each row, of several."""

    def owners(self, bucket: int) -> Sequence[int]:
        """Return the replicas that restore a saved bucket, whatever number of them saved it.

        None unless a class says otherwise: stages that make partials save nothing.
        """
        return ()

    def __str__(self) -> str:
        return f"{self.rule} to {self.degree} replica{'s' if self.degree > 1 else ''}"


class KeyPartitioner(Partitioner):
    """Sends all rows of a key to one replica: that of the key's bucket (`KeyBuckets`)."""

    rule = "rows by key"

    def __init__(self, schema: pa.Schema, key: Sequence[str], degree: int) -> None:
        super().__init__(degree)
        self._key = tuple(key)
        self._buckets = KeyBuckets([schema.field(name).type for name in key])

    def buckets(self, batch: Batch) -> Ints:
        """Return the bucket of each row's key; in a dictionary column each value is hashed once."""
        view = batch.view(self._key[0]) if len(self._key) == 1 else None
        if view is not None and view.codes is not None:
            return self._buckets.of([view.values], len(view.values)).astype(np.int64).take(view.codes)
        columns = [batch.column(name) for name in self._key]
        return self._buckets.of(columns, batch.num_rows).astype(np.int64)

    def replicas(self, batch: Batch) -> Ints:
        """Return the replica of each row's bucket."""
        return self.buckets(batch) % self.degree

    def owners(self, bucket: int) -> Sequence[int]:
        """Return the one replica that has the bucket's keys."""
        return (bucket % self.degree,)


class WindowPartitioner(Partitioner):
    """Sends whole windows to replicas in round-robin; a row goes to all that have one of its windows.

    Window number w (start / every) of a key in bucket b is in *virtual partition* (w + b) mod 256, and
    partition p belongs to replica p mod degree: the windows of one key go round, and those that are open at
    one time for many keys are spread as well. Virtual partitions are for windows what buckets are for keys:
    state is saved by them, so any number of replicas can restore it. Each row has one *primary replica*,
    the owner of the last window of the first kind that starts at or before it, also when that has ended in
    a gap: it decides on the row and counts it.
    """

    rule = "windows in turn"

    def __init__(
        self, windows: Sequence[TimeWindow], schema: pa.Schema, key: Sequence[str], degree: int
    ) -> None:
        super().__init__(degree)
        self.windows = tuple(windows)
        self._every = np.array([window.every for window in windows], np.int64)
        self.buckets = KeyPartitioner(schema, key, degree).buckets

    def __call__(self, batch: Batch) -> Partitions:
        """Split rows by window; a row may go to several replicas."""
        buckets = self.buckets(batch)
        primary = self.primary_replicas(batch.times, buckets)
        masks = [
            self.needs(batch.times, buckets, replica) | (primary == replica) for replica in range(self.degree)
        ]
        return [(replica, batch.where(mask)) for replica, mask in enumerate(masks) if mask.any()]

    def replicas(self, batch: Batch) -> Ints:
        """Return the primary replica of each row."""
        return self.primary_replicas(batch.times, self.buckets(batch))

    def primary_replicas(self, times: Ints, buckets: Ints) -> Ints:
        """Return the replica that decides on each row and counts it, by the bucket of the row's key."""
        return (times // self.windows[0].every + buckets) % BUCKETS % self.degree

    def virtual_partitions(self, kinds: Ints, starts: Ints, buckets: Ints) -> Ints:
        """Return the partition of each window, by its kind, its start and the bucket of its key."""
        return np.asarray((starts // self._every[kinds] + buckets) % BUCKETS, np.int64)

    def saved_in(self, kinds: Ints, times: Ints, buckets: Ints) -> Ints:
        """Return the partition that saves what is known of each time for some kinds of window.

        It is that of a window that holds the time: its replica has got all rows of that time.
        """
        holder = np.full(len(times), int(kinds[0]), np.int64)
        for kind in kinds[::-1].tolist():
            holder[times % self._every[kind] < self.windows[kind].size] = kind
        return self.virtual_partitions(holder, times, buckets)

    def needs(self, times: Ints, buckets: Ints, replica: int) -> Mask:
        """Return which times lie in a window of the replica."""
        needed = np.zeros(len(times), np.bool_)
        for window in self.windows:
            first = (times - window.size) // window.every + 1
            n_windows = np.minimum(times // window.every + 1 - first, BUCKETS)
            partition = (first + buckets) % BUCKETS
            # Partitions follow each other up to the last, and then begin again.
            before_end = np.minimum(n_windows, BUCKETS - partition)
            needed |= (replica - partition) % self.degree < before_end
            needed |= replica % self.degree < n_windows - before_end
        return needed

    def owners(self, bucket: int) -> Sequence[int]:
        """Return all: windows overlap, so what one partition saves others need too."""
        return range(self.degree)

    def __str__(self) -> str:
        return f"{super().__str__()}; a row to all that have one of its windows"


class PanePartitioner(Partitioner):
    """Sends slices to replicas in round-robin, for all keys: a row goes to one replica.

    Where kinds of window do not share slices, those of the first decide; slices of the others may then come
    as several partials, which are merged like any others.
    """

    rule = "slices in turn"

    def __init__(self, windows: Sequence[TimeWindow], degree: int) -> None:
        super().__init__(degree)
        self._slicing = Slicing.groups(windows)[0]

    def replicas(self, batch: Batch) -> Ints:
        """Return the replica of each row's slice."""
        return self._slicing.ids(batch.times) % self.degree


class RoundRobinPartitioner(Partitioner):
    """Sends row after row to replicas in round-robin, so that every window is split into equal parts."""

    rule = "rows in turn"
    _next = 0

    def replicas(self, batch: Batch) -> Ints:
        """Return the next replica for the next row, across batches."""
        replicas = (self._next + np.arange(batch.num_rows)) % self.degree
        self._next = (self._next + batch.num_rows) % self.degree
        return replicas


class Pattern(Frozen):
    """The decomposition of a window step.

    name               keyed, parallel, paned or map_reduce
    partitioner        rows to replicas
    replicas           as many as the degree
    between            the port of the replicas whose batches go on to `final_stages`; None if there are none
    final_partitioner  those batches to the final stages, by key
    final_stages       those that merge partials or order results; () when replicas emit results
    """

    name: str
    partitioner: Partitioner
    replicas: tuple[Stage, ...]
    between: str | None = None
    final_partitioner: Partitioner | None = None
    final_stages: tuple[Stage, ...] = ()

    @property
    def stateful_stages(self) -> tuple[tuple[Stage, ...], Partitioner]:
        """Return the stages that save state, and the partitioner whose `owners` restore it."""
        if self.between == PARTIALS and self.final_partitioner is not None:
            return self.final_stages, self.final_partitioner
        return self.replicas, self.partitioner

    def explain(self) -> list[str]:
        """Say which rows go where."""
        final = {PARTIALS: "their partials are merged", OUT: "their results are put in order"}
        lines = [f"{self.name} windows: {self.partitioner}"]
        if self.between is not None:
            lines.append(f"{final[self.between]} by {len(self.final_stages)}: {self.final_partitioner}")
        return lines


def decompose(
    op: Windows,
    up: Stream,
    degree: int,
    new_site: Callable[[], StageContext],
    *,
    pattern: str | None = None,
    totally_ordered: bool = False,
    n_final: int = 1,
) -> Pattern:
    """Decompose a step into `degree` replicas, by the operator's own pattern unless another is named.

    new_site  called once per stage: each counts in accounts of its own
    n_final   the number of stages that merge partials, or order results
    """
    assert degree >= 1, f"a step has at least one replica, not {degree}"
    assert n_final >= 1, f"at least one stage merges partials, not {n_final}"
    name = pattern or op.pattern
    assert name in PATTERNS, f"the graph let pattern {name!r} pass"
    refusal = pattern_refusal(name, op, up, totally_ordered=totally_ordered)
    if refusal is not None:
        site = new_site()
        raise refusal.at(site.step, site.where)
    op = as_pattern(name, op)
    windows = [window for _, window in op.resolve(up).windows if isinstance(window, TimeWindow)]

    from penstock.stages.patterns.parallel import ParallelStage, ResultOrderStage
    from penstock.stages.patterns.partials import FinalAggregateStage, PartialAggregateStage
    from penstock.stages.window.stage import WindowStage

    def build(stage: Callable[..., AnyStage], *more: object) -> AnyStage:
        return stage(op, up, new_site(), *more, totally_ordered=totally_ordered)

    if name == KEYED:
        keyed = KeyPartitioner(up.schema, up.key, degree)
        return Pattern(name, keyed, tuple(build(WindowStage) for _ in range(degree)))
    if name == PARALLEL:
        by_window = WindowPartitioner(windows, up.schema, up.key, degree)
        replicas = tuple(build(ParallelStage, by_window, number) for number in range(degree))
        by_key = KeyPartitioner(op.outputs({IN: up})[OUT].schema, up.key, n_final)
        ordering = tuple(ResultOrderStage(op, up) for _ in range(n_final))
        return Pattern(name, by_window, replicas, OUT, by_key, ordering)
    # Rows of a slice, or any rows, go to replicas in round-robin; partials of slices are merged by key.
    by_slice = PanePartitioner(windows, degree) if name == PANED else RoundRobinPartitioner(degree)
    partials = tuple(build(PartialAggregateStage) for _ in range(degree))
    finals = tuple(build(FinalAggregateStage) for _ in range(n_final))
    by_key = KeyPartitioner(partials[0].format.schema, partials[0].format.key, n_final)
    return Pattern(name, by_slice, partials, PARTIALS, by_key, finals)
