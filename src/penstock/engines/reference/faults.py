"""Rows that failed, and what the step's `on_error` makes of them: stop, count, or send to `.errors`."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.engines.timed import TimedRow, shown
from penstock.errors import FunctionError, PenstockError, Where
from penstock.expr.failure import reason_of
from penstock.frozen import dataclass
from penstock.operators.op import ERRORS, OnError
from penstock.plan.accounts import Accounts
from penstock.plan.step import Step

HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


@dataclass(frozen=True, slots=True)
class Blame:
    """Who failed: `function clean`, where it was written, which error names it, and what it may raise."""

    who: str
    where: Where | None = None
    error: type[PenstockError] = FunctionError
    catches: type[Exception] = Exception


class Faults:
    """The failed rows of one step."""

    def __init__(self, step: Step, accounts: Accounts) -> None:
        self._step = step
        self._accounts = accounts
        self._letters: list[TimedRow] = []
        self._count = 0
        self._example = ""

    @property
    def policy(self) -> str:
        """The step's `on_error`."""
        return self._step.op.on_error

    def row(
        self, row: TimedRow, schema: pa.Schema, blame: Blame, cause: Exception, *, counted: int = 1
    ) -> None:
        """A row failed. `counted` is 0 where the row has been counted as an error before."""
        reason = reason_of(cause)
        if self.policy == OnError.FAIL:
            raise blame.error(
                f"{blame.who} failed on a row",
                step=self._step.name,
                where=blame.where or self._step.where,
                detail=f"{reason}; the row is {shown(row.values, schema)}",
                hint=HINT,
            ) from cause
        self._accounts.errors += counted
        self._count += counted
        self._example = self._example or reason
        if self.policy == OnError.DEAD_LETTER:
            self._letters.append(self._letter(row, reason))

    def take(self) -> tuple[int, str]:
        """How many rows failed since the last take, and one reason."""
        taken = (self._count, self._example)
        self._count, self._example = 0, ""
        return taken

    def take_letters(self) -> list[TimedRow]:
        """The rows for `.errors` since the last take."""
        letters, self._letters = self._letters, []
        return letters

    def _letter(self, row: TimedRow, reason: str) -> TimedRow:
        """The row as it came, nulls for columns it does not have, the reason and the step."""
        known: Mapping[str, object] = {**row.values, "error": reason, "error_step": self._step.name}
        names = self._step.outputs[ERRORS].schema.names
        return row.with_values({name: known.get(name) for name in names})
