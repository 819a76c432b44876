"""A window step as replicas: which rows go where, who does the work, and who merges the results.

    rows → partitioner → replicas → between → final_partitioner → final_stages → results ↘ late, errors

The answer, the late rows and the accounts (summed over all stages) are those of keyed windows with one
replica, for every pattern and degree. An engine carries the batches, and gives each stage the least watermark
of those before it, after what they emitted at that watermark; `lateness` is taken off only behind the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.frozen import dataclass
from penstock.operators.op import IN, OUT, Stream
from penstock.operators.patterns import (
    KEYED,
    PANED,
    PARALLEL,
    as_pattern,
    pattern_refusal,
)
from penstock.operators.windows import FINAL, PATTERNS, START, WINDOW, Windows
from penstock.stages.patterns.parallel import ParallelStage
from penstock.stages.patterns.partials import PARTIALS, FinalAggregateStage, PartialAggregateStage
from penstock.stages.patterns.partitioners import (
    KeyPartitioner,
    PanePartitioner,
    Partitioner,
    RoundRobinPartitioner,
    WindowPartitioner,
)
from penstock.stages.rows.batch import Batch, Ints, Mask, concat_batches
from penstock.stages.stage import Stage, StageContext
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.timing.windows import TimeWindow


@dataclass(frozen=True, slots=True)
class Pattern:
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

    if name == KEYED:
        keyed = KeyPartitioner(up.schema, up.key, degree)
        stages = (WindowStage(op, up, new_site(), totally_ordered=totally_ordered) for _ in range(degree))
        return Pattern(name, keyed, tuple(stages))
    if name == PARALLEL:
        by_window = WindowPartitioner(windows, up.schema, up.key, degree)
        replicas = tuple(
            ParallelStage(op, up, new_site(), by_window, number, totally_ordered=totally_ordered)
            for number in range(degree)
        )
        by_key = KeyPartitioner(op.outputs({IN: up})[OUT].schema, up.key, n_final)
        ordering = tuple(ResultOrderStage(op, up) for _ in range(n_final))
        return Pattern(name, by_window, replicas, OUT, by_key, ordering)
    # Rows of a slice, or any rows, go to replicas in round-robin; partials of slices are merged by key.
    by_slice: Partitioner = RoundRobinPartitioner(degree)
    if name == PANED:
        by_slice = PanePartitioner(windows, degree)
    partials = [
        PartialAggregateStage(op, up, new_site(), totally_ordered=totally_ordered) for _ in range(degree)
    ]
    finals = [
        FinalAggregateStage(op, up, new_site(), totally_ordered=totally_ordered) for _ in range(n_final)
    ]
    by_key = KeyPartitioner(partials[0].format.schema, partials[0].format.key, n_final)
    return Pattern(name, by_slice, tuple(partials), PARTIALS, by_key, tuple(finals))


class ResultOrderStage:
    """Puts the results of parallel replicas in order, by (window_end, window_start) per key.

    Results wait until the watermark, the least of all replicas, says that no earlier one can come. So between
    two watermarks that all replicas have passed nothing waits, and there is nothing to save. Results were
    counted by the replicas that computed them.
    """

    def __init__(self, op: Windows, up: Stream) -> None:
        self._schema = op.outputs({IN: up})[OUT].schema
        self._resolved = op.resolve(up)
        self._waiting: list[Batch] = []

    def on_batch(self, batch: Batch, watermark: float) -> Emitted:
        """Keep results until all replicas have come as far."""
        self._waiting.append(batch)
        return iter(())

    def on_watermark(self, watermark: float) -> Emitted:
        """Emit the results of windows that the watermark has passed, and early ones."""
        if not self._waiting:
            return
        waiting = concat_batches(self._waiting, self._schema)
        ready = waiting.times + 1 + self._resolved.lateness <= watermark
        if self._resolved.early is not None:
            ready |= ~self._is_final(waiting)
        self._waiting = [] if ready.all() else [waiting.where(~ready)]
        if ready.any():
            results = waiting.where(ready)
            yield OUT, results.take(self._order(results))

    def drain(self) -> Emitted:
        """Emit everything."""
        yield from self.on_watermark(float("inf"))

    def snapshot(self) -> Mapping[int, bytes]:
        """Return nothing: nothing waits once a watermark has come from all replicas."""
        assert not self._waiting, "a snapshot is made between batches, when every replica has the watermark"
        return {}

    def restore(self, saved: Mapping[int, bytes]) -> None:
        """Begin without results."""
        assert not saved, "results that wait are not saved"
        self._waiting = []

    def _is_final(self, batch: Batch) -> Mask:
        return np.asarray(batch.rows.column(FINAL).to_numpy(zero_copy_only=False), np.bool_)

    def _order(self, batch: Batch) -> Ints:
        """Return the order by end, start and window; rows of one window stay as they were."""
        columns = {"end": pa.array(batch.times), "start": batch.rows.column(START)}
        if self._resolved.has_labels:
            labels = pa.array([label for label, _ in self._resolved.windows], pa.string())
            columns["window"] = pc.index_in(batch.rows.column(WINDOW), labels)
        columns["place"] = pa.array(np.arange(batch.num_rows))
        keys = [(name, "ascending") for name in columns]
        return np.asarray(pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy(), np.int64)
