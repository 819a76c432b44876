"""Our ways: the window stage fed as an engine feeds it, and its store alone with a choice forced.

Nothing is spared: batches come as Arrow columns, each with the watermark that judges it, and results leave
as Arrow columns. Stores are given the slots of keys, since turning keys into slots is the stage's part.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as ps
from bench.workloads.windows.answer import Answer, Given
from bench.workloads.windows.shape import Flow
from penstock.accounts import Accounts
from penstock.operators.op import OUT
from penstock.stages.rows.input import ENDED, NEVER, InputRows, Values
from penstock.stages.stage import Site
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.combine import CombineMethod as Combining
from penstock.stages.window.stage import Emitted, WindowStage
from penstock.stages.window.store import ClosedWindows
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow


class Fed(NamedTuple):
    """A stage that has had the rows beforehand."""

    stage: WindowStage
    flow: Flow


def new_stage(flow: Flow) -> WindowStage:
    """The stage of a case."""
    site = Site("windows", None, Accounts(), ps.ManualClock())
    return WindowStage(flow.shape.op, flow.shape.up, site, totally_ordered=flow.shape.counted)


def fed_stage(flow: Flow) -> Fed:
    """A stage with the windows before the first row filled."""
    stage = new_stage(flow)
    if flow.begin is not None:
        for _ in stage.on_batch(flow.lead_batch, NEVER):
            raise AssertionError("a row beforehand was late")
        for _ in stage.on_watermark(flow.begin):
            pass
    return Fed(stage, flow)


def through_stage(fed: Fed) -> Given:
    """All batches and watermarks through the stage."""
    running = steps(fed)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            given: Given = ended.value
            return given


def steps(fed: Fed) -> Generator[None, None, Given]:
    """The same, with a stop after each batch whose windows have left; what is returned is the answer."""
    stage, flow = fed
    found: list[pa.RecordBatch] = []
    watermark = NEVER if flow.begin is None else flow.begin
    for batch, after in zip(flow.batches, flow.watermarks, strict=True):
        _keep(stage.on_batch(batch, watermark), found)
        watermark = after
        _keep(stage.on_watermark(watermark), found)
        yield
    if flow.begin is None:
        _keep(stage.drain(), found)
    return lambda: _of_rows(found)


def _keep(out: Emitted, found: list[pa.RecordBatch]) -> None:
    for port, batch in out:
        if port != OUT:
            raise AssertionError(f"{batch.num_rows} rows went to .{port}, but none of them is late or wrong")
        found.append(batch.rows)


def _of_rows(found: list[pa.RecordBatch]) -> Answer:
    table = pa.Table.from_batches(found).combine_chunks()
    names = table.column_names
    starts = table.column("window_index" if "window_index" in names else "window_start").to_numpy()
    keys = table.column("key").to_numpy() if "key" in names else np.zeros(len(starts), np.int64)
    result = table.column("result").combine_chunks()
    parts = result.flatten() if pa.types.is_struct(result.type) else [result]
    return Answer.of(starts, keys, np.stack([part.to_numpy(zero_copy_only=False) for part in parts], axis=1))


class FedStore(NamedTuple):
    """A store that has had the rows beforehand, and the slots of each batch's rows."""

    store: TimeStore
    arriving: tuple[InputRows, ...]
    flow: Flow


def arriving_of(flow: Flow) -> tuple[InputRows, ...]:
    """The batches as stores take them; keys are dense here, so they are slots as they are."""
    cuts = range(0, flow.shape.n_rows, flow.shape.batch)
    return tuple(
        InputRows(flow.keys[part], flow.times[part], (), (Values(flow.values[part]),))
        for part in (slice(cut, cut + flow.shape.batch) for cut in cuts)
    )


def new_store(flow: Flow, way: Combining | None = None, most: int = 1 << 20) -> TimeStore:
    """The store of a case with a sum: `way` and `most` are its `method` and `max_windows`."""
    slicing = Slicing.of([TimeWindow(flow.shape.size, flow.shape.every)])
    return TimeStore(
        slicing, 0, [WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0)], method=way, max_windows=most
    )


def fed_store(flow: Flow, way: Combining | None = None, most: int = 1 << 20) -> FedStore:
    """A store with the windows before the first row filled."""
    store = new_store(flow, way, most)
    if flow.begin is not None:
        times, keys, values = flow.lead
        store.add(InputRows(keys, times, (), (Values(values),)), NEVER)
        store.close(flow.begin)
    return FedStore(store, arriving_of(flow), flow)


def through_store(fed: FedStore) -> Given:
    """All batches and watermarks through the store alone."""
    store, arriving, flow = fed
    found: list[ClosedWindows] = []
    watermark = NEVER if flow.begin is None else flow.begin
    for batch, after in zip(arriving, flow.watermarks, strict=True):
        store.add(batch, watermark)
        watermark = after
        found.append(store.close(watermark))
    if flow.begin is None:
        found.append(store.close(ENDED, ended=True))
    return lambda: _of_left(found)


def _of_left(found: list[ClosedWindows]) -> Answer:
    def joined(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        return np.concatenate(parts)

    values = np.concatenate([left.cells[0] for left in found])
    return Answer.of(joined([left.starts for left in found]), joined([left.slots for left in found]), values)
