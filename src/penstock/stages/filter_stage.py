"""Filter: the rows for which something is true; null is not true. The others are counted as filtered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from penstock.expr import Expr
from penstock.expr import compute as pc
from penstock.operators.calling import own_copy
from penstock.operators.filter import Filter
from penstock.operators.function import BatchFunction, RowFunction
from penstock.operators.op import ERRORS, OUT
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch, Mask
from penstock.stages.batch_calls import BatchCalls
from penstock.stages.by_row import ByRow, by_row
from penstock.stages.computed import Computing
from penstock.stages.row_errors import RowErrors
from penstock.stages.row_shape import new, row_kind
from penstock.stages.row_work import all_called, is_few, one_by_one, truth
from penstock.stages.site import Accounts, Site
from penstock.stages.stateless import Out, Stateless
from penstock.stages.user_calls import Plain


class ExpressionFilter(Stateless):
    """A predicate that is an expression."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, Expr), "functions have stages of their own"
        self._computing = Computing([op.how], up.schema, f"expression {op.how}")
        self._errors = RowErrors(site, op.on_error, up.schema, self._computing.blame)

    def made(self, batch: Batch) -> Out:
        """The rows for which it is true."""
        computed = self._computing.of(batch, self._errors)
        yield OUT, kept(computed.rows, true_where(computed.values[0]), self.site.accounts)
        if computed.letters is not None:
            yield ERRORS, computed.letters

    def explain(self) -> list[str]:
        """Natively."""
        return ["the predicate runs as Arrow kernels"]


class BatchFilter(Stateless):
    """A function that gives true, false or null for each row of a batch."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, BatchFunction), "other predicates have stages of their own"
        self._calls = BatchCalls(op.how, op, up, site)

    def made(self, batch: Batch) -> Out:
        """The rows for which it is true."""
        return self._calls.given(batch, self._taken)

    def _taken(self, batch: Batch, given: object) -> Batch:
        truths = self._calls.truths(given)
        self._calls.same_length(len(truths), batch)
        return kept(batch, true_where(truths), self.site.accounts)

    def explain(self) -> list[str]:
        """As the user wrote it."""
        return self._calls.explain()


class RowFilter(Stateless):
    """A function that says of one row whether it stays."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other predicates have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._step = self._row_if_true()
        self._errors = RowErrors(site, op.on_error, up.schema)
        from penstock.stages.row_compiled import CompiledRows
        from penstock.stages.row_given import PREDICATE

        self._predicate = PREDICATE
        self._compiled = CompiledRows(op.how, up.schema, None, wraps=op.compile)

    def at_once(self, batch: Batch) -> Batch | None:
        """The rows for which it is true, of few rows that are plain."""
        if not self._errors.stops or not is_few(batch):
            return None
        found = all_called(batch, self._step, self._function, self._errors)
        n_lost = found.count(None)
        if n_lost == len(found):
            return Batch.of_plain((), self.up.schema, ())
        return batch if not n_lost else batch.where(np.array([row is not None for row in found], np.bool_))

    def made(self, batch: Batch) -> Out:
        """The rows for which it is true."""
        fast = None if is_few(batch) else self._compiled.results(batch.rows)
        if fast is None:
            yield from self._in_python(batch)
            return
        done = batch if not len(fast.rest) else batch.take(fast.places)
        yield OUT, kept(done, fast.columns[self._predicate], self.site.accounts)
        if len(fast.rest):
            yield from self._in_python(batch.take(fast.rest))

    def _in_python(self, batch: Batch) -> Out:
        worked = one_by_one(batch, self._holds, self._function, self._errors)
        if all(worked.made):
            self.site.accounts.passed += worked.rows.num_rows
            yield OUT, worked.rows
        elif not any(worked.made):
            self.site.accounts.filtered += worked.rows.num_rows
        else:
            yield OUT, kept(worked.rows, np.array(worked.made, np.bool_), self.site.accounts)
        if worked.letters is not None:
            yield ERRORS, worked.letters

    def by_row(self) -> ByRow:
        """The row, if it is true."""
        return by_row(self._step, self._function, self._errors)

    def _row_if_true(self) -> Callable[[Plain], Plain | None]:
        call, (kind, put) = self._call, row_kind(self.up.schema)

        def step(values: Plain) -> Plain | None:
            row = new(kind)
            put(row, values)
            holds = call(row)
            return values if holds is True or (holds is not False and truth(holds)) else None

        return step

    def _holds(self, place: int, values: Plain) -> bool:
        return self._step(values) is not None

    def explain(self) -> list[str]:
        """Compiled, or row by row and why."""
        return self._compiled.explain()


def true_where(truths: pa.BooleanArray) -> Mask:
    """Where it is true; null is not."""
    if truths.null_count:
        truths = pc.fill_null(truths, False)
    bits = np.frombuffer(truths.buffers()[1], np.uint8)
    first, end = truths.offset, truths.offset + len(truths)
    # Unpacked here, because Arrow takes ten times as long.
    return np.unpackbits(bits, count=end, bitorder="little")[first:].view(np.bool_)


def kept(batch: Batch, holds: Mask, accounts: Accounts) -> Batch:
    """The rows that stay; counts both kinds."""
    rows = batch.where(holds)
    accounts.passed += rows.num_rows
    accounts.filtered += batch.num_rows - rows.num_rows
    return rows
