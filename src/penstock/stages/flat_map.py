"""FlatMap: none, one or several rows out for every row in, at its time.

A row's place is extended by its index among its siblings, so that they stay in the order they were returned.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.expr import compute as pc
from penstock.operators.function import BatchFunction, Expressions, RowFunction, own_copy
from penstock.operators.map import FlatMap
from penstock.operators.op import ERRORS, IN, OUT
from penstock.operators.stream import Stream
from penstock.stages.expressions import ExpressionEvaluator
from penstock.stages.functions.calls import BatchCaller, call_rows, check_rows
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rows import RowValidator, row_type
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.order import append_order, sort_indices
from penstock.stages.stage import Outputs, PlainRow, Site, StatelessStage


class ExpressionFlatMap(StatelessStage):
    """A row per element of a list, the other columns repeated; a null or empty list gives none."""

    def __init__(self, op: FlatMap, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expressions), "functions have stages of their own"
        ((self._name, expr),) = op.how.columns
        self._down = op.outputs({IN: up})[OUT].schema
        self._evaluator = ExpressionEvaluator([expr], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._evaluator.error_context)

    def process(self, batch: Batch) -> Outputs:
        """Emits the elements of all lists, one after the other."""
        evaluated = self._evaluator.evaluate(batch, self._errors)
        (lists,) = evaluated.values
        self.site.accounts.passed += len(lists)
        parents = pc.list_parent_indices(lists)
        rows = evaluated.rows.rows.take(parents)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {
            self._name: pc.list_flatten(lists)
        }
        children = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        yield OUT, place_children(evaluated.rows, parents.to_numpy().astype(np.int64), children)
        if evaluated.dead_letters is not None:
            yield ERRORS, evaluated.dead_letters

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["the list runs as Arrow kernels"]


class BatchFlatMap(StatelessStage):
    """A function from batch to batch of any length.

    As many rows as came in: each has the time of its counterpart. Otherwise nobody can say which row a new
    one came from, and all have the time and place of the last row of the batch.
    """

    def __init__(self, op: FlatMap, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._function = BatchCaller(op.how, op, up, site)

    def process(self, batch: Batch) -> Outputs:
        """Calls the function."""
        return self._function.call(batch, self._collect)

    def _collect(self, batch: Batch, returned: object) -> Batch:
        children = self._function.check_columns(returned)
        self.site.accounts.passed += batch.num_rows
        if children.num_rows == batch.num_rows:
            return place_children(batch, np.arange(batch.num_rows, dtype=np.int64), children)
        last = sort_indices([batch.times, *batch.order], batch.rows)[-1]
        return place_children(batch, np.full(children.num_rows, last, np.int64), children)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._function.explain()


class RowFlatMap(StatelessStage):
    """A function from a row to an iterable of rows; if it fails midway, none leave."""

    def __init__(self, op: FlatMap, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._new_row = row_type(up.schema).row
        self._validator = RowValidator(op.outputs({IN: up})[OUT].schema)
        self._errors = RowErrors(site, op.on_error, up.schema)

    def process(self, batch: Batch) -> Outputs:
        """Calls the function."""
        results = call_rows(batch, self._call_row, self._function, self._errors)
        self.site.accounts.passed += len(results.values)
        yield OUT, expand_rows(results.rows, results.values, self._validator)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def _call_row(self, values: PlainRow) -> list[PlainRow]:
        return check_rows(self._call(self._new_row(values)), self._validator)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return [f"{self._function} runs in Python, row by row"]


def expand_rows(batch: Batch, children: list[list[PlainRow]], validator: RowValidator) -> Batch:
    """Returns the rows that were returned for each row of a batch."""
    parents = np.repeat(np.arange(batch.num_rows), np.array([len(rows) for rows in children], np.int64))
    return place_children(batch, parents, validator.columns([row for rows in children for row in rows]))


def place_children(batch: Batch, parents: Ints, children: pa.RecordBatch) -> Batch:
    """Returns new rows at the times of their parents; those of one parent stand together, in order."""
    first = np.append(True, parents[1:] != parents[:-1])[: len(parents)]
    starts = np.flatnonzero(first)
    index = np.arange(len(parents)) - np.repeat(starts, np.diff(np.append(starts, len(parents))))
    order = tuple(column[parents] for column in batch.order)
    return Batch(children, batch.times[parents], append_order(order, index))
