"""Filter by a function of one row: the rows for which it is true. The others are counted as filtered."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.operators.calling import own_copy
from penstock.operators.filter import Filter
from penstock.operators.function import RowFunction
from penstock.operators.op import ERRORS, OUT
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch
from penstock.stages.by_row import ByRow, by_row
from penstock.stages.filter_stage import kept
from penstock.stages.row_compiled import CompiledRows
from penstock.stages.row_errors import RowErrors
from penstock.stages.row_given import PREDICATE
from penstock.stages.row_shape import new, row_kind
from penstock.stages.row_work import all_called, is_few, one_by_one, truth
from penstock.stages.site import Site
from penstock.stages.stateless import Out, Stateless
from penstock.stages.user_calls import Plain


class RowFilter(Stateless):
    """A function that says of one row whether it stays."""

    def __init__(self, op: Filter, up: Stream, site: Site) -> None:
        super().__init__(up, site)
        assert isinstance(op.how, RowFunction), "other predicates have stages of their own"
        self._function, self._call = op.how, own_copy(op.how.call)
        self._step = self._row_if_true()
        self._errors = RowErrors(site, op.on_error, up.schema)
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
        yield OUT, kept(done, fast.columns[PREDICATE], self.site.accounts)
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
