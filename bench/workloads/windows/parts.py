"""Where the time goes: the parts of the window stage, each alone on the same batches.

What a part needs from those before it is made outside the clock. The whole is more than the sum by what the
stage itself does: judging rows, counting their fates, turning windows into result columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bench.workloads.windows.answer import right
from bench.workloads.windows.ours import arriving_of, new_store
from bench.workloads.windows.shape import Flow
from penstock.stages.keys.slots import KeySlots
from penstock.stages.rows.arrays import Form, encode_column
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.input import NEVER, InputRows
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.inputs import InputEvaluator
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow


def n_rows_and_keys(flow: Flow) -> list[float]:
    """Return the oracle of turning keys into slots: the rows, and the different keys."""
    return [flow.shape.n_rows, len(np.unique(flow.keys))]


def to_slots(flow: Flow) -> list[float]:
    """Keys to slots."""
    types = [flow.shape.up.schema.field(name).type for name in flow.shape.up.key]
    keys = KeySlots(types)
    n_rows = 0
    for batch in flow.batches:
        columns = [batch.rows.column(name) for name in flow.shape.up.key]
        n_rows += len(keys.assign(columns, batch.num_rows))
    return [n_rows, keys.n_live]


def n_rows_of(flow: Flow) -> list[float]:
    """Return the oracle of parts that only keep the rows."""
    return [flow.shape.n_rows]


class Columns(NamedTuple):
    """The expressions of a case, and its batches."""

    lifting: InputEvaluator
    batches: Sequence[Batch]


def lifting_of(flow: Flow) -> Columns:
    """Return the case's expressions, ready to be computed."""
    aggregates = flow.shape.op.aggregates
    assert aggregates is not None, "every case aggregates"
    return Columns(InputEvaluator(aggregates, flow.shape.up), flow.batches)


def to_values(columns: Columns) -> list[float]:
    """Expressions to the numbers that registers keep."""
    n_rows = 0
    for batch in columns.batches:
        (array,) = columns.lifting.evaluate(batch.rows).arrays
        n_rows += len(encode_column(array, Form.FLOAT).data)
    return [n_rows]


class Placing(NamedTuple):
    """Empty slices, and rows for them."""

    cells: SliceAccumulators
    arriving: Sequence[InputRows]


def counting(flow: Flow) -> Placing:
    """Slices that only count their rows."""
    return _placing(flow, [WindowAccumulator(AccumulatorKind.ROWS)])


def summing(flow: Flow) -> Placing:
    """Slices that count and sum."""
    return _placing(
        flow, [WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0)]
    )


def _placing(flow: Flow, registers: Sequence[WindowAccumulator]) -> Placing:
    slicing = Slicing.of([TimeWindow(flow.shape.size, flow.shape.every)])
    return Placing(SliceAccumulators(slicing, registers), arriving_of(flow))


def to_cells(placing: Placing) -> list[float]:
    """Rows to their cells, and into the registers there."""
    for each in placing.arriving:
        placing.cells.add(each.slots, each.times, each.values)
    return [float(placing.cells.arena.cells[0].sum())]


class Full(NamedTuple):
    """A store that holds all rows, and the watermarks that let them go."""

    store: TimeStore
    watermarks: Sequence[int]


def full_store(flow: Flow) -> Full:
    """Return a store that has taken everything and let nothing go."""
    store = new_store(flow)
    for each in arriving_of(flow):
        store.add(each, NEVER)
    return Full(store, flow.watermarks)


def leaving(full: Full) -> list[float]:
    """Slices to windows, watermark by watermark."""
    return [sum(len(full.store.close(watermark).starts) for watermark in full.watermarks)]


def n_leaving(flow: Flow) -> list[float]:
    """Return the oracle of leaving: the windows up to the last watermark, without any rows beforehand."""
    bare = replace(flow, lead=(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)), begin=NEVER)
    return [len(right(bare).starts)]
