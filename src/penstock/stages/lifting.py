"""What a window step takes from its rows as they come in: the values of aggregated expressions.

Each different expression is computed once per batch, natively on the columns. A row on which one fails, or
on which a fold's `lift` raises, is a row error and is in no window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.caller import defined_at, name_of
from penstock.errors import Where
from penstock.expr import Expr, lower_python, type_of
from penstock.expr.arrays import to_numpy
from penstock.expr.arrow.lower import lower_arrow
from penstock.expr.columns import Column
from penstock.expr.failure import RowFailure, reason_of
from penstock.frozen import dataclass
from penstock.operators.aggregates import Aggregate, Fold
from penstock.operators.choices.compiled import why_python
from penstock.operators.stream import Stream
from penstock.stages.batch import Batch, Ints, Mask
from penstock.stages.folding import Folding
from penstock.stages.row_errors import Blame
from penstock.stages.store import UNLIFTED, Objects, Values
from penstock.stages.user_calls import FoldCalls, plain_rows_of


@dataclass(frozen=True, slots=True)
class Lifted:
    """The values of each different expression, by place, and the parts of folds by registers, in their order.

    kept    what lift gave for each row, of folds that keep rows: it is called once per row
    failed  which rows failed; None if none did
    """

    arrays: tuple[pa.Array, ...]
    parts: tuple[Values, ...]
    failed: Mask | None
    kept: tuple[Objects, ...] = ()

    def at(self, places: Ints) -> Lifted:
        """What was taken from some rows, none of which failed."""
        arrays = tuple(array.take(pa.array(places)) for array in self.arrays)
        parts = tuple(each.at(places) for each in self.parts)
        return Lifted(arrays, parts, None, tuple(each[places] for each in self.kept))


class Lifting:
    """The expressions and folds of a step's aggregates."""

    def __init__(self, aggregates: Mapping[str, Aggregate], up: Stream) -> None:
        self._schema = up.schema
        self.expressions: list[Expr] = []
        for aggregate in aggregates.values():
            if aggregate.value is not None and self._find(aggregate.value) is None:
                self.expressions.append(aggregate.value)
        self._added = {
            place: _free_name(f"#{place}", up.schema)
            for place, expr in enumerate(self.expressions)
            if not isinstance(expr, Column)
        }
        self._computed = [lower_arrow(expr, up.schema) for expr in self.expressions]
        self.folds = {n: FoldCalls(each, up) for n, each in aggregates.items() if isinstance(each, Fold)}
        self.foldings = [
            Folding(each, up, self.folds[name])
            for name, each in aggregates.items()
            if isinstance(each, Fold) and why_python(each, up) is None
        ]
        by_registers = [id(folding.fold) for folding in self.foldings]
        self.in_python = [name for name in self.folds if id(aggregates[name]) not in by_registers]
        self._blames = [self._blame_of(name, each) for name, each in aggregates.items()]

    def place(self, value: Expr) -> int:
        """Which of the arrays has an expression's values."""
        found = self._find(value)
        assert found is not None, "every aggregated expression is listed"
        return found

    def column_name(self, value: Expr) -> str:
        """The column of kept rows that has an expression's values: its own, or one that is added."""
        return value.name if isinstance(value, Column) else self._added[self.place(value)]

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of kept rows: the input's, then computed expressions."""
        schema = self._schema
        for place, name in self._added.items():
            schema = schema.append(pa.field(name, type_of(self.expressions[place], self._schema)))
        return schema

    def kept(self, rows: pa.RecordBatch, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """The rows with the values of computed expressions as further columns."""
        columns = [*rows.columns, *(arrays[place] for place in self._added)]
        return pa.RecordBatch.from_arrays(columns, schema=self.kept_schema)

    def lift(self, batch: Batch) -> Lifted:
        """Compute all expressions on a batch, and try all folds on its rows."""
        evaluated = [compute(batch) for compute in self._computed]
        flags = [to_numpy(each.failed) for each in evaluated if each.failed is not None]
        kept, unliftable = self._kept(batch.rows) if self.in_python else ((), None)
        flags += [] if unliftable is None else [unliftable]
        parts = [folding.parts(batch.rows) for folding in self.foldings]
        flags += [each.failed for each in parts if each.failed is not None]
        failed = np.logical_or.reduce(flags) if flags else None
        arrays = tuple(each.values for each in evaluated)
        return Lifted(arrays, tuple(each.values for each in parts), failed, kept)

    def blame(self, values: dict[str, object]) -> Blame:
        """The first aggregate that fails on a row, and why."""
        for blame in self._blames:
            found = blame(values)
            if found is not None:
                return found
        raise AssertionError("a row failed on its columns, and passes by itself")

    def _lift_of(self, name: str, fold: Fold) -> Callable[[dict[str, object]], object]:
        """How a row is lifted: by registers what lift gives must be a part as well."""
        found = [each.lift for each in self.foldings if each.fold is fold]
        return found[0] if found else self.folds[name].lift

    def _find(self, value: Expr) -> int | None:
        return next((i for i, known in enumerate(self.expressions) if known.same_as(value)), None)

    def _kept(self, rows: pa.RecordBatch) -> tuple[tuple[Objects, ...], Mask]:
        """What the folds in Python lift from each row, and the rows on which one raises."""
        calls = [self.folds[name].lift for name in self.in_python]
        kept = tuple(np.full(rows.num_rows, UNLIFTED) for _ in calls)
        failed = np.zeros(rows.num_rows, np.bool_)
        for place, values in enumerate(plain_rows_of(rows)):
            try:
                for parts, call in zip(kept, calls, strict=True):
                    parts[place] = call(values)
            except Exception:
                failed[place] = True
        return kept, failed

    def _blame_of(self, name: str, aggregate: Aggregate) -> Callable[[dict[str, object]], Blame | None]:
        if isinstance(aggregate, Fold):
            who, where = f"function {name_of(aggregate.lift)}", defined_at(aggregate.lift)
            lift = self._lift_of(name, aggregate)
            return lambda values: _caught(lift, values, who, where, Exception)
        if aggregate.value is None:
            return lambda values: None
        compute, who = lower_python(aggregate.value, self._schema), f"expression {aggregate.value}"
        return lambda values: _caught(compute, values, who, None, RowFailure)


def _free_name(name: str, schema: pa.Schema) -> str:
    return _free_name(f"#{name}", schema) if name in schema.names else name


def _caught(
    call: Callable[[dict[str, object]], object],
    values: dict[str, object],
    who: str,
    where: Where | None,
    catches: type[Exception],
) -> Blame | None:
    try:
        call(values)
    except catches as cause:
        return Blame(who, where, cause, reason_of(cause))
    return None
