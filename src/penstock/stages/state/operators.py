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
from penstock.expr.values import from_python
from penstock.operators.accumulate import Accumulate
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.map import Filter, FlatMap, Map
from penstock.operators.stream import Stream
from penstock.stages.functions.calls import RowResults, check_rows, check_truth
from penstock.stages.functions.rows import RowValidator, new_object, row_type
from penstock.stages.map import expand_rows, filter_rows
from penstock.stages.rows.batch import Batch, Ints
from penstock.stages.stage import PlainRow, RowStep, StageContext
from penstock.stages.state.keyed import EmitRow, KeyedStage


class UserStateStage(KeyedStage):
    """`fn(row, state)`, which may change the state object it is given."""

    def __init__(self, op: Map | Filter | FlatMap, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, RowFunction), "only row functions keep state"
        assert op.state is not None, "a step without state has a stage of its own"
        self._call = own_copy(op.how.call)
        new_state: Callable[[], Any] = own_copy(op.state)
        super().__init__(op, up, site, op.how, new_state)

    def call(self, values: PlainRow, state: Any) -> Any:
        """Returns what the function returns for a row."""
        return self._call(self.new_row(values), state)


class StateMap(UserStateStage):
    """One row out for one row in."""

    def process_row(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """Returns the new row."""
        return self.validator.plain(self.call(values, state)), state

    def emit_row(self) -> EmitRow:
        """Emits the new row."""
        return lambda values, new_row: new_row

    def collect(self, batch: Batch, slots: Ints, results: RowResults[PlainRow]) -> Batch:
        """Returns the new rows, at the same times and places."""
        self.site.accounts.passed += len(results.values)
        return results.rows.with_rows(results.values, self.down)


class StateFilter(UserStateStage):
    """The function says whether the row stays."""

    def process_row(self, values: PlainRow, state: Any) -> tuple[bool, Any]:
        """Returns whether it stays."""
        return check_truth(self.call(values, state)), state

    def emit_row(self) -> EmitRow:
        """Emits the row if it stays."""
        return lambda values, holds: values if holds else None

    def collect(self, batch: Batch, slots: Ints, results: RowResults[bool]) -> Batch:
        """Returns the rows that stay."""
        return filter_rows(results.rows, np.array(results.values, np.bool_), self.site.accounts)


class StateFlatMap(UserStateStage):
    """The function returns any number of rows."""

    def process_row(self, values: PlainRow, state: Any) -> tuple[list[PlainRow], Any]:
        """Returns the new rows."""
        return check_rows(self.call(values, state), self.validator), state

    def collect(self, batch: Batch, slots: Ints, results: RowResults[list[PlainRow]]) -> Batch:
        """Returns the new rows, each with its index among its siblings."""
        self.site.accounts.passed += len(results.values)
        return expand_rows(results.rows, results.values, self.validator)


class AccumulateStage(KeyedStage):
    """`state = fn(row, state)`; the key and the new state leave. A row that fails leaves the state alone."""

    def __init__(self, op: Accumulate, up: Stream, site: StageContext) -> None:
        self._call, self._state = own_copy(op.how.call), RowValidator(op.state_schema)
        self._is_plain = exact_type_check(op.state_schema.field(0).type)
        self._only_field = op.state_schema.field(0) if len(op.state_schema) == 1 else None
        super().__init__(op, up, site, op.how, op.new_state)

    def process_row(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """Returns the new state as columns, and itself."""
        new_state = self._call(self.new_row(values), state)
        return self._columns(new_state), new_state

    def emit_row(self) -> EmitRow | None:
        """Emits the key and the state, where the row's own key can stand for the key."""
        key = self.up.key
        if not self.exact:
            return None
        if len(key) == 1:
            (name,) = key
            return lambda row, state: {name: row[name], **state}
        return lambda row, state: {**{name: row[name] for name in key}, **state}

    def row_step(self) -> RowStep | None:
        """Returns the work on one row, in one function where the key is one column and the state another.

        Why: a call per part of the work makes `python -m bench runtime`, group rows, 1.3 times as slow.
        """
        step = super().row_step()
        if step is None or self._only_field is None or len(self.up.key) > 1:
            return step
        (key,), name, call = self.up.key, self._only_field.name, self._call
        row_class, fill = row_type(self.up.schema)
        slot_by_key, changed, states = self._slot_by_key, self._changed_buckets, self._states
        slot_of, is_plain, columns, new_state = self._slot_of, self._is_plain, self._columns, self._new_state

        def process(values: PlainRow) -> PlainRow:
            key_value = values[key]
            slot = None if changed.tracks else slot_by_key.get(key_value)
            if slot is None:
                slot = slot_of(values)
            if slot not in states:
                states[slot] = new_state()
            row = new_object(row_class)
            fill(row, values)
            state = call(row, states[slot])
            emitted = {key: key_value, name: state} if is_plain(state) else {key: key_value, **columns(state)}
            states[slot] = state  # after the columns: a state that does not fit leaves the old one
            return emitted

        return replace(step, process=process)

    def collect(self, batch: Batch, slots: Ints, results: RowResults[PlainRow]) -> Batch:
        """Returns the key columns and the state's columns."""
        self.site.accounts.passed += len(results.values)
        rows, emit = results.rows, self.emit_row()
        if rows.plain is not None and emit is not None:
            emitted = [emit(row, state) for row, state in zip(rows.plain, results.values, strict=True)]
            return rows.with_rows([row for row in emitted if row is not None], self.down)
        slots = slots if results.indices is None else slots[results.indices]
        columns = [*self.keys.columns_of(slots), *self._state.columns(results.values).columns]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.down), rows.times, rows.order)

    def _columns(self, state: object) -> PlainRow:
        """Returns a state as columns: a row, or a plain value where there is one column."""
        if self._only_field is not None and self._is_plain(state):
            return {self._only_field.name: state}
        if self._only_field is not None and isinstance(state, int | float | str | bytes | None):
            with suppress(RowFailure):  # then the error below says that a row was expected
                return self._only_column(self._only_field, state)
        try:
            return self._state.plain(state)
        except RowFailure as not_a_row:
            if self._only_field is None:
                raise
            try:
                return self._only_column(self._only_field, state)
            except RowFailure:
                raise not_a_row from None

    def _only_column(self, field: pa.Field, state: object) -> dict[str, object]:
        return {field.name: from_python(state, field.type)}
