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
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.accounts import Accounts
from penstock.connect.batching import RowLists
from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr import Expr, lower_python
from penstock.expr import compute as pc
from penstock.expr.nodes.text_and_time import Split
from penstock.expr.values import to_numpy
from penstock.kernels.split import split_strings, spread_lists
from penstock.operators.function import BatchFunction, Expressions, RowFunction, own_copy
from penstock.operators.op import ERRORS, IN, OUT, Stream
from penstock.operators.rows import Filter, FlatMap, Map, WithColumns
from penstock.stages import policy, stage
from penstock.stages.expressions import ExpressionStage, true_mask
from penstock.stages.functions import calls, loops
from penstock.stages.functions.compile import CompiledFunction, CompiledResults
from penstock.stages.functions.rewrite import PREDICATE
from penstock.stages.rows.batch import Batch, Ints, Mask
from penstock.stages.rows.children import Children, expand_rows, place_children
from penstock.stages.rows.order import append_order, sort_indices
from penstock.stages.stage import Outputs, PlainRow, StageContext


class ExpressionMap(ExpressionStage, stage.RowStage):
    """Columns added, replaced or selected by expressions."""

    def __init__(self, op: WithColumns, up: Stream, site: StageContext) -> None:
        super().__init__(op, up, site, [expr for _, expr in op.how.columns], f"expression {op.how}")
        self._down = op.outputs({IN: up})[OUT].schema
        self._names = [name for name, _ in op.how.columns]

    def process(self, batch: Batch) -> Outputs:
        """Put the new columns beside those that stay; of few plain rows no column is built."""
        values = None if batch.plain is None else self._evaluator.plain_values(batch)
        if values is None:
            yield from super().process(batch)
            return
        self.site.accounts.passed += batch.num_rows
        added = dict(zip(self._names, values, strict=True))
        lists = [added[name] if name in added else batch.values(name) for name in self._down.names]
        yield OUT, batch.with_lists(lists, self._down)

    def emit(self, batch: Batch, values: list[Any]) -> Outputs:
        """Put the new columns beside those that stay."""
        columns = dict(zip(batch.schema.names, batch.rows.columns, strict=True))
        columns |= dict(zip(self._names, values, strict=True))
        result = pa.RecordBatch.from_arrays([columns[name] for name in self._down.names], schema=self._down)
        self.site.accounts.passed += result.num_rows
        yield OUT, Batch(result, batch.times, batch.order)

    def row_step(self) -> stage.RowStep:
        """Put the new values beside those that stay, by plain Python."""
        plain, down, names = self._evaluator.plain, self._down.names, self._names

        def process(row: PlainRow) -> PlainRow:
            values = {**row, **dict(zip(names, plain(row), strict=True))}
            return {name: values[name] for name in down}

        return self.row_step_of(process)


class ExpressionFilter(ExpressionStage, stage.RowStage):
    """A predicate that is an expression."""

    as_masks = True
    subject = "the predicate runs"

    def __init__(self, op: Filter, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, Expr), "functions have stages of their own"
        super().__init__(op, up, site, [op.how], f"expression {op.how}")

    def emit(self, batch: Batch, values: list[Any]) -> Outputs:
        """Emit the rows for which the expression is true."""
        yield OUT, filter_rows(batch, values[0], self.site.accounts)

    def row_step(self) -> stage.RowStep:
        """Pass the row if it is true, by plain Python: for a single row Arrow takes many times as long."""
        plain = self._evaluator.plain
        return self.row_step_of(lambda row: row if plain(row)[0] is True else None)


