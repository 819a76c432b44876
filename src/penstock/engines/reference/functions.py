"""Users' functions and expressions as calls on one row (and a state), and what becomes of rows that fail.

The step's `on_error` decides: stop the run, count the row, or send it to `.errors`. Functions are called on
the run's own copies of callable objects. Imports no stage and no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.engines.rows import TimedRow, format_row
from penstock.errors import FunctionError, PenstockError, RowFailure, Where, describe_cause
from penstock.expr import Expr, lower_python
from penstock.expr.values import from_python
from penstock.frozen import dataclass
from penstock.operators.function import BatchFunction, Expressions, Row, RowFunction, own_copy, plain_row
from penstock.operators.op import ERRORS, OnError
from penstock.plan.plan import Step

HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


@dataclass(frozen=True, slots=True)
class ErrorContext:
    """What failed: `function clean`, where it was written, which error reports it, and what it may raise."""

    who: str
    where: Where | None = None
    error: type[PenstockError] = FunctionError
    catches: type[Exception] = Exception


class FailedRows:
    """The failed rows of one step."""

    def __init__(self, step: Step, accounts: Accounts) -> None:
        self._step = step
        self._accounts = accounts
        self._for_errors_port: list[TimedRow] = []
        self._count = 0
        self._example = ""

    @property
    def policy(self) -> str:
        """Return the step's `on_error`."""
        return self._step.op.on_error

    def add(
        self,
        row: TimedRow,
        schema: pa.Schema,
        context: ErrorContext,
        cause: Exception,
        *,
        counted: int = 1,
    ) -> None:
        """Handle a row that failed; `counted` is 0 where the row was counted as an error before."""
        reason = describe_cause(cause)
        if self.policy == OnError.FAIL:
            raise context.error(
                f"{context.who} failed on a row",
                step=self._step.name,
                where=context.where or self._step.where,
                detail=f"{reason}; the row is {format_row(row.values, schema)}",
                hint=HINT,
            ) from cause
        self._accounts.errors += counted
        self._count += counted
        self._example = self._example or reason
        if self.policy == OnError.DEAD_LETTER:
            self._for_errors_port.append(self._to_error_row(row, reason))

    def take(self) -> tuple[int, str]:
        """Return the number of rows failed since the last take, and one reason."""
        counts = (self._count, self._example)
        self._count, self._example = 0, ""
        return counts

    def take_failed(self) -> list[TimedRow]:
        """Return the rows for `.errors` since the last take."""
        rows, self._for_errors_port = self._for_errors_port, []
        return rows

    def _to_error_row(self, row: TimedRow, reason: str) -> TimedRow:
        """Return the row as it came, nulls for columns it does not have, the reason and the step."""
        known: Mapping[str, object] = {**row.values, "error": reason, "error_step": self._step.name}
        names = self._step.outputs[ERRORS].schema.names
        return row.with_values({name: known.get(name) for name in names})


Values = Mapping[str, object]


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
    return lambda values, *state: to_bool(call(Row(values, up), *state))


def to_bool(value: object) -> bool:
    """Return what a predicate gave: True, False or None; anything else fails the row."""
    try:
        return from_python(value, pa.bool_()) is True
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
