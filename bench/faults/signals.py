"""Runs of kind signal and kill: programs get SIGTERM, SIGINT or SIGKILL, and start again on a checkpoint.

A program that gets SIGTERM must stop cleanly, which the code 143 shows; one that gets it before its run has
begun, or between two runs, is ended by it as any program is. In either case the next start goes on, and in
the end every row is there once. No cluster is needed: programs run in process, or on a Spark of their own.

Runs vary in length, so a program may be over before its first signal. Then it is run again from nothing, and
the signal comes in the first half of that time.
"""

from __future__ import annotations

import queue
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.faults.campaign import (
    AFTER_END,
    PAUSE_S,
    Child,
    Expectation,
    Outcome,
    compute_expectation,
    judge_rows,
)
from bench.faults.child import Order
from bench.faults.kills import Disturbance
from bench.faults.programs import find_program, write_input
from bench.faults.rows import compare_accounts

LATEST = 0.8
"""The latest moment of a signal, as a share of what is left of the undisturbed run."""
MAX_MISSES = 6
"""How often a program that was over before its signal is run again."""


class SignalCampaign:
    """All runs of kind signal and kill on one engine."""

    def __init__(
        self, folder: Path, *, seed: int, limit_s: float, tell: Callable[[str], None], engine: str = "local"
    ) -> None:
        self._folder, self._seed, self._limit_s, self._tell = folder, seed, limit_s, tell
        self._engine = engine
        self._expected: dict[str, Expectation] = {}
        self._seconds: dict[str, float] = {}

    def prepare(self, names: list[str]) -> Iterator[Outcome]:
        """Compute the expected answers, and run every program once without a signal."""
        for name in names:
            program, folder = find_program(name), self._folder / name
            if not (folder / "input").exists():
                write_input(program, folder / "input", self._seed)
            self._tell(f"computing the expected rows of {name}")
            self._expected[name] = compute_expectation(program, folder, "expected in process")
            outcome = self.run(Disturbance(-1, None, name))
            self._seconds[name] = outcome.seconds
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
        for number, share in enumerate([*(kill.share for kill in planned.kills), None], 1):
            outcome.tries, n_kills = number, len(outcome.kills)
            left = self._seconds.get(planned.program, 0.0) - outcome.seconds
            after = None if share is None else max(share * latest * left, 0.0)
            last = self._try(planned, folder, after, outcome)
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
        self, planned: Disturbance, folder: Path, after: float | None, outcome: Outcome
    ) -> dict[str, Any] | None:
        """Start the program once; return the last that it told, None if a signal ended it.

        after  seconds from the beginning of its run to the signal; None for none
        """
        order = Order(
            planned.program,
            str(self._folder / planned.program / "input"),
            str(folder / "output"),
            str(folder / "checkpoint"),
            None,
            pause_s=PAUSE_S,
            engine=self._engine,
        )
        child, began, deadline = Child(self._folder / "signals.log"), 0.0, time.monotonic() + self._limit_s
        try:
            child.send(order)
            while True:
                due = deadline
                if began and after is not None:
                    due = began + after
                try:
                    last = child.next_line(min(due, deadline))
                except queue.Empty:
                    if time.monotonic() >= deadline:
                        return None
                    if planned.kind == "kill":
                        outcome.kills.append(("program", time.monotonic() - began))
                        outcome.seconds += time.monotonic() - began
                        return None  # it is killed below
                    number = signal.SIGINT if (planned.number + outcome.tries) % 3 == 0 else signal.SIGTERM
                    self._signal(child, number, time.monotonic() - began, outcome)
                    return None
                if last is None:
                    outcome.problems.append("the program died by itself")
                    return None
                if last["is"] == "started" and not began:
                    began = time.monotonic()
                if last["is"] in ("accounts", "refused", "failed"):
                    outcome.seconds += time.monotonic() - (began or time.monotonic())
                    return last
        finally:
            child.kill()

    def _signal(self, child: Child, number: signal.Signals, at: float, outcome: Outcome) -> None:
        """Send the signal, and see how the program ends."""
        outcome.kills.append((number.name, at))
        outcome.seconds += at
        code = child.signal(number, self._limit_s)
        # A Python program that KeyboardInterrupt ends is ended by the signal, whether it had a run or not.
        if code not in (128 + number, -number):
            outcome.problems.append(f"ended with code {code} after {number.name}")
        elif number == signal.SIGTERM and code == -number:
            outcome.notes.append("between runs")
