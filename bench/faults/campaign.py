"""A campaign: a cluster, programs in child processes, kills at planned moments, and a verdict on every run.

The expected rows are those of the reference engine, which shares no code with the others. Runs that must
survive by themselves share a driver for as long as it does well; a driver that is killed is started again on
the same checkpoint until the program ends.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import IO, Any

from bench.faults.child import Order
from bench.faults.kills import Disturbance, Kill, Kind, Target
from bench.faults.programs import ATTEMPTS, Place, Program, find_program
from bench.faults.rows import Difference, Rows, compare_accounts, compare_sinks, read_sinks
from tests.support.spark_cluster import ROOT, SparkCluster, start_cluster

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
}
ENVIRONMENT = {
    # Programs run for seconds, so code is checked never, and compiled once and quickly.
    "PYSPARK_SUBMIT_ARGS": f'--conf "spark.driver.defaultJavaOptions={QUICK_JAVA}"'
    f' --conf "spark.executor.defaultJavaOptions={QUICK_JAVA}" pyspark-shell',
    "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "300ms",
    # Why: without it a stage of one task has no second attempt, because there is nothing to compare it with.
    "spark.speculation.task.duration.threshold": "500ms",
    # Why: the slower of two attempts shall end by itself and not be killed before it has written.
    "spark.python.task.killTimeout": "60s",
}
PARTITIONS = 3
PAUSE_S = 0.05
AFTER_END = "killed after its end"
RESTART_S = 1.5
"""How long a worker that was killed is missed before it is started again."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a program must give, and how long it takes with a warm driver: the least so far."""

    sinks: Mapping[str, Rows]
    accounts: Mapping[str, Mapping[str, Any]]
    seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """What became of one run.

    kills     what was killed, and how many seconds after the run had begun
    first_round_s  seconds from the beginning of the last try to its first round
    ended     whether the program came to its end within the limit
    rounds    of tries that were killed or got a signal: how many rounds each had done before
    missed    whether nothing could be killed, or no second attempt was seen: the run shows nothing
    problems  what is wrong beside rows: errors, counts that differ
    """

    number: int
    kind: Kind | None
    program: str
    kills: list[tuple[str, float]] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    tries: int = 1
    seconds: float = 0.0
    first_round_s: float = 0.0
    ended: bool = False
    missed: bool = False
    difference: Difference = field(default_factory=Difference)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        """Return whether the program ended with the right rows and counts."""
        return self.ended and not self.difference and not self.problems

    def verdict(self) -> str:
        """Return the verdict in words."""
        if not self.ended:
            words = "NOT ENDED"
        elif self.difference:
            words = f"WRONG: {self.difference}"
        else:
            words = "exact" if not self.problems else "WRONG COUNTS"
        return "; ".join([words, *(["missed"] if self.missed else []), *self.notes, *self.problems])


