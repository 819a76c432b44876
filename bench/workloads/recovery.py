"""Recovery: a program with a state of 100 MB is killed, and started again on its checkpoint.

What is timed is from the start of the new process, with everything that it imports and starts, until the
first output that continues the old one is committed. It is computed from the state that was saved, so it is
wrong if anything is lost. The state is keyed: a total and 500 letters of noise per key.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.workload import (
    Case,
    Cell,
    Claim,
    Outcome,
    Size,
    Way,
    WayFailed,
    Workload,
    check_outcome,
    expected_of,
    outcome_notes,
)

LOCAL, SPARK = "in process", "embedded Spark"
RESTART, STATE = "start to first output (s)", "state (bytes)"
N_NEW = 1_000
"""Rows that come after the restart."""
_NOISE = 500

PROGRAM = """
import hashlib, json, os, signal, sys
import penstock as ps
from penstock.events import BatchDone, StateSaved

folder, files, engine, dies = sys.argv[1:]

def count(row, state):
    if not state:
        state += [0, hashlib.shake_128(str(row.k).encode()).hexdigest({noise} // 2)]
    state[0] += row.v
    return {{"k": row.k, "total": state[0], "noise": len(state[1])}}

graph = ps.PipeGraph("recovery")
rows = graph.source(ps.read.parquet(files), name="rows")
schema = {{"k": int, "total": int, "noise": int}}
totals = rows.key_by("k").map(count, state=list, schema=schema, name="totals")
totals.sink(ps.write.jsonl(folder + "/out"), name="out")

def listen(event):
    if isinstance(event, StateSaved) and dies == "1":
        print(json.dumps({{"state": event.kept_nbytes}}), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if isinstance(event, BatchDone) and dies == "0":
        print("done", flush=True)

graph.run(engine, checkpoint=folder + "/checkpoint", until=1, events=listen)
"""


@dataclass(frozen=True, slots=True)
class Recovery:
    """A program with a state of that many keys."""

    n_keys: int

    def expected_answer(self) -> list[int]:
        """Return the totals of the keys that come again."""
        return [2 * key + 1 for key in range(N_NEW)]


def workload(size: Size) -> Workload:
    """Build the workload: both engines, with a state of 100 MB, or of a tenth."""
    n_keys = 20_000 if size == "quick" else 200_000
    case = f"state of {n_keys * _NOISE // 1_000_000} MB"
    return Workload(
        name="recovery",
        about="a program is killed and started again on its checkpoint, until its first new output",
        cases=(Case(case, lambda seed: Recovery(n_keys), units={"keys": n_keys}),),
        ways=tuple(
            Way(name, partial(run, engine=engine), notes=outcome_notes)
            for name, engine in ((LOCAL, "local"), (SPARK, "spark"))
        ),
        oracle=expected_of,
        check=check_outcome,
        claims=(
            Claim("in process: first new output in 2 s", Cell(case, LOCAL), 2, note=RESTART),
            Claim("on embedded Spark: first new output in 20 s", Cell(case, SPARK), 20, note=RESTART),
        ),
        rounds=5,
    )


@cache
def prepare(n_keys: int, engine: str) -> tuple[Path, int]:
    """Run the program until its state is saved, and kill it; return its folder and the bytes of state."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "in").mkdir()
    (folder / "program.py").write_text(PROGRAM.format(noise=_NOISE))
    keys = list(range(n_keys))
    pq.write_table(pa.table({"k": keys, "v": keys}), folder / "in" / "0.parquet")
    lines = _start(folder, folder / "run", engine, dies=True)
    again = list(range(N_NEW))
    pq.write_table(pa.table({"k": again, "v": [key + 1 for key in again]}), folder / "in" / "1.parquet")
    return folder, int(json.loads(lines[0])["state"])


def _start(folder: Path, place: Path, engine: str, *, dies: bool) -> list[str]:
    command = [
        sys.executable,
        str(folder / "program.py"),
        str(place),
        str(folder / "in"),
        engine,
        str(int(dies)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own words)
    if not done.stdout:
        raise WayFailed("the program failed", detail=done.stderr[-500:])
    return done.stdout.splitlines()


def run(recovery: Recovery, engine: str) -> Outcome:
    """Start the program on a copy of what was killed, and time its first output."""
    folder, nbytes = prepare(recovery.n_keys, engine)
    place = folder / "again"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "run", place)
    began = time.perf_counter()
    command = [sys.executable, str(folder / "program.py"), str(place), str(folder / "in"), engine, "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        assert process.stdout is not None, "it is a pipe"
        if process.stdout.readline() != "done\n":
            raise WayFailed("the program failed after its restart")
        seconds = time.perf_counter() - began
    before = {path.name for path in (folder / "run" / "out").glob("*.jsonl")}
    new = [path for path in (place / "out").glob("*.jsonl") if path.name not in before]
    rows = [json.loads(line) for path in new for line in path.read_text().splitlines()]
    totals = [row["total"] for row in sorted(rows, key=lambda row: row["k"]) if row["noise"] == _NOISE]
    return Outcome(lambda: totals, {RESTART: seconds, STATE: float(nbytes)})