class ExpressionFlatMap(ExpressionStage):
    """A row per element of a list, the other columns repeated; a null or empty list gives none.

    Text that is split at one character is not made a list: a loop writes the words at once.
    """

    subject = "the list runs"

    def __init__(self, op: FlatMap, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, Expressions), "functions have stages of their own"
        ((self._name, expr),) = op.how.columns
        self._separator: str | None = None
        if isinstance(expr, Split) and len(expr.pattern) == 1 and expr.pattern.isascii():
            assert isinstance(expr.child, Expr), "what is split is an expression"
            self._separator, expr = expr.pattern, expr.child
        super().__init__(op, up, site, [expr], f"expression {op.how}")
        self._down = op.outputs({IN: up})[OUT].schema
        self._run = policy.JitPolicy()
        self._list_of: Callable[[PlainRow], Any] = lower_python(op.how.columns[0][1], up.schema)

    def process(self, batch: Batch) -> Outputs:
        """Emit the elements of all lists, one after the other; of few plain rows no column is built."""
        rows, lists = batch.plain, None
        if rows is not None and len(rows) <= policy.SIZES.few_rows:
            with suppress(RowFailure):
                lists = [self._list_of(row) or () for row in rows]
        if lists is None:
            yield from super().process(batch)
            return
        self.site.accounts.passed += batch.num_rows
        children = Children.of(lists)
        elements = [element for of_one in lists for element in of_one]
        columns = [
            elements if name == self._name else children.repeat(batch.values(name))
            for name in self._down.names
        ]
        yield OUT, children.place(batch, RowLists(self._down.names, columns), self._down)

    def emit(self, batch: Batch, values: list[Any]) -> Outputs:
        """Emit the elements of all lists, one after the other."""
        (lists,) = values
        self.site.accounts.passed += len(lists)
        if self._separator is not None and not lists.null_count:
            firsts, elements = split_text(lists, self._separator, self._run)
        else:
            lists = lists if self._separator is None else pc.split_pattern(lists, self._separator)
            elements = pc.list_flatten(lists)
            sizes = np.bincount(to_numpy(pc.list_parent_indices(lists)), minlength=len(lists))
            firsts = np.append(0, np.cumsum(sizes)).astype(np.int32)

        @cache
        def spread() -> tuple[Ints, Ints]:
            parents, index = np.empty((2, len(elements)), np.int64)
            self._run(spread_lists, firsts, parents, index)
            return parents, index

        # Why: those who count words ask neither for their lines nor for their places (`python -m bench
        # peers`, WordCount).
        times, added = (
            np.repeat(batch.times, np.diff(firsts)),
            pa.RecordBatch.from_arrays([elements], [self._name]),
        )
        yield (
            OUT,
            batch.repeat(
                times,
                lambda: spread()[0],
                lambda: append_order(batch.order, spread()[1], spread()[0]),
                added,
                self._down,
            ),
        )


