"""The steps with a state per key: map, filter and flat_map with `state=`, and accumulate."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import RowFailure
from penstock.expr.python.row_check import exact_type_check
from penstock.expr.types import from_python
from penstock.operators.accumulate import Accumulate
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.map import Filter, FlatMap, Map
from penstock.operators.stream import Stream
from penstock.stages.filter import filter_rows
from penstock.stages.flat_map import expand_rows
from penstock.stages.functions.calls import RowResults, check_rows, check_truth
from penstock.stages.functions.rows import PlainRow, RowValidator, new_object, row_type
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import Site
from penstock.stages.state.keyed import KeyedStage
from penstock.stages.stateless import RowStep

EmitRow = Callable[[PlainRow, Any], PlainRow | None]


class UserStateStage(KeyedStage):
    """`fn(row, state)`, which may change the state object it is given."""

    def __init__(self, op: Map | Filter | FlatMap, up: Stream, site: Site) -> None:
        assert isinstance(op.how, RowFunction), "only row functions keep state"
        assert op.state is not None, "a step without state has a stage of its own"
        new_state: Callable[[], Any] = own_copy(op.state)
        super().__init__(op, up, site, op.how, new_state)
        self._call = own_copy(op.how.call)

    def given(self, values: PlainRow, state: Any) -> Any:
        """What the function gives for a row."""
        return self._call(self.new_row(values), state)


class StateMap(UserStateStage):
    """One row out for one row in."""

    def step(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """The new row."""
        return self.shape.plain(self.given(values, state)), state

    def leaves(self) -> EmitRow:
        """The new row."""
        return lambda values, made: made

    def leaving(self, batch: Batch, slots: Ints, results: RowResults[PlainRow]) -> Batch:
        """The new rows, at the same times and places."""
        self.site.accounts.passed += len(results.made)
        return results.rows.with_rows(results.made, self.down)


class StateFilter(UserStateStage):
    """The function says whether the row stays."""

    def step(self, values: PlainRow, state: Any) -> tuple[bool, Any]:
        """Whether it stays."""
        return check_truth(self.given(values, state)), state

    def leaves(self) -> EmitRow:
        """The row, if it stays."""
        return lambda values, holds: values if holds else None

    def leaving(self, batch: Batch, slots: Ints, results: RowResults[bool]) -> Batch:
        """The rows that stay."""
        return filter_rows(results.rows, np.array(results.made, np.bool_), self.site.accounts)


class StateFlatMap(UserStateStage):
    """The function gives any number of rows."""

    def step(self, values: PlainRow, state: Any) -> tuple[list[PlainRow], Any]:
        """The new rows."""
        return check_rows(self.given(values, state), self.shape), state

    def leaving(self, batch: Batch, slots: Ints, results: RowResults[list[PlainRow]]) -> Batch:
        """The new rows, each with its index among its siblings."""
        self.site.accounts.passed += len(results.made)
        return expand_rows(results.rows, results.made, self.shape)


class AccumulateStage(KeyedStage):
    """`state = fn(row, state)`; the key and the new state leave. A row that fails leaves the state alone."""

    def __init__(self, op: Accumulate, up: Stream, site: Site) -> None:
        super().__init__(op, up, site, op.how, op.new_state)
        self._call, self._state = own_copy(op.how.call), RowValidator(op.state_schema)
        self._plainly = exact_type_check(op.state_schema.field(0).type)
        self._only = op.state_schema.field(0) if len(op.state_schema) == 1 else None

    def step(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """The new state as columns, and itself."""
        moved = self._call(self.new_row(values), state)
        return self._columns(moved), moved

    def leaves(self) -> EmitRow | None:
        """The key and the state, where the row's own key is the key."""
        key = self.up.key
        return (lambda row, state: {**{name: row[name] for name in key}, **state}) if self.exact else None

    def by_row(self) -> RowStep | None:
        """The same with fewer calls, where the key is one column, and the state another."""
        found = super().by_row()
        if found is None or self._only is None or len(self.up.key) > 1:
            return found
        (key,), name, call, (kind, put) = self.up.key, self._only.name, self._call, row_type(self.up.schema)
        slot_of, is_plain, columns = self.slot_of, self._plainly, self._columns

        def step(values: PlainRow) -> PlainRow:
            held, states = values[key], self._states
            slot = None if self._touched.noting else self._known.get(held)
            if slot is None:
                slot = slot_of(values)
            if slot not in states:
                states[slot] = self._new_state()
            row = new_object(kind)
            put(row, values)
            state = call(row, states[slot])
            made = {key: held, name: state} if is_plain(state) else {key: held, **columns(state)}
            states[slot] = state
            return made

        return replace(found, step=step)

    def leaving(self, batch: Batch, slots: Ints, results: RowResults[PlainRow]) -> Batch:
        """The key columns and the state's columns."""
        self.site.accounts.passed += len(results.made)
        rows = results.rows
        if rows.plain is not None and self.exact:
            made = [
                {**{name: row[name] for name in self.up.key}, **state}
                for row, state in zip(rows.plain, results.made, strict=True)
            ]
            return rows.with_rows(made, self.down)
        states = self._state.columns(results.made)
        columns = [*self.keys.columns_of(slots if results.places is None else slots[results.places])]
        columns += states.columns
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.down), rows.times, rows.order)

    def _columns(self, state: object) -> PlainRow:
        """A state as columns: a row, or a plain value where there is one column."""
        if self._only is not None and self._plainly(state):
            return {self._only.name: state}
        if self._only is not None and isinstance(state, int | float | str | bytes | None):
            with suppress(RowFailure):  # then it is told below that a row was expected
                return self._alone(self._only, state)
        try:
            return self._state.plain(state)
        except RowFailure as not_a_row:
            if self._only is None:
                raise
            try:
                return self._alone(self._only, state)
            except RowFailure:
                raise not_a_row from None

    def _alone(self, field: pa.Field, state: object) -> dict[str, object]:
        return {field.name: from_python(state, field.type)}
