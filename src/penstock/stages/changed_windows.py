"""Saved windows of a step that has changed since: other aggregates, another lateness, other columns.

A checkpoint allows these changes (`engines/checkpoint/graph.py`), and this is how the state follows. Cells
and sketches are found by what they are of; those of a new aggregate begin neutral, and its results are null
in windows that may have older rows (`StepHistory.added`). What says how far windows have closed counts in the
lateness of its time. Kept rows get the columns that rows have now, null where they had none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pyarrow as pa

from penstock.operators.op import Stream
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.store import (
    columns_from_snapshot,
    has_row_columns,
    ints_of,
    replace_row_columns,
)
from penstock.stages.snapshot import (
    AGGREGATES,
    CELLS,
    COLUMNS,
    LATENESS,
    SKETCHES,
    BucketState,
    Fingerprint,
    describe_aggregate,
)
from penstock.stages.window.accumulators import AccumulatorLayout, StoredAccumulators, WindowAccumulator
from penstock.stages.window.folds import AccumulatorFold
from penstock.stages.window.inputs import InputEvaluator
from penstock.timing.units import micros

_CLOSED_TO = "closed_to"
_WITH_ROWS, _WITH_CELLS, _WITH_SKETCHES = (
    ("rows", "waiting"),
    ("slices", "sessions"),
    ("sketches", "sessions"),
)


class StateAdapter:
    """Brings saved pieces of a window step into the form of its present aggregates, lateness and columns."""

    def __init__(
        self,
        up: Stream,
        layout: AccumulatorLayout,
        inputs: InputEvaluator,
        accumulators: Sequence[WindowAccumulator],
        *,
        keeps_rows: bool,
    ) -> None:
        self._up, self._layout, self._inputs, self._keeps_rows = up, layout, inputs, keeps_rows
        self._stored = StoredAccumulators(accumulators).stored

    def topics(self) -> dict[str, str]:
        """Return what the cells and sketches are of, in their order, for the step's fingerprint."""
        cells = [f"{stored.kind} {self._values(stored.column)}".strip() for stored in self._stored]
        sketches = [f"{of.kind.__name__} {self._values(of.column)}" for of in self._layout.sketches]
        return {CELLS: json.dumps(_number_equal(cells)), SKETCHES: json.dumps(_number_equal(sketches))}

    def adapt(self, piece: BucketState, now: Fingerprint) -> BucketState:
        """Return a piece in the present form.

        now  the fingerprint of the step
        """
        saved = piece.fingerprint or now
        differ = [
            topic for topic in (AGGREGATES, LATENESS, COLUMNS, CELLS, SKETCHES) if saved[topic] != now[topic]
        ]
        if not differ:
            return piece
        later = micros(now[LATENESS]) - micros(saved[LATENESS])
        batches = {}
        for name, saved_batch in piece.batches.items():
            group, _, kind = name.partition("/")
            batch = saved_batch
            if kind in _WITH_CELLS:
                batch = self._adapt_cells(batch, json.loads(saved[CELLS]), json.loads(now[CELLS]))
            if kind in _WITH_SKETCHES:
                batch = self._adapt_sketches(batch, json.loads(saved[SKETCHES]), json.loads(now[SKETCHES]))
            if _CLOSED_TO in batch.schema.names:
                place = batch.schema.get_field_index(_CLOSED_TO)
                batch = batch.set_column(place, _CLOSED_TO, pa.array(ints_of(batch, _CLOSED_TO) + later))
            if kind in _WITH_ROWS and batch.num_rows and has_row_columns(batch):
                batch = self._adapt_rows(batch)
            batches[name] = batch
            if kind in _WITH_CELLS:
                batches |= self._beside(group, batch, piece.batches, json.loads(now[SKETCHES]))
        return replace(piece, watermark=piece.watermark + later, batches=batches)

    def _values(self, column: int | None) -> str:
        """Return what an accumulator or a sketch is of, in words."""
        if column is None:
            return ""
        of, form = self._layout.values[column]
        if isinstance(of, AccumulatorFold):
            return describe_aggregate(of.fold, self._up)
        return f"{of} as {'' if form is None else form.name}"

    def _adapt_cells(
        self, batch: pa.RecordBatch, before: Sequence[str], now: Sequence[str]
    ) -> pa.RecordBatch:
        """Return slices or sessions with the cells of the present accumulators."""
        columns = {name: batch.column(name) for name in batch.schema.names if not name[0].isdigit()}
        for place, (name, stored) in enumerate(zip(now, self._stored, strict=True)):
            neutral = stored.rule.neutral_cells(batch.num_rows)
            for part in range(neutral.shape[1]):
                is_known = name in before
                columns[f"{place}.{part}"] = (
                    batch.column(f"{before.index(name)}.{part}") if is_known else pa.array(neutral[:, part])
                )
        return pa.RecordBatch.from_pydict(columns)

    def _adapt_sketches(
        self, batch: pa.RecordBatch, before: Sequence[str], now: Sequence[str]
    ) -> pa.RecordBatch:
        """Return sketches with those that are kept now; new ones have seen nothing."""
        names = [name for name in batch.schema.names if not name.startswith("sketch ")]
        columns = {name: batch.column(name) for name in names}
        for place, (name, sketch) in enumerate(zip(now, self._layout.sketches, strict=True)):
            if name in before and f"sketch {before.index(name)}" in batch.schema.names:
                columns[f"sketch {place}"] = batch.column(f"sketch {before.index(name)}")
            else:
                nothing = sketch.kind().to_bytes()
                columns[f"sketch {place}"] = pa.array([nothing] * batch.num_rows, pa.binary())
        return pa.RecordBatch.from_pydict(columns)

    def _beside(
        self, group: str, slices: pa.RecordBatch, saved: Mapping[str, pa.RecordBatch], sketches: Sequence[str]
    ) -> dict[str, pa.RecordBatch]:
        """Return what is kept beside slices now and was not before: sketches, and rows."""
        beside = {}
        if sketches and "slice" in slices.schema.names and f"{group}/sketches" not in saved:
            names = [name for name in slices.schema.names if not name[0].isdigit()]
            fresh = {} if "fresh" in names else {"fresh": pa.array(np.ones(slices.num_rows, np.bool_))}
            batch = pa.RecordBatch.from_pydict({**{n: slices.column(n) for n in names}, **fresh})
            beside[f"{group}/sketches"] = self._adapt_sketches(batch, [], sketches)
        if self._keeps_rows and f"{group}/rows" not in saved:
            beside[f"{group}/rows"] = pa.RecordBatch.from_pydict({"place": pa.array([], pa.int64())})
        return beside

    def _adapt_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return kept rows with the present columns, and the values of expressions computed again."""
        rows = pa.RecordBatch.from_arrays(
            columns_from_snapshot(batch, self._up.schema), schema=self._up.schema
        )
        own = Batch(rows, ints_of(batch, "time"))
        arrays = tuple(column.values for column in self._inputs.compute(own))
        return replace_row_columns(batch, self._inputs.rows_with(rows, arrays))


def _number_equal(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal: two folds may look alike."""
    seen: dict[str, count[int]] = {}
    numbers = [next(seen.setdefault(name, count())) for name in names]
    return [f"{name} {number}" if number else name for name, number in zip(names, numbers, strict=True)]