class Child:
    """A driver process that runs orders; what it tells is read by a thread."""

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.faults.child"],
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # so that its JVM can be killed together with it
        )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        assert self._process.stdout is not None, "its output is read"
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with suppress(ValueError):  # a last line that was cut
                    self._lines.put(json.loads(line))
        self._lines.put(None)

    def send(self, order: Order) -> None:
        """Let it run an order."""
        assert self._process.stdin is not None, "its input is written"
        self._process.stdin.write(order.to_json())
        self._process.stdin.flush()

    def next_line(self, until: float) -> dict[str, Any] | None:
        """Return what it tells next; None if it ended. Raises queue.Empty at that monotonic moment."""
        return self._lines.get(timeout=max(until - time.monotonic(), 0.001))

    def signal(self, number: signal.Signals, limit_s: float) -> int:
        """Send a signal to the program, and return the code that it ends with; -9 if it does not."""
        self._process.send_signal(number)
        try:
            return self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """Kill the whole process group, JVM included."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._log.close()


@contextmanager
def open_campaign(
    folder: Path, *, seed: int, limit_s: float, tell: Callable[[str], None]
) -> Iterator[Campaign]:
    """Start the cluster of a campaign; end everything at its end."""
    tell("starting a master and two workers")
    with start_cluster(folder / "cluster", worker_memory="700m", hosts=("127.0.0.1", "127.0.0.2")) as cluster:
        campaign = Campaign(folder, cluster, seed, limit_s, tell)
        try:
            yield campaign
        finally:
            campaign.end_child()


class Campaign:
    """All runs on one cluster."""

    def __init__(
        self, folder: Path, cluster: SparkCluster, seed: int, limit_s: float, tell: Callable[[str], None]
    ) -> None:
        self._folder, self._cluster, self._seed, self._limit_s = folder, cluster, seed, limit_s
        self._tell = tell
        self._child: Child | None = None
        self._child_conf: Mapping[str, str] = {}
        self._expected: dict[str, Expectation] = {}
        self._cold_s = 0.0
        self._restart: threading.Thread | None = None

    def end_child(self) -> None:
        """End the driver that runs share, if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def prepare(self, names: list[str]) -> Iterator[Outcome]:
        """Compute the expected answers, and run every program once without a disturbance."""
        for name in names:
            program = find_program(name)
            program.write_input(self._folder / name / "input", self._seed)
            self._tell(f"computing the expected rows of {name}")
            self._expected[name] = compute_expectation(program, self._folder / name)
            if program is ATTEMPTS:
                continue
            outcome = self.run(Disturbance(-1, None, name))
            if not self._cold_s:  # the first run of a driver waits for executors, the second does not
                cold, outcome = outcome, self.run(Disturbance(-1, None, name))
                self._cold_s = max(cold.seconds - outcome.seconds, 0.0)
            yield outcome

    def run(self, planned: Disturbance) -> Outcome:
        """Run a program with its disturbance, and judge it."""
        folder = self._folder / planned.program / f"run-{planned.number}"
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "markers").mkdir(parents=True)
        outcome = Outcome(planned.number, planned.kind, planned.program)
        order = self._build_order(planned, folder)
        if planned.kind == "driver":
            last = self._run_tries(planned, order, outcome)
        else:
            last = self._run_shared(planned, order, outcome)
        expected = self._expected[planned.program]
        if judge_rows(expected, find_program(planned.program), folder, last, outcome) and last is not None:
            outcome.problems += compare_accounts(expected.accounts, last["accounts"])
        if planned.kind == "speculation":
            outcome.missed = not (folder / "markers" / "second").exists()
        elif planned.kills:
            outcome.missed = not outcome.kills
        if outcome.exact:
            shutil.rmtree(folder)
        if outcome.exact and planned.kind != "driver":
            # Why the least: a moment after the end hits nothing, and the first runs are the slowest.
            known = self._expected[planned.program]
            usual = min(known.seconds or outcome.seconds, outcome.seconds)
            self._expected[planned.program] = replace(known, seconds=usual)
        return outcome

    def _build_order(self, planned: Disturbance, folder: Path) -> Order:
        return Order(
            planned.program,
            str(self._folder / planned.program / "input"),
            str(folder / "output"),
            str(folder / "checkpoint"),
            self._cluster.address,
            CONF | (SPECULATION if planned.kind == "speculation" else {}),
            PARTITIONS,
            PAUSE_S,
            str(folder / "markers"),
        )

    def _run_shared(self, planned: Disturbance, order: Order, outcome: Outcome) -> dict[str, Any] | None:
        """Run once in the driver that runs share, and kill other processes meanwhile."""
        if self._child is None or order.conf != self._child_conf:
            self.end_child()
            self._child, self._child_conf = Child(self._folder / "drivers.log"), order.conf
        self._child.send(order)
        last = self._attend(self._child, planned.kills, planned, outcome)
        if last is None or last["is"] != "accounts":
            self.end_child()
        if self._restart is not None:
            self._restart.join()
        self._cluster.start_workers()
        return last

    def _run_tries(self, planned: Disturbance, order: Order, outcome: Outcome) -> dict[str, Any] | None:
        """Run in drivers of their own, killed one after the other, until one comes to the end."""
        self.end_child()  # its executors have the cores
        last: dict[str, Any] | None = None
        seconds = 0.0
        for number, kills in enumerate([*((kill,) for kill in planned.kills), ()], 1):
            outcome.tries = number
            child = Child(self._folder / "drivers.log")
            n_kills = len(outcome.kills)
            try:
                child.send(order)
                last = self._attend(child, kills, planned, outcome)
            finally:
                child.kill()
            seconds += outcome.seconds
            if len(outcome.kills) == n_kills:
                break  # it ended, or failed, before its kill
        outcome.seconds = seconds
        return last

    def _attend(
        self, child: Child, kills: tuple[Kill, ...], planned: Disturbance, outcome: Outcome
    ) -> dict[str, Any] | None:
        """Listen to a child until its end, and kill at the planned moments; return the last that it told.

        Moments count from when the first run has begun, so Spark is there; None if the child is no more.
        """
        began, deadline = 0.0, time.monotonic() + self._limit_s
        usual = self._expected[planned.program].seconds + (self._cold_s if planned.kind == "driver" else 0.0)
        chance = Random(f"{self._seed} {planned}")  # noqa: S311  # no secret hangs on it
        waiting, last = list(kills), None
        while True:
            due = began + waiting[0].share * usual if began and waiting else deadline
            try:
                last = child.next_line(min(due, deadline))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    outcome.notes.append(f"no end within the limit of {self._limit_s:,.0f} s a try")
                    return None
                at = time.monotonic() - began
                target = self._kill(waiting.pop(0).target, child, chance)
                if target is not None:
                    outcome.kills.append((target, at))
                if target == "driver":
                    outcome.seconds = time.monotonic() - began
                    return None
                continue
            if last is None:
                outcome.notes.append("the driver died")
                return None
            if last["is"] == "started" and not began:
                began = time.monotonic()
            if last["is"] in ("accounts", "refused", "failed"):
                outcome.seconds = time.monotonic() - (began or time.monotonic())
                return last

    def _kill(self, target: Target, child: Child, chance: Random) -> Target | None:
        """Kill a process of that kind, or of one that it is part of; return what was killed."""
        if target == "driver":
            child.kill()
            return target
        processes: dict[Target, Callable[[], list[int]]] = {
            "python worker": self._cluster.python_workers,
            "python daemon": self._cluster.python_daemons,
            "executor": self._cluster.executors,
            "worker": self._cluster.workers,
        }
        names = list(processes)
        for name in names[names.index(target) :]:
            pids = processes[name]()
            if pids and _kill_process(chance.choice(pids)):
                if name == "worker" and self._restart is not None:
                    self._restart.join()  # the one before
                if name == "worker":
                    self._restart = threading.Thread(target=self._restart_workers)
                    self._restart.start()
                return name
        return None

    def _restart_workers(self) -> None:
        time.sleep(RESTART_S)
        self._cluster.start_workers()


