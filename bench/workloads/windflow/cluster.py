"""AIR's figure 10 on Spark, scaled down: pipelining and overcommit, by executors and cores of each.

A standalone master and two workers on loopback, and programs in processes of their own. AIR's tasks are
executors here, its cores per task the executor's slots. Pipelined, a row goes from the generator to the next
operator within a process: workers read the input. Otherwise the driver reads it and sends it to them. Between
the other stateless operators rows are always handed on directly. Overcommit gives an executor twice as many
slots as cores. Nothing is claimed: AIR's curves are those of 28 cores, and of input from memory.
"""

from __future__ import annotations

import atexit
import json
import select
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import pyarrow as pa
import pyarrow.parquet as pq

from bench.workload import Case, Cell, Chart, Line, Outcome, Point, Way
from bench.workloads.windflow.driver import Order
from bench.workloads.windflow.programs import Data, Figure, Program

ROOT = Path(__file__).parents[3]
PROGRAMS = (
    Program("SWA", "windowed-count", "columns", 1_000_000, {"rate": 50_000.0}),
    Program("YSB", "yahoo", "columns", 1_000_000, {"rate": 50_000.0}),
)
N_FILES = 4
WORKER_CORES = 4
LIMIT_S = 600
"""Seconds within which an order must be done: a cluster without free slots would wait for ever."""
STOP_S = 30
"""Seconds within which a driver must end by itself."""
CONF = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}


class Deployment(NamedTuple):
    """How many executors there are, and cores for each."""

    executors: int
    cores: int

    def __str__(self) -> str:
        return f"{self.executors} x {self.cores}"


class Mode(NamedTuple):
    """One of AIR's four variants."""

    name: str
    pipelined: bool
    overcommits: bool


DEPLOYMENTS = (Deployment(1, 1), Deployment(1, 2), Deployment(2, 1))
MODES = (
    Mode("neither", pipelined=False, overcommits=False),
    Mode("pipelining", pipelined=True, overcommits=False),
    Mode("overcommit", pipelined=False, overcommits=True),
    Mode("pipelining and overcommit", pipelined=True, overcommits=True),
)


def compare_modes(*, quick: bool) -> Figure:
    """Figure 10: both programs on each deployment, in the four modes."""
    cases = [
        Case(
            case_name(program, place),
            partial(ClusterData.write, program, place, program.n_rows(quick=quick)),
            units={"rows": program.n_rows(quick=quick)},
            group=f"cluster, {place}",
        )
        for place in DEPLOYMENTS
        for program in PROGRAMS
    ]
    ways = [
        Way(
            mode.name,
            run_prepared,
            setup=partial(prepare_run, mode=mode),
            only=tuple(case.name for case in cases),
        )
        for mode in MODES
    ]
    return Figure(cases, ways, [], [make_chart(program) for program in PROGRAMS])


def case_name(program: Program, place: Deployment) -> str:
    """Return the name of a program's case on a deployment."""
    return f"{program.label} on {place}"


def make_chart(program: Program) -> Chart:
    """Return the chart of a program: a line per mode over the deployments."""
    lines = tuple(
        Line(
            mode.name,
            tuple(
                Point(at, str(place), Cell(case_name(program, place), mode.name))
                for at, place in enumerate(DEPLOYMENTS)
            ),
        )
        for mode in MODES
    )
    caption = "Executors and cores of each on a standalone cluster of one machine (AIR, Fig. 10)."
    return Chart(f"{program.label} on a cluster", caption, "executors x cores", lines, spacing="even")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ClusterData:
    """The input of a case in files, and its rows in memory to count them again."""

    data: Data
    place: Deployment
    folder: Path
    numbers: Any = field(default_factory=count)

    @classmethod
    def write(cls, program: Program, place: Deployment, n_rows: int, seed: int) -> ClusterData:
        """Write the rows of a program into files."""
        data = Data.generate(program, rows=n_rows, seed=seed)
        folder = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
        (folder / "events").mkdir()
        size = -(-n_rows // N_FILES)
        for i in range(N_FILES):
            pq.write_table(data.tables["events"].slice(i * size, size), folder / "events" / f"{i}.parquet")
        case = cls(data, place, folder)
        finalize(case, shutil.rmtree, folder, ignore_errors=True)
        return case

    def expected_answer(self) -> pa.Table:
        """Return what must come out."""
        return self.data.expected_answer()


class PreparedRun(NamedTuple):
    """A driver that is there, and what it is to run."""

    driver: Driver
    order: Order


def prepare_run(case: ClusterData, *, mode: Mode) -> PreparedRun:
    """Return an order, and a driver with the executors of the case."""
    slots = case.place.cores * (2 if mode.overcommits else 1)
    n_slots = case.place.executors * slots
    order = Order(
        application=case.data.program.name,
        settings=dict(case.data.options),
        input=str(case.folder / "events"),
        output=str(case.folder / f"output-{next(case.numbers)}"),
        pipelined=mode.pipelined,
        master=_open_cluster(),
        partitions=n_slots,
        conf={**CONF, "spark.executor.cores": str(slots), "spark.cores.max": str(n_slots)},
    )
    return PreparedRun(_find_driver(case.place, overcommits=mode.overcommits), order)


def run_prepared(prepared: PreparedRun) -> Outcome:
    """Run an order; its rows are read outside the clock."""
    prepared.driver.run(prepared.order)
    return Outcome(lambda: pq.read_table(prepared.order.output))


class Driver:
    """A process that runs orders; its executors stay until it is stopped."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from bench.workloads.windflow import driver; driver.run_orders()"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, order: Order) -> None:
        """Run an order; raise RuntimeError if it fails, or takes longer than LIMIT_S."""
        assert self._process.stdin is not None, "orders are written to it"
        assert self._process.stdout is not None, "its reports are read"
        self._process.stdin.write(order.to_json())
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            self._process.kill()
            raise RuntimeError(f"the driver has not answered within {LIMIT_S} s")
        line = self._process.stdout.readline()
        report = json.loads(line) if line else {"failed": "the driver has ended"}
        if "failed" in report:
            raise RuntimeError(report["failed"])

    def stop(self) -> None:
        """End the process, by force if it must be; Spark ends with it and gives its executors back."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()


_drivers: dict[tuple[Deployment, bool], Driver] = {}


def _find_driver(place: Deployment, *, overcommits: bool) -> Driver:
    """Return the driver of a deployment; those of others are stopped first, for their memory and slots."""
    for other in [key for key in _drivers if key[0] != place]:
        _drivers.pop(other).stop()
    if (place, overcommits) not in _drivers:
        _drivers[place, overcommits] = Driver()
    return _drivers[place, overcommits]


@cache
def _open_cluster() -> str:
    """Start a master and two workers until this process ends; return the master's address."""
    from tests.support.spark_cluster import start_cluster  # it loads pyspark

    stack = ExitStack()
    folder = Path(tempfile.mkdtemp(prefix="penstock-cluster-"))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    cluster = stack.enter_context(start_cluster(folder, worker_cores=WORKER_CORES))
    stack.callback(_stop_drivers)
    atexit.register(stack.close)
    return cluster.address


def _stop_drivers() -> None:
    while _drivers:
        _drivers.popitem()[1].stop()
