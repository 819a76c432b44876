"""Steps that call functions: map, select, filter, flat_map, relay, split, accumulate.

Functions are called on the run's own copies of callable objects. Rows keep their time. Where there is a state
per key, rows reach it in order (time, order): a row waits until the watermark has passed its time, so that no
earlier row can still come, and one that comes behind the watermark is late. On a stream without time every
row is in order as it comes. Imports no stage and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engines.reference.node import HINT, ErrorContext, Node, Outputs, RoundInput, Site, Values
from penstock.engines.rows import TimedRow, batch_to_rows, key_columns, key_of, rows_to_batch, sort_rows
from penstock.errors import FunctionError, RowFailure, describe_cause
from penstock.expr import Expr, lower_python
from penstock.expr.values import from_python, to_plain
from penstock.operators.function import BatchFunction, Expressions, Row, RowFunction, own_copy, plain_row
from penstock.operators.op import LATE, OUT, OnError
from penstock.operators.rows import Accumulate, Select, Split
from penstock.plan.plan import Ref

RowProcess = Callable[..., list[tuple[str, TimedRow]]]
"""(row) or (row, state) -> what the row becomes, by port; counts the row unless it raises."""


class RowNode(Node):
    """Processes row by row, at once; a row that fails is handled by the step's `on_error`."""

    def __init__(self, site: Site, context: ErrorContext, process: RowProcess) -> None:
        super().__init__(site)
        self._context, self._process = context, process

    def round(self, inputs: RoundInput) -> Outputs:
        """Process all rows of the round, in the order they came."""
        outputs: Outputs = {}
        for row in inputs.only:
            try:
                emitted = self._process(row)
            except self._context.catches as cause:
                self.failed_rows.add(row, self.site.step.up.schema, self._context, cause)
                continue
            for port, new in emitted:
                outputs.setdefault(port, []).append(new)
        return outputs


class Replicas(Node):
    """Broadcast to a stateless step: every replica gets every row, so its work is done once per replica."""

    def __init__(self, site: Site, nodes: list[Node]) -> None:
        super().__init__(site)
        self._nodes = nodes
        self.replicas = len(nodes)

    def round(self, inputs: RoundInput) -> Outputs:
        """Return what each replica gives, one after the other."""
        outputs: Outputs = {}
        for node in self._nodes:
            for port, rows in node.round(inputs).items():
                outputs.setdefault(port, []).extend(rows)
        return outputs

    def close(self) -> None:
        """Release what the replicas hold."""
        for node in self._nodes:
            node.close()


def map_rows(site: Site, function: Expressions | RowFunction) -> RowProcess:
    """Return the process of a map: one row out for one row in, at the same time.

    Expressions add columns, replace those of their name or, in a select, are all that is kept; a function
    gives the whole row. No expressions at all make a relay.
    """
    up, down = site.step.up.schema, site.step.outputs[OUT].schema
    compute: Callable[..., Values]
    if isinstance(function, Expressions):
        parts = [(name, lower_python(expr, up)) for name, expr in function.columns]
        keeps_all = not isinstance(site.step.op, Select)
        compute = lambda values: (values if keeps_all else {}) | {n: part(values) for n, part in parts}  # noqa: E731
    else:
        call = own_copy(function.call)
        compute = lambda values, *state: plain_row(call(Row(values, up), *state), down)  # noqa: E731

    def process(row: TimedRow, *state: Any) -> list[tuple[str, TimedRow]]:
        new = row.with_values(compute(row.values, *state))
        site.accounts.passed += 1
        return [(OUT, new)]

    return process


def filter_rows(site: Site, function: Expr | RowFunction) -> RowProcess:
    """Return the process of a filter: the rows for which something is true."""
    holds = compile_predicate(function, site.step.up.schema)

    def process(row: TimedRow, *state: Any) -> list[tuple[str, TimedRow]]:
        if holds(row.values, *state):
            site.accounts.passed += 1
            return [(OUT, row)]
        site.accounts.filtered += 1
        return []

    return process


