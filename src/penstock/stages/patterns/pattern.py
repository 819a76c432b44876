"""Results of several replicas in order: by (window_end, window_start) per key, as one replica gives them.

Results wait until the watermark, the least of all replicas, says that no earlier one can come. So between two
watermarks that all replicas have passed nothing waits, and there is nothing to save.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.frozen import dataclass
from penstock.operators.choices.patterns import (
    MAP_REDUCE,
    PANED,
    PARALLEL,
    as_pattern,
    most_slices,
    pattern_refusal,
)
from penstock.operators.op import IN, OUT
from penstock.operators.stream import Stream
from penstock.operators.windows import FINAL, PATTERNS, START, WINDOW, Windows
from penstock.stages.patterns.parallel import ParallelStage
from penstock.stages.patterns.partial_stores import PARTIALS
from penstock.stages.patterns.partials import (
    FinalAggregateStage,
    FinalStage,
    MapAggregateStage,
    PartialAggregateStage,
    ReduceAggregateStage,
)
from penstock.stages.patterns.partitioners import (
    KeyPartitioner,
    PanePartitioner,
    Partitioner,
    RoundRobinPartitioner,
    WindowPartitioner,
)
from penstock.stages.rows.batch import Batch, Ints, Mask, concat_batches
from penstock.stages.stage import Site, Stage
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.timing.windows import TimeWindow


class ResultOrderStage:
    """The stage after parallel windows. Results were counted by the replicas that made them."""

    def __init__(self, op: Windows, up: Stream) -> None:
        self._schema = op.outputs({IN: up})[OUT].schema
        self._resolved = op.resolve(up)
        self._waiting: list[Batch] = []

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Keep results until all replicas have come as far."""
        self._waiting.append(batch)
        return iter(())

    def on_watermark(self, watermark: float) -> Emitted:
        """Give the results of windows that the watermark has passed, and early ones."""
        if not self._waiting:
            return
        waiting = concat_batches(self._waiting, self._schema)
        ready = waiting.times + 1 + self._resolved.lateness <= watermark
        if self._resolved.early is not None:
            ready |= ~self._final(waiting)
        self._waiting = [] if ready.all() else [waiting.where(~ready)]
        if ready.any():
            given = waiting.where(ready)
            yield OUT, given.take(self._order(given))

    def drain(self) -> Emitted:
        """Give everything."""
        yield from self.on_watermark(float("inf"))

    def snapshot(self) -> Mapping[int, bytes]:
        """Nothing waits once a watermark has come from all replicas."""
        assert not self._waiting, "a snapshot is made between batches, when every replica has the watermark"
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Begin anew."""
        assert not saved, "results that wait are not saved"
        self._waiting = []

    def _final(self, batch: Batch) -> Mask:
        return np.asarray(batch.rows.column(FINAL).to_numpy(zero_copy_only=False), np.bool_)

    def _order(self, batch: Batch) -> Ints:
        """By end, start and window; rows of one window stay as they were."""
        columns = {"end": pa.array(batch.times), "start": batch.rows.column(START)}
        if self._resolved.has_labels:
            labels = pa.array([label for label, _ in self._resolved.windows], pa.string())
            columns["window"] = pc.index_in(batch.rows.column(WINDOW), labels)
        columns["place"] = pa.array(np.arange(batch.num_rows))
        keys = [(name, "ascending") for name in columns]
        return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy(), np.int64)


# A window step as replicas: what goes where, who does the work, and who puts it together.
#
# rows → deal → replicas → between → final_partitioner → joining → results ↘ late, errors
#
# The answer, the late rows and the accounts (summed over all stages) are those of keyed windows with one
# replica, for every pattern and degree. An engine carries the batches, and gives each stage the least
# watermark of those before it, after what they gave at that watermark; `lateness` is taken off only behind
# the last.


@dataclass(frozen=True, slots=True)
class Pattern:
    """The decomposition of a window step.

    name          keyed, parallel, paned or map_reduce
    partitioner   rows to replicas
    replicas      as many as the degree
    between       the port of the replicas whose batches go on to `final_stages`; None when there is none
    final_partitioner  those batches to the joining stages, by key
    final_stages  WLQ, REDUCE, or the stage that puts results in order; () when replicas give results
    """

    name: str
    partitioner: Partitioner
    replicas: tuple[Stage, ...]
    between: str | None = None
    final_partitioner: Partitioner | None = None
    final_stages: tuple[Stage, ...] = ()

    @property
    def stateful_stages(self) -> tuple[tuple[Stage, ...], Partitioner]:
        """The stages that save state, and the deal whose `heirs` says which of them take up which bucket."""
        if self.between == PARTIALS and self.final_partitioner is not None:
            return self.final_stages, self.final_partitioner
        return self.replicas, self.partitioner

    def explain(self) -> list[str]:
        """Who gets what, in words."""
        joined = {PARTIALS: "their parts are put together", OUT: "their results are put in order"}
        lines = [f"{self.name} windows: {self.partitioner}"]
        if self.between is not None:
            lines.append(f"{joined[self.between]} by {len(self.final_stages)}: {self.final_partitioner}")
        return lines


def decompose(
    op: Windows,
    up: Stream,
    degree: int,
    new_site: Callable[[], Site],
    *,
    pattern: str | None = None,
    totally_ordered: bool = False,
    n_final: int = 1,
) -> Pattern:
    """The step as `degree` replicas, by the operator's own pattern unless another is named.

    new_site  called once per stage: each counts in accounts of its own
    totally_ordered  as for WindowStage
    n_final   how many stages put parts, or results, together
    """
    assert degree >= 1, f"a step has at least one replica, not {degree}"
    assert n_final >= 1, f"at least one stage puts parts together, not {n_final}"
    name = pattern or op.pattern
    assert name in PATTERNS, f"the graph let pattern {name!r} pass"
    refused = pattern_refusal(name, op, up, totally_ordered=totally_ordered)
    if refused is not None:
        site = new_site()
        raise refused.at(site.step, site.where)
    return _PatternBuilder(as_pattern(name, op), up, degree, new_site, totally_ordered, n_final).made(name)


@dataclass(frozen=True, slots=True)
class _PatternBuilder:
    """What all patterns are made from."""

    op: Windows
    up: Stream
    degree: int
    new_site: Callable[[], Site]
    totally_ordered: bool
    n_final: int

    def made(self, name: str) -> Pattern:
        if name == PARALLEL:
            return self.parallel(name)
        if name == PANED:
            return self.in_parts(
                name,
                PanePartitioner(self._windows(), self.degree),
                PartialAggregateStage,
                FinalAggregateStage,
            )
        if name == MAP_REDUCE and most_slices(self.op, self.up) == 1:
            return self.in_parts(
                name, RoundRobinPartitioner(self.degree), PartialAggregateStage, FinalAggregateStage
            )  # a window is a slice
        if name == MAP_REDUCE:
            return self.in_parts(
                name, RoundRobinPartitioner(self.degree), MapAggregateStage, ReduceAggregateStage
            )
        return self.keyed(name)

    def keyed(self, name: str) -> Pattern:
        deal = KeyPartitioner(self.up.schema, self.up.key, self.degree)
        stages = (
            WindowStage(self.op, self.up, self.new_site(), totally_ordered=self.totally_ordered)
            for _ in range(self.degree)
        )
        return Pattern(name, deal, tuple(stages))

    def parallel(self, name: str) -> Pattern:
        deal = WindowPartitioner(self._windows(), self.up.schema, self.up.key, self.degree)
        replicas = tuple(
            ParallelStage(
                self.op, self.up, self.new_site(), deal, number, totally_ordered=self.totally_ordered
            )
            for number in range(self.degree)
        )
        results = self.op.outputs({IN: self.up})[OUT].schema
        back = KeyPartitioner(results, self.up.key, self.n_final)
        ordering = tuple(ResultOrderStage(self.op, self.up) for _ in range(self.n_final))
        return Pattern(name, deal, replicas, OUT, back, ordering)

    def in_parts(
        self,
        name: str,
        partitioner: Partitioner,
        part: type[PartialAggregateStage | MapAggregateStage],
        join: type[FinalStage],
    ) -> Pattern:
        replicas = [
            part(self.op, self.up, self.new_site(), totally_ordered=self.totally_ordered)
            for _ in range(self.degree)
        ]
        joining = [
            join(self.op, self.up, self.new_site(), totally_ordered=self.totally_ordered)
            for _ in range(self.n_final)
        ]
        parts = replicas[0].format
        back = KeyPartitioner(parts.schema, parts.key, self.n_final)
        return Pattern(name, partitioner, tuple(replicas), PARTIALS, back, tuple(joining))

    def _windows(self) -> list[TimeWindow]:
        resolved = self.op.resolve(self.up)
        return [window for _, window in resolved.windows if isinstance(window, TimeWindow)]
