"""A standalone master and workers on this machine, from the pip package, reachable by loopback only.

Tests of the engine and `python -m bench faults` share it. A worker may be killed and started again; the
processes below it (executors, their Python daemons and workers) are looked up in /proc, so they are known
without asking the program that runs on them.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from penstock.engines.spark.session.java import find_java

ROOT = Path(__file__).parents[2]
HERE = "127.0.0.1"
WORKER_MEMORY = "1500m"
WORKERS = ("one", "two")
EXECUTOR = "CoarseGrainedExecutorBackend"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a cluster and give the address of its master; whatever it started is ended at the end."""
    with start_cluster(folder) as started:
        yield started.address


@contextmanager
def start_cluster(
    folder: Path,
    *,
    worker_memory: str = WORKER_MEMORY,
    worker_cores: int = 1,
    hosts: tuple[str, str] = (HERE, HERE),
) -> Iterator[SparkCluster]:
    """Start a master and two workers of one core each; whatever was started is ended at the end.

    worker_cores  the tasks that a worker takes at a time, which may be more than there are cores
    hosts         the addresses of the workers; Spark starts no second attempt of a task on the host of the
                  first
    """
    port = _free_port()
    started = SparkCluster(folder, f"spark://{HERE}:{port}", worker_memory, hosts, worker_cores)
    try:
        master = ("master.Master", "--host", HERE, "--port", str(port), "--webui-port", "0")
        started.daemons["master"] = _start_daemon(
            folder / "master", "Successfully started service 'sparkMaster'", *master
        )
        started.start_workers()
        yield started
    finally:
        for daemon in [*started.dead_workers, *started.daemons.values()]:
            _end(daemon)


@dataclass
class SparkCluster:
    """A cluster that runs: the address of its master, its daemons by name, and workers that were killed."""

    folder: Path
    address: str
    worker_memory: str
    hosts: tuple[str, str]
    worker_cores: int = 1
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    dead_workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_workers(self) -> None:
        """Start every worker that is not there (any more), and wait until the master knows it."""
        for name, host in zip(WORKERS, self.hosts, strict=True):
            old = self.daemons.get(name)
            if old is not None and old.poll() is None:
                continue
            if old is not None:
                # Why not ended: its executors end by themselves, and what they do until then matters.
                self.dead_workers.append(old)
            self.daemons[name] = _start_daemon(
                self.folder / name,
                "Successfully registered with master",
                *("worker.Worker", "--host", host, "--webui-port", "0"),
                *("-c", str(self.worker_cores), "-m", self.worker_memory),
                self.address,
            )

    def workers(self) -> list[int]:
        """Return the processes of the workers that are alive."""
        return [
            daemon.pid
            for name, daemon in self.daemons.items()
            if name in WORKERS and daemon.poll() is None and is_alive(daemon.pid)
        ]

    def executors(self) -> list[int]:
        """Return the processes of all executors, of whatever program."""
        return [
            pid for worker in self.workers() for pid in children_of(worker) if EXECUTOR in command_of(pid)
        ]

    def python_daemons(self) -> list[int]:
        """Return the processes that start the Python workers of executors."""
        return [
            pid
            for executor in self.executors()
            for pid in children_of(executor)
            if "python" in command_of(pid)
        ]

    def python_workers(self) -> list[int]:
        """Return the Python workers of all executors."""
        return [pid for daemon in self.python_daemons() for pid in children_of(daemon)]


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process; none if it has ended."""
    children = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(file.read_text(errors="replace").rpartition(")")[2].split()[1]) == pid:
                children.append(int(file.parent.name))
    return children


def command_of(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def _start_daemon(folder: Path, ready: str, kind: str, *args: str) -> subprocess.Popen[bytes]:
    """Start a daemon of Spark in a session of its own; return it once it has said that it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    home = Path(pyspark.__file__).parent
    run = subprocess.Popen(
        [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *args],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HERE,
            "SPARK_WORKER_DIR": str(folder),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": str(ROOT),  # the functions of the tests are users' code, which executors must have
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _wait_for(run, ready)
    except BaseException:
        _end(run)
        raise
    # Why: somebody must go on reading, or the daemon would wait for room to print.
    threading.Thread(target=run.communicate, daemon=True).start()
    return run


def _end(run: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def _wait_for(run: subprocess.Popen[bytes], ready: str) -> None:
    assert run.stdout is not None, "its output is read"
    lines = []
    for line in run.stdout:
        lines.append(line.decode(errors="replace"))
        if ready in lines[-1]:
            return
    raise AssertionError("a daemon of Spark ended:\n" + "".join(lines[-20:]))


def _free_port() -> int:
    with socket.socket() as asked:
        asked.bind((HERE, 0))
        return int(asked.getsockname()[1])
