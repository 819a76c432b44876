"""One scan against two: Kang's procedure as DP-Join changes it (4.4.3), and as it was.

The procedure as it was looks through the window of the other side for partners, and then through that of the
own side for what has expired, for every new row. The join stage does the first and finds the second by the
watermark. Here the second scan is added to it: a compiled loop over the times of the own window for every new
row, in blocks like those of the stage's scan.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from bench.workloads.join.stage import FilledStage, JoinOutput, fill_for_scans, hit_notes, run_scans
from bench.workloads.join.streams import SECOND, Ints, Side, Streams

EXPIRED = "expired rows seen"


@cache
def compile_expiry() -> Any:
    """Return the loop that counts the expired rows for every new row, compiled."""
    numba = import_module("numba")

    def count_expired(times: Any, horizons: Any) -> int:
        n_expired = 0
        for start in range(0, len(times), 1024):
            block = times[start : start + 1024]
            for row in range(len(horizons)):
                horizon = horizons[row]
                for i in range(len(block)):
                    n_expired += block[i] < horizon
        return n_expired

    return numba.njit("int64(Array(int64, 1, 'C', readonly=True), int64[::1])", nogil=True)(count_expired)


@dataclass(frozen=True, slots=True)
class TwoScans:
    """The pairs of a run, and how often an expired row was seen; read outside of the clock."""

    joined: JoinOutput
    n_expired: int

    def __call__(self) -> Ints:
        """Return the pairs in order."""
        return self.joined()


def run_two_scans(filled: FilledStage) -> TwoScans:
    """Look for partners, and for every new row through its own window for what has expired."""
    window = filled.streams.shape.window_s * SECOND
    first = run_scans(filled)
    started, core_started = time.perf_counter(), time.thread_time()
    n_expired = sum(_scan_own_window(side, filled, window, port) for port, side in _sides(filled))
    both = replace(
        first,
        seconds=first.seconds + time.perf_counter() - started,
        core_s=first.core_s + time.thread_time() - core_started,
    )
    return TwoScans(both, n_expired)


def _sides(filled: FilledStage) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("left", filled.streams.left), ("right", filled.streams.right)


def _scan_own_window(side: Side, filled: FilledStage, window: int, port: str) -> int:
    count, n_expired = compile_expiry(), 0
    for batches, _ in filled.rounds:
        times = batches[port].times
        if len(times):
            # What is stored when the batch comes: the rows before it that the last batch has left.
            last = int(np.searchsorted(side.times, times[0]))
            first = int(np.searchsorted(side.times, times[0] - window))
            n_expired += count(side.times[first:last], times - window)
    return n_expired


def fill_for_two_scans(streams: Streams) -> FilledStage:
    """Fill a stage, and compile the second scan."""
    compile_expiry()
    return fill_for_scans(streams)


def scan_notes(scans: TwoScans) -> Mapping[str, float]:
    """Return the notes of the first scan, and what the second saw."""
    return {**hit_notes(scans.joined), EXPIRED: float(scans.n_expired)}
