"""What became of the rows of a round, added up step by step and told as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.clock import Clock
from penstock.engines.counting import add
from penstock.engines.spark.ahead import Ready
from penstock.engines.spark.came import Came, Fates
from penstock.engines.spark.native import Native
from penstock.events import BatchDone, EventSink, RowsErrored, RowsLate
from penstock.plan.accounts import Accounts
from penstock.plan.plan import Plan
from penstock.timing.watermark import AFTER_ALL, BEFORE_ALL


class Telling:
    """Counts rounds and tells of them."""

    def __init__(self, plan: Plan, native: Mapping[str, Native], *, clock: Clock, events: EventSink) -> None:
        self._plan, self._native, self._clock, self._events = plan, native, clock, events

    def count(self, ready: Ready, came: Came, total: Mapping[str, Accounts]) -> None:
        """Add up what the driver, the workers and the JVM counted in a round."""
        counted = {step.name: Accounts() for step in self._plan}
        for each in self._counted(ready, came):
            for name, accounts in each.items():
                add(counted[name], accounts)
        for name, accounts in counted.items():
            if name in ready.moved:
                self._events(ready.moved[name])
            add(total[name], accounts)
            reasons = {**came.reasons.get(ready.plan.number, {}), **ready.reasons}
            self._tell(name, accounts, reasons.get(name, ""))

    def done(self, ready: Ready, written: Mapping[str, int], parts: Mapping[str, int], took_us: int) -> None:
        """Tell that a round has gone all the way through, where its time went, and how far behind it is."""
        now = self._clock.now()
        read = {name: counted.rows_in for name, counted in ready.counted.items()}
        lag = {name: now - int(at) for name, at in ready.watermarks.items() if BEFORE_ALL < at < AFTER_ALL}
        self._events(BatchDone(now, ready.plan.number, read, written, took_us, parts, lag))

    def _counted(self, ready: Ready, came: Came) -> Iterator[Mapping[str, Accounts]]:
        number = ready.plan.number
        yield ready.counted
        for round_, parts in came.counted:
            if round_ == number:
                yield {name: Accounts(**each) for name, each in parts.items()}
        for source, batch in ready.files.items():
            found = came.fates.get((number, source), Fates())
            yield self._native[source].accounts(batch, found.fates, found.missed)

    def _tell(self, step: str, counted: Accounts, reason: str) -> None:
        now = self._clock.now()
        if counted.late:
            self._events(RowsLate(now, step, counted.late))
        if counted.errors:
            policy = self._plan[step].op.on_error
            self._events(RowsErrored(now, step, counted.errors, policy, reason))
