"""From import to the first result, in a process of its own, with the clock inside it.

`small` is a program of a hundred rows, which needs no Numba; `compiled` has two hundred thousand, and loads
kernels from the cache that the installation has filled. The first time pyarrow makes an array it loads pandas
and dateutil if they are installed. Penstock depends on neither, so they are hidden from `small` and
`compiled`, and `with pandas` shows what they add.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from shutil import rmtree
from tempfile import mkdtemp

from bench.workload import Case, Outcome, Way, WayFailed, outcome_notes

SMALL, COMPILED, PANDAS = "first result: small", "first result: compiled", "first result: small, with pandas"
WAY = "a new process"
IMPORT_TO_RESULT = "import to result (s)"

HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "dateutil"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
"""
PROGRAM = """
import time
started = time.perf_counter()
import penstock as ps
import pyarrow as pa
graph = ps.PipeGraph("first")
numbers = list(range({n_rows}))
rows = pa.table({{"key": [at % 7 for at in numbers], "value": numbers, "time": numbers}})
pipe = graph.source(ps.read.table(rows), time="time", time_unit="s", delay="0 s").filter(ps.col("value") > 1)
pipe = pipe.key_by("key").window(ps.tumbling("1000000 s")).aggregate(n=ps.count(), total=ps.sum("value"))
table = pipe.collect(engine="local")
elapsed = time.perf_counter() - started
import sys
print(elapsed, "numba" in sys.modules, *sorted(table.column("total").to_pylist()))
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program of `n_rows` rows, and whether it may import pandas."""

    n_rows: int
    pandas: bool = False

    def expected_answer(self) -> list[int]:
        """Return whether Numba was loaded, and the sums per key."""
        rows = range(2, self.n_rows)
        return [int(self.n_rows > 10_000), *sorted(sum(at for at in rows if at % 7 == k) for k in range(7))]


def build_cases() -> list[Case]:
    """Build the cases: small, compiled, and small with pandas."""
    return [_build_case(SMALL, 100), _build_case(COMPILED, 200_000), _build_case(PANDAS, 100, pandas=True)]


def _build_case(name: str, n_rows: int, *, pandas: bool = False) -> Case:
    program = Program(n_rows, pandas)
    return Case(name, lambda seed: program, units={"rows": n_rows}, group="first")


def build_ways() -> list[Way]:
    """Build the only way."""
    return [Way(WAY, run, notes=outcome_notes, only=(SMALL, COMPILED, PANDAS))]


@cache
def bytecode_folder() -> str:
    """Return a folder for Python's bytecode, which is deleted at exit.

    An installed package has its own; here the warm-up round writes it, regardless of the environment.
    """
    folder = mkdtemp(prefix="penstock-bench-")
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def run(program: Program) -> Outcome:
    """Run the program in a new Python process and read its time."""
    text = PROGRAM.format(n_rows=program.n_rows)
    command = [sys.executable, "-c", text if program.pandas else HIDE + text]
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": bytecode_folder()}
    done = subprocess.run(  # noqa: S603 (our own words)
        command, capture_output=True, text=True, check=False, env={**os.environ, **bytecode}
    )
    if done.returncode:
        raise WayFailed("the program failed", detail=done.stderr[-500:])
    seconds, numba, *sums = done.stdout.split()
    return Outcome(lambda: [int(numba == "True"), *map(int, sums)], {IMPORT_TO_RESULT: float(seconds)})
