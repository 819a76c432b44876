"""Our ways: the window stage primed as an engine feeds it, traced, on several threads, and its store alone.

Nothing is left out: batches are Arrow columns, each with the watermark that decides which rows are late, and
results are Arrow columns. Stores get the slots of keys, since assigning slots is the stage's work.

Traced, the time and the size of the stage are recorded after each batch. A batch ends when the windows that
its watermark closes have been emitted. A slice is pending while it has rows and the watermark has not passed
its end (SPRINGALD, VI-E); that is counted from the rows, since the stage holds slices until no open window
needs them.

A stage runs on one thread; its loops and Arrow release the GIL, so stages that share no key can run in
parallel. Partitioning the rows is an engine's work and stays outside the clock.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

import penstock as ps
from bench.workload import Way
from bench.workloads.windows.answer import Answer, LazyAnswer
from bench.workloads.windows.shape import Flow, partition_by_key
from penstock.accounts import Accounts
from penstock.operators.op import OUT
from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.stages.stage import StageContext
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.combine import CombineMethod
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import ClosedWindows
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow

PER_BATCH, SLOWEST, ARRIVAL_TO_RESULT = (
    "median per batch (s)",
    "99th of 100 batches (s)",
    "arrival to result (s)",
)
PENDING, HELD = "pending slices", "held at most (bytes)"
N_STAGES = 4
THREADS = (1, 2, 4)


class PrimedStage(NamedTuple):
    """A stage that has processed the lead rows."""

    stage: WindowStage
    flow: Flow


def build_stage(flow: Flow) -> WindowStage:
    """Build the stage of a case."""
    site = StageContext("windows", None, Accounts(), ps.ManualClock())
    return WindowStage(flow.shape.op, flow.shape.up, site, totally_ordered=flow.shape.counted)


def prime_stage(flow: Flow) -> PrimedStage:
    """Build a stage and fill the windows before the first row."""
    stage = build_stage(flow)
    if flow.begin is not None:
        for _ in stage.on_batch(flow.lead_batch, NEVER):
            raise AssertionError("a row beforehand was late")
        for _ in stage.on_watermark(flow.begin):
            pass
    return PrimedStage(stage, flow)


def run_stage(primed: PrimedStage) -> LazyAnswer:
    """Run all batches and watermarks through the stage."""
    running = run_by_batch(primed)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            answer: LazyAnswer = ended.value
            return answer


def run_by_batch(primed: PrimedStage) -> Generator[None, None, LazyAnswer]:
    """Run batch by batch, yielding after each batch and its windows; return the answer."""
    stage, flow = primed
    results: list[pa.RecordBatch] = []
    watermark = NEVER if flow.begin is None else flow.begin
    for batch, after in zip(flow.batches, flow.watermarks, strict=True):
        _collect(stage.on_batch(batch, watermark), results)
        watermark = after
        _collect(stage.on_watermark(watermark), results)
        yield
    if flow.begin is None:
        _collect(stage.drain(), results)
    return lambda: _answer_from_rows(results)


def _collect(out: Emitted, results: list[pa.RecordBatch]) -> None:
    for port, batch in out:
        if port != OUT:
            raise AssertionError(f"{batch.num_rows} rows went to .{port}, but none of them is late or wrong")
        results.append(batch.rows)


def _answer_from_rows(results: list[pa.RecordBatch]) -> Answer:
    table = pa.Table.from_batches(results).combine_chunks()
    names = table.column_names
    starts = table.column("window_index" if "window_index" in names else "window_start").to_numpy()
    keys = table.column("key").to_numpy() if "key" in names else np.zeros(len(starts), np.int64)
    result = table.column("result").combine_chunks()
    parts = result.flatten() if pa.types.is_struct(result.type) else [result]
    return Answer.of(starts, keys, np.stack([part.to_numpy(zero_copy_only=False) for part in parts], axis=1))


class PrimedStore(NamedTuple):
    """A store that has processed the lead rows, and its input batches."""

    store: TimeStore
    batches: tuple[InputRows, ...]
    flow: Flow


def build_store_input(flow: Flow) -> tuple[InputRows, ...]:
    """Return the batches as stores take them; keys are dense here, so they serve as slots."""
    cuts = range(0, flow.shape.n_rows, flow.shape.batch)
    return tuple(
        InputRows(flow.keys[part], flow.times[part], (), (Values(flow.values[part]),))
        for part in (slice(cut, cut + flow.shape.batch) for cut in cuts)
    )


def build_store(flow: Flow, way: CombineMethod | None = None, most: int = 1 << 20) -> TimeStore:
    """Build the store of a case with a sum; `way` is its `method`, `most` its `max_windows`."""
    slicing = Slicing.of([TimeWindow(flow.shape.size, flow.shape.every)])
    return TimeStore(
        slicing, 0, [WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0)], method=way, max_windows=most
    )


def prime_store(flow: Flow, way: CombineMethod | None = None, most: int = 1 << 20) -> PrimedStore:
    """Build a store and fill the windows before the first row."""
    store = build_store(flow, way, most)
    if flow.begin is not None:
        times, keys, values = flow.lead
        store.add(InputRows(keys, times, (), (Values(values),)), NEVER)
        store.close(flow.begin)
    return PrimedStore(store, build_store_input(flow), flow)


def run_store(primed: PrimedStore) -> LazyAnswer:
    """Run all batches and watermarks through the store alone."""
    store, batches, flow = primed
    closed: list[ClosedWindows] = []
    watermark = NEVER if flow.begin is None else flow.begin
    for batch, after in zip(batches, flow.watermarks, strict=True):
        store.add(batch, watermark)
        watermark = after
        closed.append(store.close(watermark))
    if flow.begin is None:
        closed.append(store.close(ENDED, ended=True))
    return lambda: _answer_from_windows(closed)


def _answer_from_windows(closed: list[ClosedWindows]) -> Answer:
    starts = np.concatenate([windows.starts for windows in closed])
    slots = np.concatenate([windows.slots for windows in closed])
    return Answer.of(starts, slots, np.concatenate([windows.cells[0] for windows in closed]))


@dataclass(frozen=True, slots=True)
class StageTrace:
    """An answer, and the time and the size of the stage after each batch."""

    answer: LazyAnswer
    flow: Flow
    batch_ns: tuple[int, ...]
    held_bytes: tuple[int, ...]

    def __call__(self) -> Answer:
        """Return the answer itself."""
        return self.answer()


def trace_stage(primed: PrimedStage) -> StageTrace:
    """Run all batches and watermarks through the stage, recording its time and size after each."""
    batch_ns: list[int] = []
    held_bytes: list[int] = []
    running = run_by_batch(primed)
    started = time.perf_counter_ns()
    while True:
        try:
            next(running)
        except StopIteration as ended:
            return StageTrace(ended.value, primed.flow, tuple(batch_ns), tuple(held_bytes))
        batch_ns.append(time.perf_counter_ns() - started)
        held_bytes.append(primed.stage.nbytes)
        started = time.perf_counter_ns()


def trace_notes(trace: StageTrace) -> Mapping[str, float]:
    """Return the recorded times and sizes as the notes of a run."""
    seconds = np.array(trace.batch_ns) / 1e9
    median = float(np.median(seconds))
    shape = trace.flow.shape
    to_fill = shape.batch / shape.per_slice * shape.every / 1e6
    return {
        PER_BATCH: median,
        SLOWEST: float(np.quantile(seconds, 0.99)),
        # A row waits half the time that its batch takes to fill, on average, and then for the work.
        ARRIVAL_TO_RESULT: to_fill / 2 + median,
        PENDING: count_pending_slices(trace.flow),
        HELD: float(max(trace.held_bytes)),
    }


def count_pending_slices(flow: Flow) -> float:
    """Return the mean number, over batches, of slices with rows that end beyond the watermark."""
    every, at, counts = flow.shape.every, 0, []
    slices = flow.times // every
    waiting = np.empty(0, np.int64)
    for watermark in flow.watermarks:
        waiting = np.union1d(waiting, slices[at : at + flow.shape.batch])
        waiting = waiting[(waiting + 1) * every > watermark]
        counts.append(len(waiting))
        at += flow.shape.batch
    return float(np.mean(counts))


def threads_way_name(n_threads: int) -> str:
    """Return the name of the way with that many threads."""
    return f"{N_STAGES} stages, {n_threads} {'thread' if n_threads == 1 else 'threads'}"


def build_threads_ways() -> list[Way]:
    """Return one way per number of threads."""
    return [Way(threads_way_name(n), partial(run_stages, n_threads=n), prime_stages) for n in THREADS]


def prime_stages(flow: Flow) -> list[PrimedStage]:
    """Build and prime a stage for each partition of the keys."""
    return [prime_stage(part) for part in partition_by_key(flow, N_STAGES)]


def run_stages(primed: list[PrimedStage], *, n_threads: int) -> LazyAnswer:
    """Run all partitions through their stages on a thread pool."""
    with ThreadPoolExecutor(n_threads) as pool:
        answers = list(pool.map(run_stage, primed))
    return lambda: _merge_answers([answer() for answer in answers])


def _merge_answers(parts: list[Answer]) -> Answer:
    starts, keys = (
        np.concatenate([getattr(part, column) for part in parts]) for column in ("starts", "keys")
    )
    return Answer.of(starts, keys, np.concatenate([part.values for part in parts]))