def split_text(
    texts: pa.Array, separator: str, run: policy.JitPolicy
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Return the number of the first word of each text, with that of all words behind them, and the words.

    >>> firsts, words = split_text(pa.array(["a b", "", "c"]), " ", policy.JitPolicy())
    >>> firsts.tolist(), words.to_pylist()
    ([0, 2, 3, 4], ['a', 'b', '', 'c'])
    """
    _, ends, data = texts.buffers()
    n_texts, mark = len(texts), ord(separator)
    offsets = (
        np.frombuffer(ends, np.int32, n_texts + 1, texts.offset * 4) if n_texts else np.zeros(1, np.int32)
    )
    octets = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    text = octets[offsets[0] : offsets[-1]]
    n_words = n_texts + int(np.count_nonzero(text == mark))
    firsts, starts = np.empty(n_texts + 1, np.int32), np.empty(n_words + 1, np.int32)
    words = np.empty(len(text), np.uint8)
    run(split_strings, offsets, octets, mark, firsts, starts, words, work=n_texts + len(text))
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(words)]
    return firsts, pa.Array.from_buffers(pa.string(), n_words, buffers)


class BatchFunctionStage(stage.StatelessStage):
    """A function of whole batches.

    It is called once, or again row by row if that fails and errors may pass.
    """

    def __init__(self, op: Map | Filter | FlatMap, up: Stream, site: StageContext) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other functions have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._down = op.outputs({IN: up})[OUT].schema
        self._keeps_schema = up.schema.equals(self._down)
        self._errors = stage.RowErrors(site, op.on_error, up.schema)

    @abstractmethod
    def collect(self, batch: Batch, returned: object) -> Batch:
        """Return the rows that leave, from what the function returned for a batch; counts them."""

    def process(self, batch: Batch) -> Outputs:
        """Call the function."""
        try:
            returned = self._call(batch.rows)
        except Exception as cause:
            if self._errors.stops:
                fact = f"function {self._function.name} failed on a batch"
                raise self._error(fact, describe_cause(cause)) from cause
            return self._call_row_by_row(batch)
        return iter(((OUT, self.collect(batch, returned)),))

    def _call_row_by_row(self, batch: Batch) -> Outputs:
        failed, contexts = np.zeros(batch.num_rows, np.bool_), []
        for index in range(batch.num_rows):
            row = batch.take(np.array([index]))
            try:
                returned = self._call(row.rows)
            except Exception as cause:
                failed[index] = True
                contexts.append(calls.function_error(self._function, cause))
                continue
            yield OUT, self.collect(row, returned)
        dead_letters = self._errors.handle(batch, failed, contexts) if contexts else None
        if dead_letters is not None:
            yield ERRORS, dead_letters

    def check_columns(self, returned: Any) -> pa.RecordBatch:
        """Return what the function returned, if it is a batch with the declared columns."""
        if not isinstance(returned, pa.RecordBatch):
            raise self._error(
                f"{self._function} gave {type(returned).__name__}, not a RecordBatch",
                hint="give a pyarrow.RecordBatch with the declared columns",
            )
        if returned.schema.equals(self._down):
            return returned
        if returned.schema.names != self._down.names or returned.schema.types != self._down.types:
            raise self._error(
                f"{self._function} gave other columns than it declared",
                f"it gave {_describe_columns(returned.schema)}; it declared {_describe_columns(self._down)}",
                hint="select the declared columns, or declare these: ps.batch(fn, schema=...)",
            )
        return pa.RecordBatch.from_arrays(returned.columns, schema=self._down)

    def check_length(self, n_returned: int, batch: Batch) -> None:
        """Raise unless there is one answer per row."""
        if n_returned != batch.num_rows:
            raise self._error(
                f"{self._function} gave {n_returned} rows for {batch.num_rows}",
                hint="use flat_map where the number of rows changes",
            )

    def _error(self, fact: str, detail: str | None = None, hint: str | None = None) -> FunctionError:
        """Return the error of the function, for which no single row is at fault."""
        hint = hint or (stage.HINT if detail else None)
        where = self._function.where or self.site.where
        return FunctionError(fact, step=self.site.step, where=where, detail=detail, hint=hint)

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`."""
        return [f"{self._function} gets whole batches"]


def _describe_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


class BatchMap(BatchFunctionStage):
    """A function from batch to batch of equal length: row i out belongs to row i in."""

    def collect(self, batch: Batch, returned: object) -> Batch:
        """Implement `BatchFunctionStage.collect`."""
        # Why: what is returned as it came needs no check (`python -m bench runtime`, group chain).
        if returned is batch.rows and self._keeps_schema:
            self.site.accounts.passed += batch.num_rows
            return batch
        rows = self.check_columns(returned)
        self.check_length(rows.num_rows, batch)
        self.site.accounts.passed += batch.num_rows
        return Batch(rows, batch.times, batch.order)


class BatchFilter(BatchFunctionStage):
    """A function that returns true, false or null for each row of a batch."""

    def collect(self, batch: Batch, returned: object) -> Batch:
        """Implement `BatchFunctionStage.collect`."""
        truths = returned.combine_chunks() if isinstance(returned, pa.ChunkedArray) else returned
        if not isinstance(truths, pa.Array) or not pa.types.is_boolean(truths.type):
            kind = truths.type if isinstance(truths, pa.Array) else type(truths).__name__
            raise self._error(
                f"{self._function} gave {kind}, not a boolean array",
                hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
            )
        self.check_length(len(truths), batch)
        return filter_rows(batch, true_mask(truths), self.site.accounts)


class BatchFlatMap(BatchFunctionStage):
    """A function from batch to batch of any length.

    As many rows as came in: each has the time of its counterpart. Otherwise nobody can say which row a new
    one came from, and all have the time and place of the last row of the batch.
    """

    def collect(self, batch: Batch, returned: object) -> Batch:
        """Implement `BatchFunctionStage.collect`."""
        children = self.check_columns(returned)
        self.site.accounts.passed += batch.num_rows
        if children.num_rows == batch.num_rows:
            return place_children(batch, np.arange(batch.num_rows, dtype=np.int64), children)
        last = sort_indices([batch.times, *batch.order], batch.rows)[-1]
        return place_children(batch, np.full(children.num_rows, last, np.int64), children)


class CompiledStage(calls.RowFunctionStage, stage.RowStage):
    """A function of rows with at most one row out, compiled where that changes no answer.

    down  the columns it returns; None for a predicate
    """

    def __init__(self, op: Map | Filter, up: Stream, site: StageContext, down: pa.Schema | None) -> None:
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        super().__init__(op, up, site, op.how)
        self._compiled = CompiledFunction(op.how, up.schema, down, wraps=op.compile)
        self._process_row: Callable[[PlainRow], Any]

    def process(self, batch: Batch) -> Outputs:
        """Call the function; what the compiled one leaves out is called in Python."""
        computed = None if calls.keeps_plain_rows(batch) else self._compiled.results(batch.rows)
        if computed is not None:
            whole = not len(computed.rest)
            yield OUT, self.collect_computed(batch if whole else batch.take(computed.indices), computed)
            if whole:
                return
            batch = batch.take(computed.rest)
        yield from super().process(batch)

    @abstractmethod
    def collect_computed(self, batch: Batch, computed: CompiledResults) -> Batch:
        """Return the rows that leave, from what the compiled function computed; counts them."""

    def row_step(self) -> stage.RowStep:
        """Call the function."""
        return calls.function_step(self._process_row, self._function, self._errors)

    def explain(self) -> list[str]:
        """Implement `StatelessStage.explain`."""
        return self._compiled.explain()


class RowMap(CompiledStage):
    """A function from row to row."""

    def __init__(self, op: Map, up: Stream, site: StageContext) -> None:
        self._down = op.outputs({IN: up})[OUT].schema
        super().__init__(op, up, site, self._down)
        call, validator = own_copy(self._function.call), calls.RowValidator(self._down)
        self._loop = loops.build_map_loop(call, up.schema, validator)
        self._process_row = calls.compile_map_step(call, calls.row_type(up.schema), validator)

    def collect_computed(self, batch: Batch, computed: CompiledResults) -> Batch:
        """Implement `CompiledStage.collect_computed`."""
        self.site.accounts.passed += batch.num_rows
        rows = self._compiled.rows(batch.rows, computed, self._down)
        return Batch(rows, batch.times, batch.order)

    def emit(self, batch: Batch, results: list[list[Any]]) -> Outputs:
        """Implement `RowFunctionStage.emit`."""
        self.site.accounts.passed += batch.num_rows
        yield OUT, batch.with_lists(results, self._down)


class RowFilter(CompiledStage):
    """A function that says of one row whether it stays."""

    def __init__(self, op: Filter, up: Stream, site: StageContext) -> None:
        super().__init__(op, up, site, None)
        call, (row_class, fill) = own_copy(self._function.call), calls.row_type(up.schema)
        new_object = calls.new_object

        def row_if_true(values: PlainRow) -> PlainRow | None:
            row = new_object(row_class)
            fill(row, values)
            holds = call(row)
            return values if holds is True or (holds is not False and calls.check_truth(holds)) else None

        self._process_row = row_if_true
        self._loop = loops.build_filter_loop(call, up.schema)

    def collect_computed(self, batch: Batch, computed: CompiledResults) -> Batch:
        """Implement `CompiledStage.collect_computed`."""
        return filter_rows(batch, computed.columns[PREDICATE], self.site.accounts)

    def emit(self, batch: Batch, results: list[list[Any]]) -> Outputs:
        """Implement `RowFunctionStage.emit`."""
        yield OUT, filter_rows(batch, np.array(results[0], np.bool_), self.site.accounts)


class RowFlatMap(calls.RowFunctionStage):
    """A function from a row to an iterable of rows; if it fails midway, none leave."""

    def __init__(self, op: FlatMap, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, RowFunction), "other functions have stages of their own"
        super().__init__(op, up, site, op.how)
        self._down = op.outputs({IN: up})[OUT].schema
        validator = calls.RowValidator(self._down)
        self._loop = loops.build_rows_loop(own_copy(op.how.call), up.schema, validator)

    def emit(self, batch: Batch, results: list[list[Any]]) -> Outputs:
        """Implement `RowFunctionStage.emit`."""
        self.site.accounts.passed += batch.num_rows
        yield OUT, expand_rows(batch, results[0], self._down)


def filter_rows(batch: Batch, holds: Mask, accounts: Accounts) -> Batch:
    """Return the rows that stay; counts both kinds."""
    rows = batch.where(holds)
    accounts.passed += rows.num_rows
    accounts.filtered += batch.num_rows - rows.num_rows
    return rows
