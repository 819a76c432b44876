"""Map, with_columns and select: one row out for every row in, at the same time and place."""

from __future__ import annotations

import pyarrow as pa

from penstock.operators.columns import WithColumns
from penstock.operators.function import BatchFunction, RowFunction, own_copy
from penstock.operators.map import Map
from penstock.operators.op import ERRORS, IN, OUT
from penstock.operators.stream import Stream
from penstock.stages.expressions import ExpressionEvaluator, expression_step
from penstock.stages.functions.calls import (
    BatchCaller,
    call_rows,
    function_step,
    keeps_plain_rows,
)
from penstock.stages.functions.compile import CompiledFunction
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rows import RowValidator, compile_map_step, row_type
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Outputs, PlainRow, RowStage, RowStep, Site, StatelessStage


class ExpressionMap(StatelessStage, RowStage):
    """Columns added, replaced or selected by expressions."""

    def __init__(self, op: WithColumns, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        self._function = op.how
        self._down = op.outputs({IN: up})[OUT].schema
        expressions = [expr for _, expr in op.how.columns]
        self._evaluator = ExpressionEvaluator(expressions, up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._evaluator.error_context)

    def process(self, batch: Batch) -> Outputs:
        """Puts the new columns beside those that stay."""
        evaluated = self._evaluator.evaluate(batch, self._errors)
        rows = evaluated.rows
        columns = dict(zip(rows.rows.schema.names, rows.rows.columns, strict=True))
        names = (name for name, _ in self._function.columns)
        columns |= dict(zip(names, evaluated.values, strict=True))
        result = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        self.site.accounts.passed += result.num_rows
        yield OUT, Batch(result, rows.times, rows.order)
        if evaluated.dead_letters is not None:
            yield ERRORS, evaluated.dead_letters

    def row_step(self) -> RowStep:
        """Puts the new values beside those that stay, by plain Python."""
        plain, down = self._evaluator.plain, self._down.names
        names = [name for name, _ in self._function.columns]

        def process(row: PlainRow) -> PlainRow:
            values = {**row, **dict(zip(names, plain(row), strict=True))}
            return {name: values[name] for name in down}

        return expression_step(process, self._errors)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["expressions run as Arrow kernels"]


class BatchMap(StatelessStage):
    """A function from batch to batch of equal length."""

    def __init__(self, op: Map, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._function = BatchCaller(op.how, op, up, site)

    def process(self, batch: Batch) -> Outputs:
        """Calls the function; row i out belongs to row i in."""
        return self._function.call(batch, self._collect)

    def _collect(self, batch: Batch, returned: object) -> Batch:
        rows = self._function.check_columns(returned)
        self._function.check_length(rows.num_rows, batch)
        self.site.accounts.passed += batch.num_rows
        return Batch(rows, batch.times, batch.order)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._function.explain()


class RowMap(StatelessStage, RowStage):
    """A function from row to row."""

    def __init__(self, op: Map, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function = op.how
        self._down = op.outputs({IN: up})[OUT].schema
        self._map_row = compile_map_step(own_copy(op.how.call), row_type(up.schema), RowValidator(self._down))
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._compiled = CompiledFunction(op.how, up.schema, self._down, wraps=op.compile)

    def process(self, batch: Batch) -> Outputs:
        """Calls the function; what the compiled one leaves out is called in Python."""
        computed = None if keeps_plain_rows(batch) else self._compiled.results(batch.rows)
        if computed is None:
            yield from self._call_rows(batch)
            return
        done = batch if not len(computed.rest) else batch.take(computed.indices)
        self.site.accounts.passed += done.num_rows
        yield OUT, Batch(self._compiled.rows(done.rows, computed, self._down), done.times, done.order)
        if len(computed.rest):
            yield from self._call_rows(batch.take(computed.rest))

    def _call_rows(self, batch: Batch) -> Outputs:
        results = call_rows(batch, self._map_row, self._function, self._errors)
        self.site.accounts.passed += len(results.values)
        yield OUT, results.rows.with_rows(results.values, self._down)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def row_step(self) -> RowStep:
        """Calls the function."""
        return function_step(self._map_row, self._function, self._errors)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._compiled.explain()