def compute_expectation(program: Program, folder: Path, name: str = "expected") -> Expectation:
    """Run a program on the reference engine, and return its rows and counts."""
    place = Place(folder / "input", folder / name, follow=False)
    result = program.build(place).run("reference", drain=not program.follows)
    sinks = read_sinks(place.output, program.sinks)
    assert all(sinks.values()), f"every sink of {program.name} must have something to lose"
    return Expectation(sinks, {step: dict(one.to_dict()) for step, one in result.accounts.items()})


def judge_rows(
    expected: Expectation, program: Program, folder: Path, last: dict[str, Any] | None, outcome: Outcome
) -> bool:
    """Compare what the sinks show with what is expected; return whether there are accounts to compare.

    last  the last that the program told; None if it did not come to its end
    """
    outcome.ended = last is not None
    sinks = compare_sinks(expected.sinks, read_sinks(folder / "output", program.sinks))
    for name, difference in sinks.items():
        outcome.difference += difference
        outcome.notes.append(f"{name}: {difference}")
    if last is None or last["is"] == "accounts":
        return last is not None
    if last["is"] == "refused" and outcome.kills and not sinks:
        outcome.notes.append(AFTER_END)  # so a new start was refused, and has no accounts
    else:
        first_line = str(last["error"]).partition("\n")[0]
        outcome.problems.append(f"{last['is']}: {first_line}")
    return False


def _kill_process(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
