"""Deadlines: when the clock asks for a round though no row has come.

Three things follow the clock. The watermark of ingest time goes on with it, in steps of a tenth of a second,
until everything is closed that rows may have left open. A source that has been silent for its `idle=` no
longer holds others back. Open windows with `early=` fire. Each has one deadline here; a round at or after it,
with rows or without, is what it asks for. A clock that is set back moves no deadline.

The sources of a round group have their deadlines together: an engine that runs rounds of all sources has one
`Deadlines`, and one that runs those of each source apart has one for each.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.operators.op import JOIN
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan
from penstock.timing.windows import SessionWindow, TimeWindow

STEP_US = 100_000
"""The watermark of ingest time is moved when it reaches the next multiple of this."""


class Deadlines:
    """When the clock asks for a round of some sources of a plan.

    sources  their names; all of the plan by default
    now      when the run begins
    """

    def __init__(self, plan: Plan, now: int, sources: Collection[str] | None = None) -> None:
        names = [step.name for step in plan.sources]
        times = {step.name: step.as_source.resolve() for step in plan.sources}
        own = [times[name] for name in names if sources is None or name in sources]
        follow = [time for time in own if time is not None and time.follows_clock]
        self._delay = min((time.delay or 0 for time in follow), default=None)
        # Why: beside a stream that does not follow the clock nobody knows what its rows wait for.
        alone = len(follow) == len(names)
        self._longest: int | None = longest_wait(plan) if alone else None
        self._last_rows_at: int | None = None if alone else now
        self._idle = {
            name: time.idle
            for name, time in times.items()
            if (sources is None or name in sources) and time is not None and time.idle is not None
        }
        self._idle_at = {name: now + idle for name, idle in self._idle.items()}
        windows = [step.op.resolve(step.up) for step in plan if isinstance(step.op, Windows)]
        self._early = min((of.early for of in windows if of.early is not None), default=None)
        self._fired_at, self._n_firings = now, 0
        self._clock_at: int | None = None
        self._move_clock(now)

    @property
    def next(self) -> int | None:
        """Return the next moment at which a round is asked for; None if there is none before rows come."""
        early_at = None if self._early is None or not self._n_firings else self._fired_at + self._early
        moments = [at for at in (self._clock_at, early_at, *self._idle_at.values()) if at is not None]
        return min(moments, default=None)

    def end_round(self, now: int, with_rows: Collection[str]) -> None:
        """Take note of a round at this time, with rows of these sources."""
        if with_rows:
            self._last_rows_at = now if self._last_rows_at is None else max(now, self._last_rows_at)
        self._idle_at = {name: at for name, at in self._idle_at.items() if at > now}
        for name in with_rows:
            if name in self._idle:
                self._idle_at[name] = now + self._idle[name]
        self._move_clock(now)
        if self._early is not None:
            if with_rows:
                # Why two: a window step looks at the clock by itself, and may do so just before its time.
                self._n_firings = 2
            if now - self._fired_at >= self._early:
                self._fired_at = now
                self._n_firings = max(0, self._n_firings - 1)

    def _move_clock(self, now: int) -> None:
        """Set when the watermark of ingest time is to go on."""
        if self._delay is None or self._last_rows_at is None:
            return
        watermark = now - self._delay
        self._clock_at = (watermark // STEP_US + 1) * STEP_US + self._delay
        if self._longest is not None and watermark > self._last_rows_at + self._longest:
            self._clock_at = None


def longest_wait(plan: Plan) -> int:
    """Return how long after its time a row can still be waited for by a step of the plan, in microseconds.

    No more than the sum over all steps, though few rows pass all of them.
    """
    total = STEP_US
    for step in plan:
        if isinstance(step.op, Windows):
            resolved = step.op.resolve(step.up)
            sizes = [
                window.size if isinstance(window, TimeWindow) else window.gap
                for _, window in resolved.windows
                if isinstance(window, TimeWindow | SessionWindow)
            ]
            total += max(sizes, default=0) + resolved.lateness
        elif step.op.kind == JOIN:
            from penstock.operators.stream_join import StreamJoin

            assert isinstance(step.op, StreamJoin), "the only operator of its kind"
            bound = step.op.resolve(*(port.stream for port in step.inputs))
            total += bound.older_left + bound.older_right
            total += step.op.output_delay(*(port.stream for port in step.inputs))
    return total
