"""FlatMap: none, one or several rows out for every row in, at its time.

A row's place grows by its index among its siblings, so that they stay in the order they were given.
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
from penstock.stages.functions.rows import PlainRow, RowValidator, row_factory
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.rows.order import append_order, sort_indices
from penstock.stages.stage import Site
from penstock.stages.stateless import Outputs, StatelessStage


class ExpressionFlatMap(StatelessStage):
    """A row per element of a list, the other columns repeated; a null or empty list gives none."""

    def __init__(self, op: FlatMap, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expressions), "functions have stages of their own"
        ((self._name, expr),) = op.how.columns
        self._down = op.outputs({IN: up})[OUT].schema
        self._computing = ExpressionEvaluator([expr], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.error_context)

    def made(self, batch: Batch) -> Outputs:
        """The elements of all lists, one after the other."""
        computed = self._computing.of(batch, self._errors)
        (lists,) = computed.values
        self.site.accounts.passed += len(lists)
        parents = pc.list_parent_indices(lists)
        rows = computed.rows.rows.take(parents)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True)) | {
            self._name: pc.list_flatten(lists)
        }
        new = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        yield OUT, expand_batch(computed.rows, parents.to_numpy().astype(np.int64), new)
        if computed.dead_letters is not None:
            yield ERRORS, computed.dead_letters

    def explain(self) -> list[str]:
        """Natively."""
        return ["the list runs as Arrow kernels"]


class BatchFlatMap(StatelessStage):
    """A function from batch to batch of any length.

    As many rows as came in: each has the time of its counterpart. Otherwise nobody can say which row a new
    one came from, and all have the time and place of the last row of the batch.
    """

    def __init__(self, op: FlatMap, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._calls = BatchCaller(op.how, op, up, site)

    def made(self, batch: Batch) -> Outputs:
        """The function's rows."""
        return self._calls.given(batch, self._taken)

    def _taken(self, batch: Batch, given: object) -> Batch:
        new = self._calls.checked(given)
        self.site.accounts.passed += batch.num_rows
        if new.num_rows == batch.num_rows:
            return expand_batch(batch, np.arange(batch.num_rows, dtype=np.int64), new)
        last = sort_indices([batch.times, *batch.order], batch.rows)[-1]
        return expand_batch(batch, np.full(new.num_rows, last, np.int64), new)

    def explain(self) -> list[str]:
        """As the user wrote it."""
        return self._calls.explain()


class RowFlatMap(StatelessStage):
    """A function from a row to an iterable of rows; if it fails midway, none leave."""

    def __init__(self, op: FlatMap, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._new_row, self._shape = row_factory(up.schema), RowValidator(op.outputs({IN: up})[OUT].schema)
        self._errors = RowErrors(site, op.on_error, up.schema)

    def made(self, batch: Batch) -> Outputs:
        """The function's rows."""
        results = call_rows(batch, self._rows, self._function, self._errors)
        self.site.accounts.passed += len(results.made)
        yield OUT, expand_rows(results.rows, results.made, self._shape)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def _rows(self, place: int, values: PlainRow) -> list[PlainRow]:
        return check_rows(self._call(self._new_row(values)), self._shape)

    def explain(self) -> list[str]:
        """Row by row."""
        return [f"{self._function} runs in Python, row by row"]


def expand_rows(batch: Batch, made: list[list[PlainRow]], shape: RowValidator) -> Batch:
    """The rows made of each row of a batch."""
    parents = np.repeat(np.arange(batch.num_rows), np.array([len(rows) for rows in made], np.int64))
    return expand_batch(batch, parents, shape.columns([row for rows in made for row in rows]))


def expand_batch(batch: Batch, parents: Ints, new: pa.RecordBatch) -> Batch:
    """New rows at the times of their parents; those of one parent stand together, in order."""
    first = np.append(True, parents[1:] != parents[:-1])[: len(parents)]
    starts = np.flatnonzero(first)
    index = np.arange(len(parents)) - np.repeat(starts, np.diff(np.append(starts, len(parents))))
    order = tuple(column[parents] for column in batch.order)
    return Batch(new, batch.times[parents], append_order(order, index))
