"""Where the time goes: the parts of the window stage, each alone on the same batches.

The input of a part is computed outside the clock. The whole stage takes longer than the sum of its parts: it
also decides which rows are late, counts them, and builds result columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bench.workloads.windows.answer import compute_answer
from bench.workloads.windows.shape import Flow
from bench.workloads.windows.stage import build_store, build_store_input
from penstock.stages.keys.index import build_keys
from penstock.stages.policy import JitPolicy
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.input import NEVER, Form, InputRows, encode_column
from penstock.stages.window.accumulators import AccumulatorKind, WindowAccumulator
from penstock.stages.window.inputs import InputEvaluator
from penstock.stages.window.panes import SliceAccumulators
from penstock.stages.window.time_store import TimeStore
from penstock.timing.slices import Slicing
from penstock.timing.windows import TimeWindow


def count_rows_and_keys(flow: Flow) -> list[float]:
    """Return the expected answer of `assign_slots`: the numbers of rows and of distinct keys."""
    return [flow.shape.n_rows, len(np.unique(flow.keys))]


def assign_slots(flow: Flow) -> list[float]:
    """Assign slots to the keys of all batches."""
    types = [flow.shape.up.schema.field(name).type for name in flow.shape.up.key]
    keys = build_keys(types)
    n_rows = 0
    for batch in flow.batches:
        columns = [batch.rows.column(name) for name in flow.shape.up.key]
        n_rows += len(keys.assign(columns, batch.num_rows))
    return [n_rows, keys.n_live]


def count_rows(flow: Flow) -> list[float]:
    """Return the number of rows, the expected answer of parts that process every row."""
    return [flow.shape.n_rows]


class ExpressionInputs(NamedTuple):
    """The expressions of a case, and its batches."""

    evaluator: InputEvaluator
    batches: Sequence[Batch]


def build_expressions(flow: Flow) -> ExpressionInputs:
    """Return the expressions of the case, ready to be evaluated."""
    aggregates = flow.shape.op.aggregates
    assert aggregates is not None, "every case aggregates"
    return ExpressionInputs(InputEvaluator(aggregates, flow.shape.up), flow.batches)


def evaluate_expressions(columns: ExpressionInputs) -> list[float]:
    """Evaluate the expressions to the numbers that accumulators take."""
    n_rows = 0
    for batch in columns.batches:
        (array,) = columns.evaluator.evaluate(batch.rows).arrays
        n_rows += len(encode_column(array, Form.FLOAT).data)
    return [n_rows]


class SliceInputs(NamedTuple):
    """Empty slices, and the rows to add to them."""

    cells: SliceAccumulators
    batches: Sequence[InputRows]


def build_count_slices(flow: Flow) -> SliceInputs:
    """Build slices that only count their rows."""
    return _build_slices(flow, [WindowAccumulator(AccumulatorKind.ROWS)])


def build_sum_slices(flow: Flow) -> SliceInputs:
    """Build slices that count and sum."""
    return _build_slices(
        flow, [WindowAccumulator(AccumulatorKind.ROWS), WindowAccumulator(AccumulatorKind.FLOAT_SUM, 0)]
    )


def _build_slices(flow: Flow, accumulators: Sequence[WindowAccumulator]) -> SliceInputs:
    slicing = Slicing.of([TimeWindow(flow.shape.size, flow.shape.every)])
    return SliceInputs(SliceAccumulators(slicing, accumulators, JitPolicy()), build_store_input(flow))


def add_to_slices(inputs: SliceInputs) -> list[float]:
    """Add all rows to the accumulators of their slices."""
    for batch in inputs.batches:
        inputs.cells.add(batch)
    return [float(inputs.cells.arena.cells[0].sum())]


class FullStore(NamedTuple):
    """A store that holds all rows, and the watermarks that close its windows."""

    store: TimeStore
    watermarks: Sequence[int]


def fill_store(flow: Flow) -> FullStore:
    """Return a store that holds all rows and has closed no window."""
    store = build_store(flow)
    for batch in build_store_input(flow):
        store.add(batch, NEVER)
    return FullStore(store, flow.watermarks)


def close_windows(full: FullStore) -> list[float]:
    """Combine slices to windows, watermark by watermark."""
    return [sum(len(full.store.close(watermark).starts) for watermark in full.watermarks)]


def count_windows(flow: Flow) -> list[float]:
    """Return the expected answer of `close_windows`: the windows up to the last watermark."""
    bare = replace(flow, lead=(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)), begin=NEVER)
    return [len(compute_answer(bare).starts)]
