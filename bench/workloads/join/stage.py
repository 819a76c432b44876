"""The join stage as an engine feeds it: windows filled before the clock starts, then round after round.

A stage that scans is filled from a snapshot, because comparing the windows with each other while they fill
would take minutes; one that may index is fed, so that its index is that of a long run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workloads.join.streams import HIT_RATE, Ints, Streams, encode_pairs
from penstock.accounts import Accounts
from penstock.engines.local.tasks.join import CellThreads
from penstock.operators.op import OUT
from penstock.stages import policy
from penstock.stages.build import build_join_stage
from penstock.stages.join.stage import JoinStage
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Outputs, StageContext
from penstock.timing.windows import BEFORE_ALL

LEAD_BATCHES = 60
HITS, OFF = "hits per million pairs", "hit rate off by"
TIME, PER_ROW, PER_PAIR = "time per row (s)", "core time per row (s)", "core time per pair in ns"


@contextmanager
def scan_only() -> Iterator[None]:
    """Let stored rows be scanned, however many they are."""
    before = policy.SIZES
    policy.SIZES = replace(before, index_rows=1 << 62)
    try:
        yield
    finally:
        policy.SIZES = before


@dataclass(frozen=True, slots=True)
class FilledStage:
    """A stage whose windows are full, and the rounds that it is to be given."""

    stage: JoinStage
    rounds: Sequence[tuple[Mapping[str, Batch], int]]
    streams: Streams
    threads: CellThreads

    @property
    def watermark(self) -> float:
        """Return the watermark before the rounds."""
        return self.stage.watermark


@dataclass(frozen=True, slots=True)
class JoinOutput:
    """What a run emitted, its time and that on its core; its pairs are read outside of the clock."""

    batches: Sequence[pa.RecordBatch]
    streams: Streams
    seconds: float
    core_s: float

    def __call__(self) -> Ints:
        """Return the pairs in order."""
        if not self.batches:
            return np.empty(0, np.int64)
        table = pa.Table.from_batches(self.batches)
        return np.sort(encode_pairs(table.column("id").to_numpy(), table.column("other").to_numpy()))


def build_stage(
    streams: Streams, layout: tuple[int, int] = (1, 1), n_threads: int = 1
) -> tuple[JoinStage, CellThreads]:
    """Build an empty stage; its cells run on that many threads, as the in-process engine runs them."""
    site = StageContext("join", None, Accounts(), ps.ManualClock())
    threads = CellThreads("join", n_threads)
    run_cells = threads.run if layout != (1, 1) else None
    op = streams.shape.op
    return build_join_stage(op, *streams.ups, site, layout=layout, run_cells=run_cells), threads


def fill_by_feeding(streams: Streams, layout: tuple[int, int] = (1, 1), n_threads: int = 1) -> FilledStage:
    """Feed the lead and the warm-up rows."""
    stage, threads = build_stage(streams, layout, n_threads)
    for part, n_batches in (("lead", LEAD_BATCHES), ("warm", 2)):
        for batches, watermark in streams.rounds(part, n_batches):
            for _ in stage.on_round(batches, stage.watermark, watermark):
                pass
    return FilledStage(stage, streams.rounds("probe", streams.shape.n_batches), streams, threads)


def fill_for_scans(streams: Streams, layout: tuple[int, int] = (1, 1), n_threads: int = 1) -> FilledStage:
    """Restore a snapshot of both windows, and give it the warm-up rows by scans."""
    stage, threads = build_stage(streams, layout, n_threads)
    with scan_only():
        stage.restore(save_windows(streams))
        for batches, watermark in streams.rounds("warm", 1):
            for _ in stage.on_round(batches, stage.watermark, watermark):
                pass
    return FilledStage(stage, streams.rounds("probe", streams.shape.n_batches), streams, threads)


_SAVED: dict[int, tuple[Streams, dict[int, bytes]]] = {}


def save_windows(streams: Streams) -> dict[int, bytes]:
    """Return the snapshot of a stage with both windows; it is taken once for each case.

    It is put together from two stages that have one side each, so that nothing is compared.
    """
    if id(streams) not in _SAVED:
        saved: dict[int, bytes] = {}
        [(batches, watermark)] = streams.rounds("lead", 1)
        for port, batch in batches.items():
            stage, _ = build_stage(streams)
            for _ in stage.on_round({port: batch}, BEFORE_ALL, watermark):
                pass
            saved |= stage.snapshot()
        _SAVED[id(streams)] = (streams, saved)
    return _SAVED[id(streams)][1]


def forget_windows() -> None:
    """Free the snapshots."""
    _SAVED.clear()


def run_probes(filled: FilledStage) -> JoinOutput:
    """Give the stage all its rounds."""
    joined: list[pa.RecordBatch] = []
    started, core_started = time.perf_counter(), time.thread_time()
    stage, before = filled.stage, filled.watermark
    for batches, watermark in filled.rounds:
        _collect(stage.on_round(batches, before, watermark), joined)
        before = watermark
    seconds, core_s = time.perf_counter() - started, time.thread_time() - core_started
    filled.threads.close()
    return JoinOutput(joined, filled.streams, seconds, core_s)


def run_scans(filled: FilledStage) -> JoinOutput:
    """Do the same by scans alone."""
    with scan_only():
        return run_probes(filled)


def _collect(out: Outputs, joined: list[pa.RecordBatch]) -> None:
    for port, batch in out:
        if port != OUT:
            raise AssertionError(f"{batch.num_rows} rows went to .{port}, but none of them is late or wrong")
        joined.append(batch.rows)


def hit_notes(joined: JoinOutput) -> Mapping[str, float]:
    """Return the share of the compared pairs that joined, how far off that is, and the time on a core."""
    shape = joined.streams.shape
    rate = sum(batch.num_rows for batch in joined.batches) / shape.n_compared
    return {
        HITS: rate * 1e6,
        OFF: abs(rate / HIT_RATE - 1),
        TIME: joined.seconds / shape.n_probes,
        PER_ROW: joined.core_s / shape.n_probes,
        PER_PAIR: joined.core_s * 1e9 / shape.n_compared,
    }


def check_pairs(expected: Any, answer: Any) -> str | None:
    """Return how the pairs differ from the right ones, or None."""
    pairs = answer() if callable(answer) else answer
    if np.array_equal(expected, pairs):
        return None
    missing, wrong = len(np.setdiff1d(expected, pairs)), len(np.setdiff1d(pairs, expected))
    return (
        f"expected {len(expected):,} pairs, got {len(pairs):,}: {missing:,} are missing, {wrong:,} are wrong"
    )
