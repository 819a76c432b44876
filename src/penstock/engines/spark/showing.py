"""When window steps show their open windows early.

That is told by the clock, and on Spark the clock of a round is the same for all parts: so it is known on the
driver, and told to the workers with every round, whoever has shown windows before.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.operators.windows import Windows
from penstock.plan.plan import Plan


class Showing:
    """Keeps count of it for a plan. `shown` says of each step when it was the last time, or that it began."""

    def __init__(self, plan: Plan, now: int) -> None:
        windows = {step.name: step.op.resolved(step.up) for step in plan if isinstance(step.op, Windows)}
        self._every = {name: each.early for name, each in windows.items() if each.early is not None}
        self._began = now
        self.shown = dict.fromkeys(self._every, now)

    def resume(self, shown: Mapping[str, int]) -> None:
        """Go on from another run; a clock that has been put back since then does not stop it."""
        self.shown |= {name: min(at, self._began) for name, at in shown.items() if name in self._every}

    def after(self, now: int) -> dict[str, int]:
        """A round ends: the steps whose time has come show their windows. Gives what `shown` is then."""
        self.shown |= {name: now for name, every in self._every.items() if now - self.shown[name] >= every}
        return dict(self.shown)
