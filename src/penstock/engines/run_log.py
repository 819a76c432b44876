"""What a run writes to the log, and what it says when it is asked: standard `logging`, and `RunStatus`.

The logger is `penstock.run`. INFO has the life of a run: started, restored, drained or stopped, with counts.
WARNING has what somebody should look at: rows that were dropped because they were late or failed, a source
that has fallen idle, a run that did not stop in time. These are counted, and said at most once a minute for a
step, so a stream of bad rows does not become a stream of lines. ERROR has the end of a run that failed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, describe_cause
from penstock.frozen import Frozen, dataclass
from penstock.operators.op import LATE, LATE_RIGHT, OnError
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan, Ref
from penstock.timing.windows import AFTER_ALL, BEFORE_ALL

if TYPE_CHECKING:
    from penstock.accounts import Accounts

LOGGER = logging.getLogger("penstock.run")
FIRST_LOOK_S, LOOK_S = 2.0, 60.0
"""Seconds until the rows that were dropped are first looked at, and between looks."""


class RunStatus(Frozen):
    """How a run is doing.

    state      "running", "stopping", "drained", "ended", "stopped" or "failed"
    rows_in    source -> rows that it has read
    rows_out   sink -> rows that were written to it
    watermark  source -> its watermark, in microseconds since 1970; None before the first and at the end
    lag_us     source -> how far that is behind the clock
    error      what stopped the run, if it failed
    """

    state: str
    rows_in: Mapping[str, int]
    rows_out: Mapping[str, int]
    watermark: Mapping[str, int | None]
    lag_us: Mapping[str, int]
    error: BaseException | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the status as plain data for JSON; the error is its text."""
        return {**asdict(self), "error": None if self.error is None else str(self.error)}


def describe_status(
    plan: Plan,
    state: str,
    accounts: Mapping[str, Accounts],
    watermarks: Mapping[str, float],
    now: int,
    error: BaseException | None,
) -> RunStatus:
    """Return the status of a run.

    watermarks  source -> watermark, infinite before the first and at the end; those without a time are absent
    """
    known = {
        name: int(watermark) if BEFORE_ALL < watermark < AFTER_ALL else None
        for name, watermark in watermarks.items()
    }
    return RunStatus(
        state,
        {step.name: accounts[step.name].rows_in for step in plan.sources},
        {step.name: accounts[step.name].rows_out for step in plan.sinks},
        known,
        {name: now - watermark for name, watermark in known.items() if watermark is not None},
        error,
    )


def report_restore(graph: str, rounds: int) -> None:
    """Tell that a run goes on where an earlier one on its checkpoint has come to."""
    if rounds:
        LOGGER.info('run of "%s" restored from its checkpoint: goes on after %s rounds', graph, f"{rounds:,}")


@dataclass(slots=True)
class RunLog:
    """What one run says in the log.

    n_reported  (step, fact) -> rows that were reported before
    idle        the sources that were idle then
    """

    plan: Plan
    n_reported: dict[tuple[str, str], int] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()

    def report(
        self, accounts: Mapping[str, Accounts], idle: frozenset[str] = frozenset(), end: str | None = None
    ) -> None:
        """Warn of rows that were dropped since the last report, and of sources that have fallen idle since.

        end  the outcome and the number of batches, once the run is over
        """
        plan = self.plan
        for step in plan:
            counts = accounts[step.name]
            if counts.late and not all(
                plan.is_read(Ref(step.name, port)) for port in (LATE, LATE_RIGHT) if port in step.outputs
            ):
                self._warn(step.name, counts.late, "came too late and were dropped; read .late to keep them")
            if counts.errors and step.op.on_error == OnError.SKIP:
                self._warn(step.name, counts.errors, 'failed and were skipped (on_error="skip")')
        for source in sorted(idle - self.idle):
            LOGGER.warning(
                'run of "%s": source "%s" is silent and now idle: the watermark no longer waits for it',
                plan.graph,
                source,
            )
        self.idle = idle
        if end is not None:
            n_in = sum(accounts[step.name].rows_in for step in plan.sources)
            n_out = sum(accounts[step.name].rows_out for step in plan.sinks)
            LOGGER.info('run of "%s" %s: %s rows in, %s rows out', plan.graph, end, f"{n_in:,}", f"{n_out:,}")

    def report_waiting(self, waiting: Mapping[str, int]) -> None:
        """Tell what the next run will find open, and how to close it."""
        for step, n in waiting.items():
            things = "open windows" if isinstance(self.plan[step].op, Windows) else "rows"
            LOGGER.info(
                'run of "%s": %s %s of step "%s" wait for the next run; '
                "run(checkpoint=…, drain=True) closes them",
                self.plan.graph,
                f"{n:,}",
                things,
                step,
            )

    def _warn(self, step: str, n_rows: int, fact: str) -> None:
        """Warn of rows of a step beyond those that were reported before."""
        more = n_rows - self.n_reported.get((step, fact), 0)
        self.n_reported[step, fact] = n_rows
        if more > 0:
            in_all = f" ({n_rows:,} in all)" if more < n_rows else ""
            LOGGER.warning(
                'run of "%s": %s rows of step "%s" %s%s', self.plan.graph, f"{more:,}", step, fact, in_all
            )

    def report_failure(self, failure: BaseException) -> None:
        """Tell that the run has failed, and why; what is no error of ours, with its traceback."""
        own = isinstance(failure, PenstockError)
        text = str(failure) if own else describe_cause(failure)
        LOGGER.error('run of "%s" failed: %s', self.plan.graph, text, exc_info=None if own else failure)