def flat_map_rows(site: Site, function: Expressions | RowFunction) -> RowProcess:
    """Return the process of a flat_map: any number of rows; none if the function fails midway.

    They are the elements of a list, a null one having none, or what the function gives.
    """
    up, down = site.step.up.schema, site.step.outputs[OUT].schema
    compute: Callable[..., list[Values]]
    if isinstance(function, Expressions):
        ((name, expr),) = function.columns
        lowered: Callable[[Values], Any] = lower_python(expr, up)
        compute = lambda values: [{**values, name: part} for part in lowered(values) or ()]  # noqa: E731
    else:
        call = own_copy(function.call)
        compute = lambda values, *state: plain_rows(call(Row(values, up), *state), down)  # noqa: E731

    def process(row: TimedRow, *state: Any) -> list[tuple[str, TimedRow]]:
        new_rows = compute(row.values, *state)
        site.accounts.passed += 1
        return [(OUT, row.child(values, index)) for index, values in enumerate(new_rows)]

    return process


def split_rows(site: Site, op: Split) -> RowProcess:
    """Return the process of a split: rows keep their time and order on every branch.

    A row that reaches no branch that somebody reads is unrouted. A predicate that fails fails the row: then
    it reaches no branch at all.
    """
    schema, step, plan = site.step.up.schema, site.step, site.plan
    predicates = {name: compile_predicate(expr, schema) for name, expr in (op.predicates or {}).items()}
    call: Callable[[Values], object]
    if isinstance(op.how, Expr):
        call = lower_python(op.how, schema)
    elif op.how is not None:
        function = own_copy(op.how.call)
        call = lambda values: function(Row(values, schema))  # noqa: E731

    def process(row: TimedRow) -> list[tuple[str, TimedRow]]:
        if op.how is None:
            branches = [name for name, holds in predicates.items() if holds(row.values)]
        else:
            branches = branch_names(call(row.values), len(op.names))
        if any(plan.is_read(Ref(step.name, branch)) for branch in branches):
            site.accounts.passed += 1
        else:
            site.accounts.unrouted += 1
        return [(branch, row) for branch in branches]

    return process


def branch_names(value: object, n_branches: int) -> list[str]:
    """Return the branches that were named: a number, several (each once), or None for no branch."""
    if value is None:
        return []
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return sorted({branch_name(number, n_branches) for number in value}, key=int)
    return [branch_name(value, n_branches)]


def branch_name(number: object, n_branches: int) -> str:
    """Return one branch by its number; RowFailure when there is no such branch."""
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise RowFailure(f"gave {number!r:.80}, not the number of a branch")
    if not 0 <= number < n_branches:
        raise RowFailure(f"gave branch {number}, and the branches are 0 to {n_branches - 1}")
    return str(number)


class StateNode(Node):
    """Orders rows and hands them, one by one, to the step's process with the state of their key."""

    def __init__(
        self, site: Site, context: ErrorContext, process: RowProcess, new_state: Callable[[], Any]
    ) -> None:
        super().__init__(site)
        self._context, self._process = context, process
        self._new_state = own_copy(new_state)
        self._states: dict[tuple[Hashable, ...], Any] = {}
        self._waiting: list[TimedRow] = []

    def round(self, inputs: RoundInput) -> Outputs:
        """Add what is not late; process, in order, what the watermark has passed."""
        timed = self.site.step.up.time is not None
        late = [row for row in inputs.only if timed and row.at() < inputs.before]
        self._waiting += [row for row in inputs.only if not (timed and row.at() < inputs.before)]
        ready = [row for row in self._waiting if not timed or row.at() < inputs.after]
        self._waiting = [row for row in self._waiting if timed and row.at() >= inputs.after]
        self.accounts.late += len(late)
        outputs: Outputs = {OUT: [new for row in sort_rows(ready) for new in self._process_row(row)]}
        return outputs | ({LATE: late} if timed else {})

    def _process_row(self, row: TimedRow) -> list[TimedRow]:
        up = self.site.step.up
        key = key_of(row.values, up.key)
        try:
            if key not in self._states:
                self._states[key] = self._new_state()
            return [new for _, new in self._process(row, self._states[key])]
        except self._context.catches as cause:
            self.failed_rows.add(row, up.schema, self._context, cause)
            return []


