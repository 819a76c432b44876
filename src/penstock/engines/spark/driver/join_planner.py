"""Which cells a join has in the next job: a grid, or ranges of an attribute, by what the rows are like.

Tasks report how many rows they sent to a join, with some quantiles of the attributes that its bands compare,
and how long its cells were at work; no row comes here. The model (`stages/join/model.py`) says for every
layout what its busiest cell has to do. The layout of now is left for another only if that is worth its price:
ranges have to take up all saved rows anew, so as many rows must have come since the last time as are saved.

What is known is of this run. Before the first job of many rows in files some rows of each are looked at, so
that also a run of one job may have ranges. A run that goes on from a checkpoint without that begins with a
grid, which takes up rows that any layout has saved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.accounts import Accounts, JoinAccounts
from penstock.engines.checkpoint.state_files import StateHandle
from penstock.engines.spark.file_splits import FileSplit
from penstock.engines.spark.join_exchange import (
    JoinLayout,
    count_cells,
    plan_join_exchange,
    reduce_sample,
    share_of_cells,
)
from penstock.operators.stream_join import StreamJoin
from penstock.plan.plan import Step
from penstock.stages import policy
from penstock.stages.join.cell_places import RangeLayout, side_and_bucket
from penstock.stages.join.model import EXCHANGE, WORTH, CellShare, ExchangeLoad
from penstock.stages.keys.slots import BUCKETS
from penstock.stages.rows.batch import Ints

Floats = npt.NDArray[np.float64]
Sample = tuple[Ints, Floats]
"""Codes of an attribute, and for how many rows each of them stands."""
KEPT = 0.5
"""What the rows of earlier jobs count for, from job to job."""
MIN_SAMPLE = 8
"""Values that a range must have among those that are known, or its ends are guesses."""
SAMPLE_FROM = 1_000_000
"""Rows of a job that must be in files before some of them are looked at: that is a job of its own."""
MAX_SPLITS = 16
"""Splits of a source of which the first rows are looked at."""
MAX_KEPT = 2048
"""Values that are kept of an attribute."""
_NOTHING: Sample = (np.empty(0, np.int64), np.empty(0))


class JoinPlanner:
    """Chooses the cells of one join before every job, and learns from what the job reports."""

    def __init__(self, step: Step) -> None:
        assert isinstance(step.op, StreamJoin), "only joins have cells"
        streams = [port.stream for port in step.inputs]
        self.exchange = plan_join_exchange(step.op, *streams)
        self._last_rows = step.op.resolve(*streams).last_rows
        self._rows = [0.0, 0.0]  # of a job, of the left and of the right
        self._samples = [[_NOTHING, _NOTHING] for _ in self.exchange.bands]
        self._exchange_seconds, self._comparison = EXCHANGE, self.exchange.cost
        self._n_since_respread = 0
        self._layouts: dict[str, JoinLayout] = {}  # of the last job that was committed, and of the newest
        self._stored, self._predicted, self._measured = (0, 0), 0.0, 0.0

    def choose(
        self, job: str, after: str, n_partitions: int, saved: Mapping[int, StateHandle]
    ) -> tuple[JoinLayout, bool]:
        """Return the cells of a job, and whether all that is saved must be taken up anew for them.

        after  the job whose state it continues
        """
        self._stored = count_rows_of_sides(saved)
        now = self._layouts.get(after)
        layout = self.pick(n_partitions, now)
        self._layouts = {job: layout} | ({} if now is None else {after: now})
        respread = isinstance(layout, RangeLayout) and layout != now
        if respread:
            self._n_since_respread = 0
        self._predicted = self.load.work_seconds(self.shares(layout))
        return layout, respread

    def pick(self, n_partitions: int, now: JoinLayout | None) -> JoinLayout:
        """Return the layout for so many partitions: that of now unless another is worth its price."""
        load = self.load
        grids = self.exchange.grids(n_partitions)
        best: JoinLayout = min(grids, key=lambda grid: (load.seconds(self.shares(grid)), count_cells(grid)))
        if now in grids or (isinstance(now, RangeLayout) and now.n_parts <= n_partitions):
            best = now if self._is_near(now, best) else best
        if self._n_since_respread < sum(self._stored):
            return best
        for ranges in self._list_ranges(min(n_partitions, BUCKETS)):
            if not self._is_near(best, ranges):
                best = ranges
        return best

    def _is_near(self, one: JoinLayout, other: JoinLayout) -> bool:
        """Return whether a layout is not so much worse than another that rows should move for it."""
        load = self.load
        return load.seconds(self.shares(one)) <= WORTH * load.seconds(self.shares(other))

    @property
    def load(self) -> ExchangeLoad:
        """Return what a job has to do, as far as that is known: as many rows of each side at first."""
        left, right = self._rows
        rows = (left, right) if left + right else (1.0, 1.0)
        # New rows meet each other too: of each two of them the later one meets the other.
        met = [stored + new / 2 for stored, new in zip(self._stored, rows, strict=True)]
        if self._last_rows is not None:
            met = [min(n, last) for n, last in zip(met, self._last_rows, strict=True)]
        return ExchangeLoad(rows, (met[0], met[1]), self._exchange_seconds, self._comparison)

    def shares(self, layout: JoinLayout) -> list[CellShare]:
        """Return what each cell has; of equal cells, one."""
        if not isinstance(layout, RangeLayout):
            return [share_of_cells(layout)]
        condition = self.exchange.condition(layout.band)
        by_side = []
        for side, (codes, weights) in enumerate(self._samples[layout.band]):
            parts, rows = layout.copies_of(side, codes, condition)
            received = np.bincount(layout.homes(codes), weights, layout.n_parts)
            received += np.bincount(parts, weights[rows], layout.n_parts)
            by_side.append(received / max(float(weights.sum()), 1e-300))
        left, right = (of_side.tolist() for of_side in by_side)
        return [(a, b, a * b) for a, b in zip(left, right, strict=True)]

    def _list_ranges(self, n_parts: int) -> Iterator[RangeLayout]:
        """Yield the ranges of each attribute that have as many rows each, by what is known of its values."""
        for band, samples in enumerate(self._samples):
            scaled = []
            for (codes, weights), n_rows in zip(samples, self._rows, strict=True):
                scaled.append((codes, weights * (n_rows / max(float(weights.sum()), 1e-300))))
            cuts = cut_ranges(scaled, n_parts)
            if cuts:
                yield from (RangeLayout(band, cuts, copies) for copies in self.exchange.copies)

    @property
    def is_blind(self) -> bool:
        """Return whether bands could be cut into ranges, and nothing is known of their values."""
        return bool(self.exchange.bands) and not sum(self._rows)

    def learn(self, reports: Sequence[Mapping[str, Any]], step: str) -> None:
        """Learn from the reports of a job."""
        sent = [part for report in reports for part in report["sent"] if part[0] == step]
        rows = [0, 0]
        fresh: list[list[list[Sample]]] = [[[], []] for _ in self._samples]
        for _, side, n_rows, bands in sent:
            rows[side] += n_rows
            for band, (codes, weights) in enumerate(bands):
                fresh[band][side].append((np.array(codes, np.int64), np.array(weights, np.float64)))
        if not sum(rows):
            return
        self._n_since_respread += sum(rows)
        known = sum(self._rows) > 0
        for side, n_rows in enumerate(rows):
            self._rows[side] = KEPT * self._rows[side] + (1 - KEPT) * n_rows if known else n_rows
        for band, by_side in enumerate(fresh):
            for side, parts in enumerate(by_side):
                codes, weights = self._samples[band][side]
                parts.append((codes, weights * KEPT))
                self._samples[band][side] = reduce_sample(
                    np.concatenate([part for part, _ in parts]),
                    np.concatenate([part for _, part in parts]),
                    MAX_KEPT,
                )
        self._learn_costs([cell for report in reports for cell in report["cells"] if cell[0] == step])

    def _learn_costs(self, cells: Sequence[Sequence[Any]]) -> None:
        """Learn what a comparison or a row costs, from (step, rows, seconds, comparisons, searches)."""
        n_rows, busy, n_compared, n_searches = (sum(cell[place] for cell in cells) for place in range(1, 5))
        if not n_rows:
            return
        self._measured = max(cell[2] for cell in cells)
        # Bands and equal columns have an index as soon as rows are many; what else is asked is asked of all.
        few = 0 if self.exchange.cost else policy.SIZES.index_rows
        is_scan = n_compared > n_searches * few
        # Where rows are scanned, what a row costs besides is what it costs to bring it.
        self._comparison = busy / n_compared if is_scan else 0.0
        self._exchange_seconds = EXCHANGE if is_scan else EXCHANGE + busy / n_rows

    def measure(self, accounts: Accounts, job: str) -> JoinAccounts:
        """Return the accounts of the join with its cells, and what was predicted and measured for them."""
        layout = self._layouts.get(job)
        described = "" if layout is None else self.exchange.describe_layout(layout)
        left, right = self._rows
        return JoinAccounts(
            **asdict(accounts),
            layout=described,
            rates=(left, right),
            stored=self._stored,
            predicted_ms=self._predicted * 1e3,
            measured_ms=self._measured * 1e3,
        )


def choose_samples(splits: Sequence[FileSplit]) -> dict[str, list[FileSplit]]:
    """Return some splits of each source, from its first to its last; {} if rows are too few to look twice."""
    if sum(split.n_rows for split in splits) < SAMPLE_FROM:
        return {}
    chosen: dict[str, list[FileSplit]] = {}
    for source in dict.fromkeys(split.source for split in splits):
        of_source = [split for split in splits if split.source == source]
        step = -(-len(of_source) // MAX_SPLITS)
        chosen[source] = of_source[step // 2 :: step]
    return chosen


def scale_report(report: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return the report of a few rows as that of so many times as many."""
    sent = [
        [
            step,
            side,
            round(n_rows * factor),
            [(codes, [w * factor for w in weights]) for codes, weights in bands],
        ]
        for step, side, n_rows, bands in report["sent"]
    ]
    return {"sent": sent, "cells": []}


def cut_ranges(samples: Sequence[Sample], n_parts: int) -> tuple[int, ...]:
    """Return the codes with which ranges of equal weight begin, but for the first; () if too little is known.

    >>> cut_ranges([(np.arange(100), np.ones(100))], 4)
    (25, 50, 75)
    >>> cut_ranges([(np.array([7] * 90), np.ones(90))], 4)
    ()
    """
    codes, weights = (np.concatenate([part[place] for part in samples]) for place in (0, 1))
    if n_parts < 2 or len(codes) < MIN_SAMPLE * n_parts:
        return ()
    order = np.argsort(codes, kind="stable")
    codes, reached = codes[order], np.cumsum(weights[order])
    ends = np.arange(1, n_parts) * (reached[-1] / n_parts)
    cuts = np.unique(codes[np.minimum(np.searchsorted(reached, ends, side="right"), len(codes) - 1)])
    return tuple(cuts[cuts > codes[0]].tolist())


def count_rows_of_sides(handles: Mapping[int, StateHandle]) -> tuple[int, int]:
    """Return how many rows a join keeps of the left and of the right."""
    rows = [0, 0]
    for bucket, handle in handles.items():
        rows[side_and_bucket(bucket)[0]] += handle.rows
    return rows[0], rows[1]
