"""A standalone master and two workers on this machine, from the pip package, reachable by loopback only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from penstock.engines.spark.session.java import find_java

ROOT = Path(__file__).parents[2]
HERE = "127.0.0.1"
WORKER_MEMORY = "1500m"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start a cluster and give the address of its master; whatever it started is ended at the end."""
    port = _free_port()
    address = f"spark://{HERE}:{port}"
    with ExitStack() as stack:
        started = "Successfully started service 'sparkMaster'"
        master = ("master.Master", "--host", HERE, "--port", str(port), "--webui-port", "0")
        stack.enter_context(_process(folder / "master", started, *master))
        for name in ("one", "two"):
            stack.enter_context(
                _process(
                    folder / name,
                    "Successfully registered with master",
                    *("worker.Worker", "--host", HERE, "--webui-port", "0", "-c", "1", "-m", WORKER_MEMORY),
                    address,
                )
            )
        yield address


@contextmanager
def _process(folder: Path, ready: str, kind: str, *args: str) -> Iterator[None]:
    """A daemon of Spark in a session of its own, once it has said that it is ready."""
    folder.mkdir(parents=True)
    home = Path(pyspark.__file__).parent
    run = subprocess.Popen(
        [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *args],
        env={
            **os.environ,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HERE,
            "SPARK_WORKER_DIR": str(folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": str(ROOT),  # the functions of the tests are users' code, which executors must have
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        _wait_for(run, ready)
        # Somebody must go on reading, or the daemon would wait for room to print.
        reading = threading.Thread(target=run.communicate, daemon=True)
        reading.start()
        yield
    finally:
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