class AccumulateNode(StateNode):
    """`state = fn(row, state)`; emits the key and the new state. A row that fails keeps the old state."""

    def __init__(self, site: Site, op: Accumulate) -> None:
        super().__init__(site, error_context(op.how), self._accumulate, op.new_state)
        self._call, self._state_schema = own_copy(op.how.call), op.state_schema

    def _accumulate(self, row: TimedRow, state: Any) -> list[tuple[str, TimedRow]]:
        up = self.site.step.up
        new_state = self._call(Row(row.values, up.schema), state)
        columns = _state_columns(new_state, self._state_schema)
        self._states[key_of(row.values, up.key)] = new_state
        self.accounts.passed += 1
        return [(OUT, row.with_values({**key_columns(row.values, up.key), **columns}))]


def _state_columns(state: object, schema: pa.Schema) -> dict[str, object]:
    """Return a state as columns: a row, or a plain value where the schema has one column."""
    try:
        return plain_row(state, schema)
    except RowFailure as not_a_row:
        if len(schema) != 1:
            raise
        try:
            return {schema.names[0]: from_python(state, schema.field(0).type)}
        except RowFailure:
            raise not_a_row from None


class BatchNode(Node):
    """A step with a function of whole batches, which gets the rows of a round as one RecordBatch.

    When the function raises and the step does not fail on errors, it is called again row by row, so that
    only the rows that fail on their own are lost. Its result must have the declared columns and, in map and
    filter, one row for each input row. Anything else stops the run, whatever `on_error` says, because then
    no row can be named that is at fault.
    """

    def __init__(self, site: Site, function: BatchFunction) -> None:
        super().__init__(site)
        self._function = function
        self._call = own_copy(function.call)
        self._up = site.step.up.schema

    def round(self, inputs: RoundInput) -> Outputs:
        """Return the rows of the round in one call; row by row if that fails and errors are let by."""
        rows = inputs.only
        if not rows:
            return {}
        try:
            result = self._call(rows_to_batch(rows, self._up))
        except Exception as cause:
            if self.failed_rows.policy == OnError.FAIL:
                raise self._error(
                    f"function {self._function.name} failed on a batch", describe_cause(cause)
                ) from cause
        else:
            return {OUT: self.emit(rows, result)}
        passed = []
        for row in rows:
            try:
                result = self._call(rows_to_batch([row], self._up))
            except Exception as cause:
                self.failed_rows.add(row, self._up, error_context(self._function), cause)
            else:
                passed += self.emit([row], result)
        return {OUT: passed}

    def emit(self, rows: list[TimedRow], result: Any) -> list[TimedRow]:
        """Return the rows that leave, from what the function gave for these rows."""
        raise NotImplementedError

    def require_batch(self, result: Any) -> pa.RecordBatch:
        """Return what the function gave, if it is a batch with the declared columns."""
        schema = self.site.step.outputs[OUT].schema
        if not isinstance(result, pa.RecordBatch):
            raise self._error(
                f"{self._function} gave {type(result).__name__}, not a RecordBatch",
                hint="give a pyarrow.RecordBatch with the declared columns",
            )
        if result.schema.names != schema.names or result.schema.types != schema.types:
            raise self._error(
                f"{self._function} gave other columns than it declared",
                f"it gave {_columns(result.schema)}; it declared {_columns(schema)}",
                hint="select the declared columns, or declare these: ps.batch(fn, schema=...)",
            )
        return result

    def require_same_length(self, result: Any, rows: list[TimedRow]) -> None:
        """Raise unless there is one answer per row."""
        if len(result) != len(rows):
            raise self._error(
                f"{self._function} gave {len(result)} rows for {len(rows)}",
                hint="use flat_map where the number of rows changes",
            )

    def _error(self, fact: str, detail: str | None = None, hint: str | None = None) -> FunctionError:
        hint = hint or (HINT if detail else None)
        return FunctionError(
            fact, step=self.site.step.name, where=self._function.where, detail=detail, hint=hint
        )


