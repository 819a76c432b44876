"""What operators do with a row and the state of its key: map, filter and flat_map with `state=`, accumulate.

Each does it in two ways that mean the same: `process_row` for a row by itself, and a loop over the lists of a
batch (`stages/functions/loops.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kind

from penstock.errors import RowFailure
from penstock.expr.python.lower import exact_type_check
from penstock.expr.values import from_python
from penstock.operators.function import RowFunction, own_copy
from penstock.operators.op import Stream
from penstock.operators.rows import Accumulate, Filter, FlatMap, Map
from penstock.stages.functions import calls, loops
from penstock.stages.map import filter_rows
from penstock.stages.rows.batch import Batch
from penstock.stages.rows.children import expand_rows
from penstock.stages.stage import PlainRow, StageContext
from penstock.stages.state.keyed import KeyedStage


class UserStateStage(KeyedStage):
    """`fn(row, state)`, which may change the state object it is given."""

    def __init__(self, op: Map | Filter | FlatMap, up: Stream, site: StageContext) -> None:
        assert isinstance(op.how, RowFunction), "only row functions keep state"
        assert op.state is not None, "a step without state has a stage of its own"
        self._call = own_copy(op.how.call)
        new_state: Callable[[], Any] = own_copy(op.state)
        super().__init__(op, up, site, op.how, new_state)
        self.loop = self.build_loop()

    @abstractmethod
    def build_loop(self) -> calls.RowLoop:
        """Return the loop that does what `process_row` does with every row."""


class StateMap(UserStateStage):
    """One row out for one row in."""

    def build_loop(self) -> calls.RowLoop:
        """Implement `UserStateStage.build_loop`."""
        return loops.build_map_loop(self._call, self.up.schema, self.validator, self._new_state)

    def process_row(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """Return the new row."""
        return self.validator.plain(self._call(self.new_row(values), state)), state


class StateFilter(UserStateStage):
    """The function says whether the row stays."""

    def build_loop(self) -> calls.RowLoop:
        """Implement `UserStateStage.build_loop`."""
        return loops.build_filter_loop(self._call, self.up.schema, self._new_state)

    def process_row(self, values: PlainRow, state: Any) -> tuple[PlainRow | None, Any]:
        """Return the row if it stays."""
        return values if calls.check_truth(self._call(self.new_row(values), state)) else None, state

    def collect(self, results: calls.RowResults) -> Batch:
        """Return the rows that stay."""
        return filter_rows(results.rows, np.array(results.lists[0], np.bool_), self.site.accounts)


class StateFlatMap(UserStateStage):
    """The function returns any number of rows."""

    def build_loop(self) -> calls.RowLoop:
        """Implement `UserStateStage.build_loop`."""
        return loops.build_rows_loop(self._call, self.up.schema, self.validator, self._new_state)

    def process_row(self, values: PlainRow, state: Any) -> tuple[list[PlainRow], Any]:
        """Return the new rows."""
        return calls.check_rows(self._call(self.new_row(values), state), self.validator), state

    def row_step(self) -> None:
        """Return None: several rows may leave for one."""
        return

    def collect(self, results: calls.RowResults) -> Batch:
        """Return the new rows, each with its index among its siblings."""
        self.site.accounts.passed += results.rows.num_rows
        return expand_rows(results.rows, results.lists[0], self.down)


class AccumulateStage(KeyedStage):
    """`state = fn(row, state)`; the key and the new state leave. A row that fails leaves the state alone."""

    def __init__(self, op: Accumulate, up: Stream, site: StageContext) -> None:
        self._call, self._state = own_copy(op.how.call), calls.RowValidator(op.state_schema)
        self._only_field = op.state_schema.field(0) if len(op.state_schema) == 1 else None
        self._only_name, only_type = op.state_schema.names[0], op.state_schema.types[0]
        self._is_plain = exact_type_check(only_type) if self._only_field is not None else lambda state: False
        self._float_keys = [name for name in up.key if kind.is_floating(up.schema.field(name).type)]
        super().__init__(op, up, site, op.how, op.new_state)
        if self._only_field is not None and len(self._key) == 1 and self.exact:
            self._process_plain = self._build_process()
        state, call = op.state_schema, self._call
        self.loop = loops.build_accumulate_loop(call, up.schema, state, self._columns, op.new_state)

    def collect(self, results: calls.RowResults) -> Batch:
        """Return the keys and the new states as columns."""
        rows = results.rows
        self.site.accounts.passed += rows.num_rows
        keys = [rows.values(name) for name in self._key]
        for place, name in enumerate(self._key):
            if name in self._float_keys:  # equal zeros are one key, 0.0
                keys[place] = [None if key is None else key + 0.0 for key in keys[place]]
        return rows.with_lists([*keys, *results.lists], self.down)

    def process_row(self, values: PlainRow, state: Any) -> tuple[PlainRow, Any]:
        """Return the key and the new state as columns, and the new state."""
        new_state = self._call(self.new_row(values), state)
        emitted: dict[str, Any] = {name: values[name] for name in self._key}
        for name in self._float_keys:  # equal zeros are one key, 0.0
            if emitted[name] is not None:
                emitted[name] += 0.0
        if self._is_plain(new_state):
            emitted[self._only_name] = new_state
        else:
            emitted |= self._columns(new_state)
        return emitted, new_state

    def _build_process(self) -> Callable[[PlainRow], Any]:
        """Return the work on one row, in one function, where the key is one column and the state another.

        Why: a call per part of the work makes `python -m bench runtime`, group rows, 1.2 times as slow.
        """
        (key,), name, call, new_row = self._key, self._only_name, self._call, self.new_row
        is_plain = self._is_plain

        def process(values: PlainRow) -> Any:
            states, key_value = self._states, values[key]  # not those of before a restore
            slot = self._slot_by_key.get(key_value)
            if slot not in states or self._changed_buckets.tracks:
                return self._process_row(values)
            state = call(new_row(values), states[slot])
            columns = {name: state} if is_plain(state) else self._columns(state)
            states[slot] = state  # after the columns: a state that does not fit leaves the old one
            return {key: key_value, **columns}

        return process

    def _columns(self, state: object) -> PlainRow:
        """Return a state as columns: a row, or a value where there is one column."""
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
