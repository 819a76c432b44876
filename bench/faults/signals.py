"""Runs of kind signal: programs in process get SIGTERM at random moments, and start again on a checkpoint.

A program that gets the signal must stop cleanly, which the code 143 shows; one that gets it before its run
has begun, or between two runs, is ended by it as any program is. In either case the next start
goes on, and in the end every row is there once. No cluster is needed.
"""

from __future__ import annotations

import queue
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.faults.campaign import PAUSE_S, Child, Expectation, Outcome, compute_expectation, judge_rows
from bench.faults.child import Order
from bench.faults.kills import Disturbance
from bench.faults.programs import find_program, write_input

CLEAN, BY_SIGNAL = 128 + signal.SIGTERM, -signal.SIGTERM
"""The codes of a program that stopped its run, and of one that had none."""


class SignalCampaign:
    """All runs of kind signal."""

    def __init__(self, folder: Path, *, seed: int, limit_s: float, tell: Callable[[str], None]) -> None:
        self._folder, self._seed, self._limit_s, self._tell = folder, seed, limit_s, tell
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
        folder = self._folder / planned.program / f"signals-{planned.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        outcome = Outcome(planned.number, planned.kind, planned.program)
        last: dict[str, Any] | None = None
        for number, share in enumerate([*(kill.share for kill in planned.kills), None], 1):
            outcome.tries, n_kills = number, len(outcome.kills)
            last = self._try(planned, folder, share, outcome)
            if len(outcome.kills) == n_kills:
                break  # it ended, or failed, before its signal
        judge_rows(self._expected[planned.program], find_program(planned.program), folder, last, outcome)
        if planned.kind is not None:
            outcome.missed = not outcome.kills
        if outcome.exact:
            shutil.rmtree(folder)
        return outcome

    def _try(
        self, planned: Disturbance, folder: Path, share: float | None, outcome: Outcome
    ) -> dict[str, Any] | None:
        """Start the program once; return the last that it told, None if a signal ended it."""
        order = Order(
            planned.program,
            str(self._folder / planned.program / "input"),
            str(folder / "output"),
            str(folder / "checkpoint"),
            None,
            pause_s=PAUSE_S,
            engine="local",
        )
        child, began, deadline = Child(self._folder / "signals.log"), 0.0, time.monotonic() + self._limit_s
        try:
            child.send(order)
            while True:
                due = deadline
                if began and share is not None:
                    due = began + share * self._seconds[planned.program]
                try:
                    last = child.next_line(min(due, deadline))
                except queue.Empty:
                    if time.monotonic() >= deadline:
                        return None
                    self._terminate(child, time.monotonic() - began, outcome)
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

    def _terminate(self, child: Child, at: float, outcome: Outcome) -> None:
        """Send the signal, and see how the program ends."""
        outcome.kills.append(("program", at))
        outcome.seconds += at
        code = child.terminate(self._limit_s)
        if code not in (CLEAN, BY_SIGNAL):
            outcome.problems.append(f"ended with code {code} after SIGTERM")
        elif code == BY_SIGNAL:
            outcome.notes.append("between runs")
