"""Map, with_columns and select: one row out for every row in, at the same time and place."""

from __future__ import annotations

import pyarrow as pa

from penstock.operators.columns import WithColumns
from penstock.operators.function import BatchFunction, RowFunction, own_copy
from penstock.operators.map import Map
from penstock.operators.op import ERRORS, IN, OUT
from penstock.operators.stream import Stream
from penstock.stages.expressions import ExpressionEvaluator
from penstock.stages.functions.calls import BatchCaller, call_plain_rows, call_rows, is_few
from penstock.stages.functions.compile import CompiledFunction, CompiledResults
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rows import PlainRow, RowValidator, compile_map_step, row_type
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Site
from penstock.stages.stateless import Outputs, RowStep, StatelessStage, expression_step, function_step


class ExpressionMap(StatelessStage):
    """Columns added, replaced or selected by expressions."""

    def __init__(self, op: WithColumns, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        self._function = op.how
        self._down = op.outputs({IN: up})[OUT].schema
        self._computing = ExpressionEvaluator(
            [expr for _, expr in op.how.columns], up.schema, f"expression {op.how}"
        )
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.error_context)

    def made(self, batch: Batch) -> Outputs:
        """The new columns beside those that stay."""
        computed = self._computing.of(batch, self._errors)
        columns = dict(zip(computed.rows.rows.schema.names, computed.rows.rows.columns, strict=True))
        names = (name for name, _ in self._function.columns)
        columns |= dict(zip(names, computed.values, strict=True))
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        self.site.accounts.passed += rows.num_rows
        yield OUT, Batch(rows, computed.rows.times, computed.rows.order)
        if computed.dead_letters is not None:
            yield ERRORS, computed.dead_letters

    def by_row(self) -> RowStep:
        """The new values beside those that stay, by plain Python."""
        plain, down = self._computing.plain, self._down.names
        names = [name for name, _ in self._function.columns]

        def step(row: PlainRow) -> PlainRow:
            values = {**row, **dict(zip(names, plain(row), strict=True))}
            return {name: values[name] for name in down}

        return expression_step(step, self._errors)

    def explain(self) -> list[str]:
        """Natively."""
        return ["expressions run as Arrow kernels"]


class BatchMap(StatelessStage):
    """A function from batch to batch of equal length."""

    def __init__(self, op: Map, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._calls = BatchCaller(op.how, op, up, site)
        self._call, self._stops = self._calls.call, self._calls.stops
        # What a function hands on as it came needs no look, if the columns are the declared ones.
        self._same = up.schema.equals(op.outputs({IN: up})[OUT].schema)

    def at_once(self, batch: Batch) -> Batch | None:
        """Row i out is made of row i in."""
        if not self._stops:
            return None
        rows = batch.rows
        try:
            given = self._call(rows)
        except Exception as cause:
            raise self._calls.failed(cause) from cause
        return batch if given is rows and self._same else self._checked(batch, given)

    def made(self, batch: Batch) -> Outputs:
        """Row i out is made of row i in."""
        return self._calls.given(batch, self._taken)

    def _taken(self, batch: Batch, given: object) -> Batch:
        made = self._checked(batch, given)
        self.site.accounts.passed += batch.num_rows
        return made

    def _checked(self, batch: Batch, given: object) -> Batch:
        rows = self._calls.checked(given)
        self._calls.same_length(rows.num_rows, batch)
        return Batch(rows, batch.times, batch.order)

    def explain(self) -> list[str]:
        """As the user wrote it."""
        return self._calls.explain()


class RowMap(StatelessStage):
    """A function from row to row."""

    def __init__(self, op: Map, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._down = op.outputs({IN: up})[OUT].schema
        self._step = compile_map_step(self._call, row_type(up.schema), RowValidator(self._down))
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._compiled = CompiledFunction(op.how, up.schema, self._down, wraps=op.compile)

    def at_once(self, batch: Batch) -> Batch | None:
        """The function's rows, of few rows that are plain."""
        if not self._errors.stops or not is_few(batch):
            return None
        return batch.with_rows(call_plain_rows(batch, self._step, self._function, self._errors), self._down)

    def made(self, batch: Batch) -> Outputs:
        """The function's rows."""
        fast = None if is_few(batch) else self._compiled.results(batch.rows)
        if fast is None:
            return self._in_python(batch)
        return self._merged(batch, fast)

    def _merged(self, batch: Batch, fast: CompiledResults) -> Outputs:
        """What the compiled function computed, and Python for the rows that are left."""
        done = batch if not len(fast.rest) else batch.take(fast.places)
        self.site.accounts.passed += done.num_rows
        rows = self._compiled.rows(done.rows, fast, self._down)
        yield OUT, Batch(rows, done.times, done.order)
        if len(fast.rest):
            yield from self._in_python(batch.take(fast.rest))

    def _in_python(self, batch: Batch) -> Outputs:
        results = call_rows(batch, self._row, self._function, self._errors)
        self.site.accounts.passed += len(results.made)
        yield OUT, results.rows.with_rows(results.made, self._down)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def by_row(self) -> RowStep:
        """The function's row."""
        return function_step(self._step, self._function, self._errors)

    def _row(self, place: int, values: PlainRow) -> PlainRow:
        return self._step(values)

    def explain(self) -> list[str]:
        """Compiled, or row by row and why."""
        return self._compiled.explain()