class BatchMapNode(BatchNode):
    """Row i out is made of row i in."""

    def emit(self, rows: list[TimedRow], result: Any) -> list[TimedRow]:
        """Return the new columns, at the same times."""
        batch = self.require_batch(result)
        self.require_same_length(batch, rows)
        self.accounts.passed += len(rows)
        return [row.with_values(values) for row, values in zip(rows, batch_to_rows(batch), strict=True)]


class BatchFilterNode(BatchNode):
    """The function gives true, false or null for each row."""

    def emit(self, rows: list[TimedRow], result: Any) -> list[TimedRow]:
        """Return the rows for which it is true."""
        if isinstance(result, pa.ChunkedArray):
            result = result.combine_chunks()
        if not isinstance(result, pa.Array) or not pa.types.is_boolean(result.type):
            kind = result.type if isinstance(result, pa.Array) else type(result).__name__
            raise self._error(
                f"{self._function} gave {kind}, not a boolean array",
                hint="give a boolean pyarrow array: pa.array(...), or a function of pyarrow.compute",
            )
        self.require_same_length(result, rows)
        passed = [row for row, keep in zip(rows, to_plain(result), strict=True) if keep is True]
        self.accounts.passed += len(passed)
        self.accounts.filtered += len(rows) - len(passed)
        return passed


class BatchFlatMapNode(BatchNode):
    """Any number of rows out.

    As many as came in: each has the time of its counterpart. Otherwise nobody can say which row a new
    one came from, and all have the time and place of the last row of the batch.
    """

    def emit(self, rows: list[TimedRow], result: Any) -> list[TimedRow]:
        """Return the new rows."""
        new_rows = batch_to_rows(self.require_batch(result))
        self.accounts.passed += len(rows)
        if len(new_rows) == len(rows):
            return [row.child(values, 0) for row, values in zip(rows, new_rows, strict=True)]
        last = sort_rows(rows)[-1]
        return [last.child(values, index) for index, values in enumerate(new_rows)]


def error_context(function: Expr | Expressions | BatchFunction | RowFunction) -> ErrorContext:
    """Return whom to name when it fails. An expression fails a row in one way only; a function in any."""
    if isinstance(function, Expr | Expressions):
        return ErrorContext(f"expression {function}", catches=RowFailure)
    return ErrorContext(f"function {function.name}", function.where)


def compile_predicate(function: Expr | RowFunction, up: pa.Schema) -> Callable[..., bool]:
    """Return whether something is true of a row; null is not true."""
    if isinstance(function, Expr):
        lowered = lower_python(function, up)
        return lambda values: lowered(values) is True
    call = own_copy(function.call)
    return lambda values, *state: to_bool(call(Row(values, up), *state)) is True


def to_bool(value: object) -> object:
    """Return what a predicate gave: True, False or None; anything else fails the row."""
    try:
        return from_python(value, pa.bool_())
    except RowFailure:
        raise RowFailure(f"gave {value!r:.80}, not True or False") from None


def plain_rows(value: object, schema: pa.Schema) -> list[Values]:
    """Return an iterable of rows as plain values; raise RowFailure when it is none, or a row does not fit."""
    if is_one_row(value) or isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise RowFailure(f"gave {type(value).__name__} {value!r:.80}, not an iterable of rows")
    return [plain_row(row, schema) for row in value]


def is_one_row(value: object) -> bool:
    """Return whether a function gave one row, and not an iterable of rows."""
    return (
        isinstance(value, Row | Mapping)
        or hasattr(value, "_asdict")
        or hasattr(value, "__dataclass_fields__")
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
