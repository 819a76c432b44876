"""Runs of kind signal and kill: programs get SIGTERM, SIGINT or SIGKILL, and start again on a checkpoint.

A program that gets SIGTERM must stop cleanly, which the code 143 shows; one that gets it before its run has
begun, or between two runs, is ended by it as any program is. In either case the next start goes on, and in
the end every row is there once. No cluster is needed: programs run in process, or on a Spark of their own.

A program does nothing that counts before its first round: on Spark that takes half of its time. So one moment
in four is drawn from the time up to the first round of a try, and three from the time after it. Runs vary in
length, so a program may be over before its first signal. Then it is run again from nothing, and the signal
comes in the first half of that time.
"""

from __future__ import annotations

import queue
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.faults.campaign import (
    AFTER_END,
    CONF,
    PAUSE_S,
    Child,
    Expectation,
    Outcome,
    compute_expectation,
    judge_rows,
)
from bench.faults.child import Order
from bench.faults.kills import Disturbance
from bench.faults.programs import find_program
from bench.faults.rows import compare_accounts

LATEST = 0.8
"""The latest moment of a signal, as a share of what is left of the undisturbed run."""
BEFORE_ROUNDS = 0.25
"""The share of moments that come before the first round of a try."""
MAX_MISSES = 6
"""How often a program that was over before its signal is run again."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a signal is sent: so long after the first round of a try, or after its beginning."""

    seconds: float
    after_round: bool


@dataclass(frozen=True, slots=True)
class Length:
    """How long a program takes: from the beginning of a try to its first round, and the rest of its time."""

    first_round_s: float = 0.0
    rest_s: float = 0.0

    def draw_moment(self, share: float, latest: float) -> Moment:
        """Return the moment of a share of all moments.

        >>> Length(8.0, 4.0).draw_moment(0.125, latest=0.5)
        Moment(seconds=4.0, after_round=False)
        >>> Length(8.0, 4.0).draw_moment(0.625, latest=0.5)
        Moment(seconds=1.0, after_round=True)
        """
        if share < BEFORE_ROUNDS:
            return Moment(share / BEFORE_ROUNDS * self.first_round_s, after_round=False)
        late = (share - BEFORE_ROUNDS) / (1.0 - BEFORE_ROUNDS)
        return Moment(late * latest * self.rest_s, after_round=True)


class SignalCampaign:
    """All runs of kind signal and kill on one engine."""

    def __init__(
        self, folder: Path, *, seed: int, limit_s: float, tell: Callable[[str], None], engine: str = "local"
    ) -> None:
        self._folder, self._seed, self._limit_s, self._tell = folder, seed, limit_s, tell
        self._engine = engine
        self._expected: dict[str, Expectation] = {}
        self._lengths: dict[str, Length] = {}

    def prepare(self, names: list[str]) -> Iterator[Outcome]:
        """Compute the expected answers, and run every program once without a signal."""
        for name in names:
            program, folder = find_program(name), self._folder / name
            if not (folder / "input").exists():
                program.write_input(folder / "input", self._seed)
            self._tell(f"computing the expected rows of {name}")
            self._expected[name] = compute_expectation(program, folder, "expected in process")
            outcome = self.run(Disturbance(-1, None, name))
            self._lengths[name] = Length(outcome.first_round_s, outcome.seconds - outcome.first_round_s)
            yield outcome

    def run(self, planned: Disturbance) -> Outcome:
        """Run a program, with a signal in each try but the last, and judge its rows."""
        outcome = self._run_once(planned, LATEST)
        for miss in range(1, MAX_MISSES):
            if not outcome.missed or not outcome.exact:
                break
            outcome = self._run_once(planned, LATEST / 2**miss)
        return outcome

    def _run_once(self, planned: Disturbance, latest: float) -> Outcome:
        """Run a program, with signals no later than this share of what is left of its time."""
        folder = self._folder / planned.program / f"signals-{self._engine}-{planned.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        outcome = Outcome(planned.number, planned.kind, planned.program)
        last: dict[str, Any] | None = None
        length = self._lengths.get(planned.program, Length())
        for number, share in enumerate([*(kill.share for kill in planned.kills), None], 1):
            outcome.tries, n_kills = number, len(outcome.kills)
            moment = None if share is None else length.draw_moment(share, latest)
            last, rest_s = self._try(planned, folder, moment, outcome)
            length = replace(length, rest_s=max(length.rest_s - rest_s, 0.0))
            if len(outcome.kills) == n_kills:
                break  # it ended, or failed, before its signal
        expected = self._expected[planned.program]
        if judge_rows(expected, find_program(planned.program), folder, last, outcome) and last is not None:
            outcome.problems += compare_accounts(expected.accounts, last["accounts"])
        if planned.kind is not None:
            n_late = AFTER_END in outcome.notes
            outcome.missed = len(outcome.kills) <= n_late
        if outcome.exact:
            shutil.rmtree(folder)
        return outcome

    def _try(
        self, planned: Disturbance, folder: Path, moment: Moment | None, outcome: Outcome
    ) -> tuple[dict[str, Any] | None, float]:
        """Start the program once; return the last that it told and the seconds since its first round.

        What it told is None if a signal ended it.
        """
        order = Order(
            planned.program,
            str(self._folder / planned.program / "input"),
            str(folder / "output"),
            str(folder / "checkpoint"),
            None,
            CONF if self._engine == "spark" else {},
            pause_s=PAUSE_S,
            engine=self._engine,
        )
        child, deadline = Child(self._folder / "signals.log"), time.monotonic() + self._limit_s
        began, first_round_at, n_rounds = 0.0, 0.0, 0
        try:
            child.send(order)
            while True:
                due, since = deadline, 0.0
                if moment is not None:
                    since = first_round_at if moment.after_round else began
                    due = since + moment.seconds if since else deadline
                try:
                    last = child.next_line(min(due, deadline))
                except queue.Empty:
                    now = time.monotonic()
                    if now >= deadline:
                        outcome.notes.append(f"no end within the limit of {self._limit_s:,.0f} s a try")
                        return None, 0.0
                    outcome.rounds.append(n_rounds)
                    self._end(planned, child, now - began, outcome)
                    return None, now - first_round_at if first_round_at else 0.0
                now = time.monotonic()
                if last is None:
                    outcome.problems.append("the program died by itself")
                    return None, 0.0
                if last["is"] == "started":
                    began = began or now
                elif last["is"] == "batch":
                    first_round_at, n_rounds = first_round_at or now, n_rounds + 1
                else:
                    outcome.seconds += now - (began or now)
                    outcome.first_round_s = (first_round_at or now) - (began or now)
                    return last, 0.0
        finally:
            child.kill()

    def _end(self, planned: Disturbance, child: Child, at: float, outcome: Outcome) -> None:
        """Kill the program, or send a signal and see how it ends."""
        outcome.seconds += at
        if planned.kind == "kill":
            outcome.kills.append(("program", at))
            child.kill()
            return
        number = signal.SIGINT if (planned.number + outcome.tries) % 3 == 0 else signal.SIGTERM
        outcome.kills.append((number.name, at))
        code = child.signal(number, self._limit_s)
        # A Python program that KeyboardInterrupt ends is ended by the signal, whether it had a run or not.
        if code not in (128 + number, -number):
            outcome.problems.append(f"ended with code {code} after {number.name}")
        elif number == signal.SIGTERM and code == -number:
            outcome.notes.append("between runs")
