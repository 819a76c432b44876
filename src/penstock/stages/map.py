"""Map, with_columns, select, filter and flat_map without state: rows keep their time.

    map, with_columns, select  one row out for every row in, at the same place
    filter                     the rows for which a predicate is true; null is not true
    flat_map                   none, one or several rows out for every row in; a row's place is extended by
                               its index among its siblings, so that they stay in the order they were returned

Each has a stage for expressions, which run as Arrow kernels, one for functions of batches, and one for
functions of rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.expr import Expr
from penstock.expr import compute as pc
from penstock.operators.function import BatchFunction, Expressions, RowFunction, own_copy
from penstock.operators.op import ERRORS, IN, OUT, Stream
from penstock.operators.rows import Filter, FlatMap, Map, WithColumns
from penstock.stages.expressions import ExpressionEvaluator, expression_step, true_mask
from penstock.stages.functions.calls import (
    BatchCaller,
    RowValidator,
    call_rows,
    check_rows,
    check_truth,
    compile_map_step,
    function_step,
    keeps_plain_rows,
    new_object,
    row_type,
)
from penstock.stages.functions.compile import CompiledFunction, CompiledResults
from penstock.stages.functions.rewrite import PREDICATE
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.order import append_order, sort_indices
from penstock.stages.stage import (
    Outputs,
    PlainRow,
    RowErrors,
    RowStage,
    RowStep,
    StageContext,
    StatelessStage,
)


class ExpressionMap(StatelessStage, RowStage):
    """Columns added, replaced or selected by expressions."""

    def __init__(self, op: WithColumns, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        self._down = op.outputs({IN: up})[OUT].schema
        self._names = [name for name, _ in op.how.columns]
        expressions = [expr for _, expr in op.how.columns]
        self._evaluator = ExpressionEvaluator(expressions, up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._evaluator.error_context)

    def process(self, batch: Batch) -> Outputs:
        """Puts the new columns beside those that stay."""
        evaluated = self._evaluator.evaluate(batch, self._errors)
        rows = evaluated.rows
        columns = dict(zip(rows.rows.schema.names, rows.rows.columns, strict=True))
        columns |= dict(zip(self._names, evaluated.values, strict=True))
        result = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        self.site.accounts.passed += result.num_rows
        yield OUT, Batch(result, rows.times, rows.order)
        if evaluated.dead_letters is not None:
            yield ERRORS, evaluated.dead_letters

    def row_step(self) -> RowStep:
        """Puts the new values beside those that stay, by plain Python."""
        plain, down, names = self._evaluator.plain, self._down.names, self._names

        def process(row: PlainRow) -> PlainRow:
            values = {**row, **dict(zip(names, plain(row), strict=True))}
            return {name: values[name] for name in down}

        return expression_step(process, self._errors)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["expressions run as Arrow kernels"]


class ExpressionFilter(StatelessStage, RowStage):
    """A predicate that is an expression."""

    def __init__(self, op: Filter, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have stages of their own"
        self._evaluator = ExpressionEvaluator([op.how], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._evaluator.error_context)

    def process(self, batch: Batch) -> Outputs:
        """Emits the rows for which the expression is true."""
        masks = self._evaluator.masks(batch, self._errors)
        yield OUT, filter_rows(masks.rows, masks.masks[0], self.site.accounts)
        if masks.dead_letters is not None:
            yield ERRORS, masks.dead_letters

    def row_step(self) -> RowStep:
        """Passes the row if it is true, by plain Python: for a single row Arrow takes many times as long."""
        plain = self._evaluator.plain
        return expression_step(lambda row: row if plain(row)[0] is True else None, self._errors)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["the predicate runs as Arrow kernels"]


class ExpressionFlatMap(StatelessStage):
    """A row per element of a list, the other columns repeated; a null or empty list gives none."""

    def __init__(self, op: FlatMap, up: Stream, site: StageContext) -> None:
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
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns[self._name] = pc.list_flatten(lists)
        children = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        yield OUT, place_children(evaluated.rows, parents.to_numpy().astype(np.int64), children)
        if evaluated.dead_letters is not None:
            yield ERRORS, evaluated.dead_letters

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return ["the list runs as Arrow kernels"]


class BatchFunctionStage(StatelessStage):
    """A function of whole batches."""

    def __init__(self, op: Map | Filter | FlatMap, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._function = BatchCaller(op.how, op, up, site)

    def process(self, batch: Batch) -> Outputs:
        """Calls the function."""
        return self._function.call(batch, self.collect)

    @abstractmethod
    def collect(self, batch: Batch, returned: object) -> Batch:
        """Returns the rows that leave, from what the function returned for a batch; counts them."""

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._function.explain()


class BatchMap(BatchFunctionStage):
    """A function from batch to batch of equal length: row i out belongs to row i in."""

    def __init__(self, op: Map, up: Stream, site: StageContext) -> None:
        super().__init__(op, up, site)
        self._keeps_schema = up.schema.equals(op.outputs({IN: up})[OUT].schema)

    def collect(self, batch: Batch, returned: object) -> Batch:
        """Implements `BatchFunctionStage.collect`."""
        # Why: what is returned as it came needs no check (`python -m bench runtime`, group chain).
        if self._keeps_schema and returned is batch.rows:
            self.site.accounts.passed += batch.num_rows
            return batch
        rows = self._function.check_columns(returned)
        self._function.check_length(rows.num_rows, batch)
        self.site.accounts.passed += batch.num_rows
        return Batch(rows, batch.times, batch.order)


class BatchFilter(BatchFunctionStage):
    """A function that returns true, false or null for each row of a batch."""

    def collect(self, batch: Batch, returned: object) -> Batch:
        """Implements `BatchFunctionStage.collect`."""
        truths = self._function.check_truths(returned)
        self._function.check_length(len(truths), batch)
        return filter_rows(batch, true_mask(truths), self.site.accounts)


class BatchFlatMap(BatchFunctionStage):
    """A function from batch to batch of any length.

    As many rows as came in: each has the time of its counterpart. Otherwise nobody can say which row a new
    one came from, and all have the time and place of the last row of the batch.
    """

    def collect(self, batch: Batch, returned: object) -> Batch:
        """Implements `BatchFunctionStage.collect`."""
        children = self._function.check_columns(returned)
        self.site.accounts.passed += batch.num_rows
        if children.num_rows == batch.num_rows:
            return place_children(batch, np.arange(batch.num_rows, dtype=np.int64), children)
        last = sort_indices([batch.times, *batch.order], batch.rows)[-1]
        return place_children(batch, np.full(children.num_rows, last, np.int64), children)


class RowFunctionStage(StatelessStage, RowStage):
    """A function of rows with at most one row out, compiled where that changes no answer.

    down  the columns it returns; None for a predicate
    """

    def __init__(self, op: Map | Filter, up: Stream, site: StageContext, down: pa.Schema | None) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function, self._errors = op.how, RowErrors(site, op.on_error, up.schema)
        self._compiled = CompiledFunction(op.how, up.schema, down, wraps=op.compile)
        self._process_row: Callable[[PlainRow], PlainRow | None]

    def process(self, batch: Batch) -> Outputs:
        """Calls the function; what the compiled one leaves out is called in Python."""
        computed = None if keeps_plain_rows(batch) else self._compiled.results(batch.rows)
        if computed is not None:
            whole = not len(computed.rest)
            yield OUT, self.collect_computed(batch if whole else batch.take(computed.indices), computed)
            if whole:
                return
            batch = batch.take(computed.rest)
        results = call_rows(batch, self._process_row, self._function, self._errors)
        yield OUT, self.collect(results.rows, results.values)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    @abstractmethod
    def collect_computed(self, batch: Batch, computed: CompiledResults) -> Batch:
        """Returns the rows that leave, from what the compiled function computed; counts them."""

    @abstractmethod
    def collect(self, batch: Batch, results: list[PlainRow | None]) -> Batch:
        """Returns the rows that leave, from what the function returned for each row; counts them."""

    def row_step(self) -> RowStep:
        """Calls the function."""
        return function_step(self._process_row, self._function, self._errors)

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return self._compiled.explain()


class RowMap(RowFunctionStage):
    """A function from row to row."""

    def __init__(self, op: Map, up: Stream, site: StageContext) -> None:
        self._down = op.outputs({IN: up})[OUT].schema
        super().__init__(op, up, site, self._down)
        call = own_copy(self._function.call)
        self._process_row = compile_map_step(call, row_type(up.schema), RowValidator(self._down))

    def collect_computed(self, batch: Batch, computed: CompiledResults) -> Batch:
        """Implements `RowFunctionStage.collect_computed`."""
        self.site.accounts.passed += batch.num_rows
        rows = self._compiled.rows(batch.rows, computed, self._down)
        return Batch(rows, batch.times, batch.order)

    def collect(self, batch: Batch, results: list[PlainRow | None]) -> Batch:
        """Implements `RowFunctionStage.collect`."""
        self.site.accounts.passed += len(results)
        return batch.with_rows(results, self._down)  # type: ignore[arg-type]  # a map returns rows only


class RowFilter(RowFunctionStage):
    """A function that says of one row whether it stays."""

    def __init__(self, op: Filter, up: Stream, site: StageContext) -> None:
        super().__init__(op, up, site, None)
        call, (row_class, fill) = own_copy(self._function.call), row_type(up.schema)

        def row_if_true(values: PlainRow) -> PlainRow | None:
            row = new_object(row_class)
            fill(row, values)
            holds = call(row)
            return values if holds is True or (holds is not False and check_truth(holds)) else None

        self._process_row = row_if_true

    def collect_computed(self, batch: Batch, computed: CompiledResults) -> Batch:
        """Implements `RowFunctionStage.collect_computed`."""
        return filter_rows(batch, computed.columns[PREDICATE], self.site.accounts)

    def collect(self, batch: Batch, results: list[PlainRow | None]) -> Batch:
        """Implements `RowFunctionStage.collect`."""
        holds = np.array([row is not None for row in results], np.bool_)
        return filter_rows(batch, holds, self.site.accounts)


class RowFlatMap(StatelessStage):
    """A function from a row to an iterable of rows; if it fails midway, none leave."""

    def __init__(self, op: FlatMap, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._new_row = row_type(up.schema).row
        self._validator = RowValidator(op.outputs({IN: up})[OUT].schema)
        self._errors = RowErrors(site, op.on_error, up.schema)

    def process(self, batch: Batch) -> Outputs:
        """Calls the function."""
        call, new_row, validator = self._call, self._new_row, self._validator
        results = call_rows(
            batch, lambda row: check_rows(call(new_row(row)), validator), self._function, self._errors
        )
        self.site.accounts.passed += len(results.values)
        yield OUT, expand_rows(results.rows, results.values, validator)
        if results.dead_letters is not None:
            yield ERRORS, results.dead_letters

    def explain(self) -> list[str]:
        """Implements `StatelessStage.explain`."""
        return [f"{self._function} runs in Python, row by row"]


def filter_rows(batch: Batch, holds: Mask, accounts: Accounts) -> Batch:
    """Returns the rows that stay; counts both kinds."""
    rows = batch.where(holds)
    accounts.passed += rows.num_rows
    accounts.filtered += batch.num_rows - rows.num_rows
    return rows


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
