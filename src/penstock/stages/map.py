"""Map and select: one row out for every row in, at the same time and place."""

from __future__ import annotations

import pyarrow as pa

from penstock.operators.function import BatchFunction, Expressions, RowFunction, own_copy
from penstock.operators.map import Map, Select
from penstock.operators.op import ERRORS, IN, OUT
from penstock.operators.stream import Stream
from penstock.stages.expressions import Computing
from penstock.stages.functions.calls import BatchCalls, all_called, is_few, one_by_one
from penstock.stages.functions.compile import CompiledRows, Results
from penstock.stages.functions.errors import RowErrors
from penstock.stages.functions.rows import Plain, RowShape, mapped, row_kind
from penstock.stages.rows.batch import Batch
from penstock.stages.stage import Site
from penstock.stages.stateless import ByRow, Out, Stateless, by_row, computed_by_row


class ExpressionMap(Stateless):
    """Columns added, replaced or selected by expressions."""

    def __init__(self, op: Map | Select, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        function = Expressions(op.columns) if isinstance(op, Select) else op.how
        assert isinstance(function, Expressions), "other functions have stages of their own"
        self._function = function
        self._down = op.outputs({IN: up})[OUT].schema
        self._computing = Computing(
            [expr for _, expr in function.columns], up.schema, f"expression {function}"
        )
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.blame)

    def made(self, batch: Batch) -> Out:
        """The new columns beside those that stay."""
        computed = self._computing.of(batch, self._errors)
        columns = dict(zip(computed.rows.rows.schema.names, computed.rows.rows.columns, strict=True))
        names = (name for name, _ in self._function.columns)
        columns |= dict(zip(names, computed.values, strict=True))
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        self.site.accounts.passed += rows.num_rows
        yield OUT, Batch(rows, computed.rows.times, computed.rows.order)
        if computed.letters is not None:
            yield ERRORS, computed.letters

    def by_row(self) -> ByRow:
        """The new values beside those that stay, by plain Python."""
        plain, down = self._computing.plain, self._down.names
        names = [name for name, _ in self._function.columns]

        def step(row: Plain) -> Plain:
            values = {**row, **dict(zip(names, plain(row), strict=True))}
            return {name: values[name] for name in down}

        return computed_by_row(step, self._errors)

    def explain(self) -> list[str]:
        """Natively."""
        return ["expressions run as Arrow kernels"]


class BatchMap(Stateless):
    """A function from batch to batch of equal length."""

    def __init__(self, op: Map, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._calls = BatchCalls(op.how, op, up, site)
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

    def made(self, batch: Batch) -> Out:
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


class RowMap(Stateless):
    """A function from row to row."""

    def __init__(self, op: Map, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._down = op.outputs({IN: up})[OUT].schema
        self._step = mapped(self._call, row_kind(up.schema), RowShape(self._down))
        self._errors = RowErrors(site, op.on_error, up.schema)
        self._compiled = CompiledRows(op.how, up.schema, self._down, wraps=op.compile)

    def at_once(self, batch: Batch) -> Batch | None:
        """The function's rows, of few rows that are plain."""
        if not self._errors.stops or not is_few(batch):
            return None
        return batch.made_of(all_called(batch, self._step, self._function, self._errors), self._down)

    def made(self, batch: Batch) -> Out:
        """The function's rows."""
        fast = None if is_few(batch) else self._compiled.results(batch.rows)
        if fast is None:
            return self._in_python(batch)
        return self._merged(batch, fast)

    def _merged(self, batch: Batch, fast: Results) -> Out:
        """What the compiled function computed, and Python for the rows that are left."""
        done = batch if not len(fast.rest) else batch.take(fast.places)
        self.site.accounts.passed += done.num_rows
        rows = self._compiled.rows(done.rows, fast, self._down)
        yield OUT, Batch(rows, done.times, done.order)
        if len(fast.rest):
            yield from self._in_python(batch.take(fast.rest))

    def _in_python(self, batch: Batch) -> Out:
        worked = one_by_one(batch, self._row, self._function, self._errors)
        self.site.accounts.passed += len(worked.made)
        yield OUT, worked.rows.made_of(worked.made, self._down)
        if worked.letters is not None:
            yield ERRORS, worked.letters

    def by_row(self) -> ByRow:
        """The function's row."""
        return by_row(self._step, self._function, self._errors)

    def _row(self, place: int, values: Plain) -> Plain:
        return self._step(values)

    def explain(self) -> list[str]:
        """Compiled, or row by row and why."""
        return self._compiled.explain()
