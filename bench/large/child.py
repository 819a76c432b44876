"""Run one program over a large input in a process of its own, and tell what its driver needed.

    python -m bench.large.child '{"program": "windows", ...}'

First the program runs over a smaller input, so that all libraries are loaded, Spark is there and its workers
are warm; what the memory of the process grows by from then on is measured. One JSON object on standard output
tells it, as its last line; or, under `failed`, the error that ended the run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import penstock as ps
from bench.large.programs import PROGRAMS
from penstock.events import BatchDone, Event

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SAMPLE_S, WORKER_SAMPLES = 0.02, 25
"""Seconds between samples of this process, and how many of them for one of the workers."""
SPARK_SCHEMA = "ts timestamp, key long, value double, payload binary"


@dataclass(frozen=True, slots=True)
class Order:
    """What a child is to run.

    warm_up             folder of the smaller input
    files_per_trigger   None reads files; a number reads a stream of Spark, so many files a micro-batch
    until               stop after so many rounds, and let a second run go on from the checkpoint
    """

    program: str
    input: str
    warm_up: str
    output: str
    master: str
    conf: Mapping[str, str] = field(default_factory=dict)
    files_per_trigger: int | None = None
    until: int | None = None

    def to_json(self) -> str:
        """Return the order as an argument."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Report:
    """What a run needed.

    growth_bytes   greatest resident memory of the driver's Python during the run, less that before it
    heap_bytes     the limit of the JVM's heap
    worker_bytes   greatest resident memory of one Python worker, if workers are on this machine
    rounds         rounds of batches, and how many micro-batches they shared
    received       what the driver received per micro-batch, by name, if the engine tells; the greatest
    """

    seconds: float
    growth_bytes: int
    before_bytes: int
    heap_bytes: int
    rounds: int
    micro_batches: int
    received: Mapping[str, float]
    worker_bytes: int = 0


class MemoryWatch:
    """Watches the resident memory of this process: the kernel's own maximum, or samples without it.

    worker  the greatest resident memory of a Python worker
    """

    def __init__(self) -> None:
        gc.collect()
        self._stop = threading.Event()
        self.worker = 0
        self.before = self._peak = read_status("VmRSS")
        self._is_reset = _reset_peak()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def _sample(self) -> None:
        for number in count():
            if self._stop.wait(SAMPLE_S):
                return
            self._peak = max(self._peak, read_status("VmRSS"))
            if number % WORKER_SAMPLES == 0:
                self.worker = max(self.worker, *map(_resident, _find_workers()), 0)

    def growth(self) -> int:
        """Stop, and return by how much the memory had grown at most."""
        self._stop.set()
        self._thread.join()
        peak = max(self._peak, read_status("VmHWM") if self._is_reset else 0)
        return peak - self.before


def _find_workers() -> list[str]:
    """Return the Python workers of Spark that descend from this process."""
    parents, names = dict[str, str](), dict[str, str]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            before, _, after = stat.read_text().rpartition(")")
            pid, _, names[stat.parent.name] = before.partition(" (")
            parents[pid] = after.split()[1]
    chains = {pid: list(_ancestors(pid, parents)) for pid in parents}
    me = str(os.getpid())
    # Why three: the JVM is between this process and the daemon that forks workers.
    return [pid for pid, above in chains.items() if me in above[2:] and names[pid].startswith("python")]


def _ancestors(pid: str, parents: Mapping[str, str]) -> Iterator[str]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def _resident(pid: str) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    return 0


def read_status(name: str) -> int:
    """Return a size of this process in bytes, such as VmRSS."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _reset_peak() -> bool:
    """Let the kernel forget the greatest memory so far; return whether it did."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True


def count_micro_batches(batches: Sequence[BatchDone]) -> int:
    """Return how many micro-batches the rounds shared: those of one have the same times of its job."""
    jobs = [{name: us for name, us in one.parts_us.items() if name != "write"} for one in batches]
    return sum(not job or job != before for job, before in zip(jobs, [None, *jobs], strict=False))


def find_received(batches: Sequence[BatchDone]) -> dict[str, float]:
    """Return the most bytes that the driver received for a micro-batch, if events tell it."""
    most = max((batch.received for batch in batches), default=0)
    return {"bytes": most} if most else {}


def run_order(order: Order) -> Report:
    """Run the program over the smaller input, then over the large one."""
    options: dict[str, Any] = {"conf": dict(order.conf)}
    if order.files_per_trigger is not None:
        options = {"session": _open_session(order)}
    output, batches = Path(order.output), list[BatchDone]()

    def listen(event: Event) -> None:
        if isinstance(event, BatchDone):
            batches.append(event)

    settings: dict[str, Any] = {"options": ps.SparkOptions(**options), "events": listen}
    if order.files_per_trigger is None:
        settings["master"] = order.master
    _run(order, order.warm_up, output / "warm-up", settings)
    batches.clear()
    watch, began = MemoryWatch(), time.perf_counter()
    if order.until is not None:
        _run(order, order.input, output / "large", {**settings, "until": order.until})
    _run(order, order.input, output / "large", settings)
    seconds = time.perf_counter() - began
    growth = watch.growth()
    micro_batches = count_micro_batches(batches)
    received = find_received(batches)
    return Report(
        seconds, growth, watch.before, _heap_limit(), len(batches), micro_batches, received, watch.worker
    )


def _run(order: Order, folder: str, output: Path, settings: dict[str, Any]) -> None:
    if order.files_per_trigger is None:
        reader: Any = ps.read.parquet(folder)
    else:
        stream = settings["options"].session.readStream.schema(SPARK_SCHEMA)
        stream = stream.option("maxFilesPerTrigger", order.files_per_trigger)
        reader = ps.read.spark(stream.parquet(folder), follow=False)
    graph = PROGRAMS[order.program](reader, output / "rows")
    graph.run("spark", checkpoint=str(output / "checkpoint"), drain=True, **settings)


def _open_session(order: Order) -> Any:
    """Open a session as a user has it, from which the stream is read."""
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master(order.master).appName("bench").config("spark.ui.enabled", "false")
    return builder.config(map=dict(order.conf)).getOrCreate()


def _heap_limit() -> int:
    from pyspark.sql import SparkSession

    jvm = SparkSession.builder.getOrCreate().sparkContext._jvm
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())


if __name__ == "__main__":
    try:
        answer = asdict(run_order(Order(**json.loads(sys.argv[1]))))
    except Exception as failure:
        answer = {"failed": " ".join(f"{type(failure).__name__}: {failure}".split())}
    sys.stdout.write(json.dumps(answer) + "\n")
