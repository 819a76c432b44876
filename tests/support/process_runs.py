"""Small graphs whose functions say in which process they ran, and what must be gone afterwards."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import penstock as ps

PROCESS = ps.LocalOptions(workers="process")
THREAD = ps.LocalOptions(workers="thread")
NUMBERS = {"v": "int64"}
SEEN = {"v": "int64", "pid": "int64"}


def numbers(graph: ps.PipeGraph, n: int, size: int = 3) -> ps.MultiPipe:
    """0 to n - 1, in batches."""
    batches = [[{"v": v} for v in range(i, min(i + size, n))] for i in range(0, n, size)]
    return graph.source(ps.read.batches(batches, schema=NUMBERS), name="numbers")


def seen(row: Any) -> dict[str, int]:
    """The row, and who worked on it."""
    return {"v": row.v, "pid": os.getpid()}


def run(graph: ps.PipeGraph, pipe: ps.MultiPipe, options: ps.LocalOptions = PROCESS) -> list[dict[str, Any]]:
    """The rows of a pipe."""
    memory = ps.write.memory()
    pipe.sink(memory)
    graph.run("local", options=options)
    return list(memory.rows())


def is_gone(pid: int) -> bool:
    """Whether there is no such process, not even one that waits to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def held_resources() -> tuple[set[str], int, list[str]]:
    """What a run must give back: shared memory with or without a name, handles of processes, threads.

    Sockets need not be counted: one that is not closed is a warning, and that an error.
    """
    shared = {path.name for path in Path("/dev/shm").glob("*")}
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")]
    return shared, sum(map(_is_of_a_run, Path("/proc/self/fd").iterdir())), threads


def _is_of_a_run(file: Path) -> bool:
    try:
        target = str(file.readlink())
    except FileNotFoundError:  # that of the listing itself
        return False
    return "memfd:penstock" in target or "pidfd" in target
