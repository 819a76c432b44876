"""Nodes: one for each step, run round by round, the rows that fail there, and the frontiers between them.

A node sees all its rows of a round at once, with the watermark before the round, which decides what is late,
and the watermark after it, which decides what is emitted. A step's `on_error` decides what becomes of a row
that fails: stop the run, count the row, or send it to `.errors`. Frontiers are written again here, apart from
`engines/frontiers.py`: the judge shares no code with what it judges. Imports no stage and no kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import pyarrow as pa

from penstock.accounts import Accounts
from penstock.clock import Clock
from penstock.engines.rows import TimedRow, format_row
from penstock.errors import FunctionError, PenstockError, Where, describe_cause
from penstock.frozen import Frozen
from penstock.operators.op import ERRORS, IN, OnError
from penstock.plan.plan import Plan, Step
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

Outputs = dict[str, list[TimedRow]]
Values = Mapping[str, object]


class Frontier(Frozen):
    """How far a stream has progressed: no more rows before `watermark`; idle; over, no more rows at all."""

    watermark: float = BEFORE_ALL
    idle: bool = False
    over: bool = False


OVER = Frontier(AFTER_ALL, over=True)


def merge_frontiers(frontiers: Iterable[Frontier], before: Frontier) -> Frontier:
    """Return the frontier of merged streams: the least watermark of those not idle, never going back."""
    frontiers = list(frontiers)
    active = [frontier.watermark for frontier in frontiers if not frontier.idle]
    watermark = max(before.watermark, min(active)) if active else before.watermark
    return Frontier(watermark, idle=not active, over=all(frontier.over for frontier in frontiers))


class RoundInput(Frozen):
    """What a node sees in one round.

    rows    by input port
    before  the watermark that decides which rows are late
    after   the watermark that decides what is emitted
    over    the input ports on which no more rows can come
    """

    rows: Mapping[str, list[TimedRow]]
    before: float
    after: float
    over: frozenset[str]

    @property
    def only(self) -> list[TimedRow]:
        """Return the rows of a node with one input."""
        return self.rows[IN]


HINT = 'on_error="skip" counts such rows and goes on, on_error="dead_letter" sends them to .errors'


class ErrorContext(Frozen):
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
            # The row as it came, nulls for columns it does not have, the reason and the step.
            known: Values = {**row.values, "error": reason, "error_step": self._step.name}
            names = self._step.outputs[ERRORS].schema.names
            self._for_errors_port.append(row.with_values({name: known.get(name) for name in names}))

    def take(self) -> tuple[int, str, list[TimedRow]]:
        """Return the number of rows failed since the last take, one reason, and the rows for `.errors`."""
        failures = self._count, self._example, self._for_errors_port
        self._count, self._example, self._for_errors_port = 0, "", []
        return failures


class Site(Frozen):
    """The context of a node: its step, and what it reports to."""

    step: Step
    plan: Plan
    clock: Clock
    accounts: Accounts
    failed_rows: FailedRows


class Node(ABC):
    """One step of a running plan."""

    replicas = 1
    """How many times each row comes in; more than one only where rows are broadcast."""
    is_over = False
    """Whether it takes no more rows; only an operator with its own loop ends before its input."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.accounts, self.failed_rows = site.accounts, site.failed_rows

    @abstractmethod
    def round(self, inputs: RoundInput) -> Outputs:
        """Process the rows of a round and return what is emitted, by output port."""

    def forward(self, frontier: Frontier) -> Frontier:
        """Return what can be promised downstream when this is promised upstream."""
        return frontier

    def close(self) -> None:
        """Release what the node holds; most hold nothing."""
        return


def output_frontier(frontier: Frontier, by: int) -> Frontier:
    """Return the frontier of a step whose output trails its input by up to `by` microseconds."""
    return Frontier(frontier.watermark - by, frontier.idle, frontier.over)
