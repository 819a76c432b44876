"""Start Spark in this process, quietly: find a Java, launch the JVM, make the context.

The JVM's own output goes to a file, whose end is quoted when Spark does not start. Settings with secrets
are handed over through the gateway and never on the command line, which every user of the machine can read.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engines.spark.session import settings
from penstock.engines.spark.session.java import Java, find_java
from penstock.engines.spark.session.settings import is_secret, without_login, without_secrets
from penstock.errors import EngineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_LINES = 15
_PATIENCE_S = 10  # for the first answer of a standalone master


def start_spark(master: str, conf: Mapping[str, str]) -> tuple[SparkSession, tuple[str, ...]]:
    """Spark at that master, and what is to be said about how it was started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    _need_an_answer(master)
    core = settings.core_settings(master, conf)
    java = None if _jvm_is_there() else find_java()
    log = _log_file()
    with _environment(_variables(java, master, conf)):
        try:
            SparkContext(conf=_context_conf(_gateway(core, log), master, core))
        except Exception as problem:
            raise _did_not_start(problem, master, conf, log) from None
        return SparkSession.builder.getOrCreate(), java.notes if java else ()


def _jvm_is_there() -> bool:
    from pyspark import SparkContext

    return SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def _gateway(core: Mapping[str, str], log: Path) -> Any:
    """Returns the JVM's gateway: the one that runs, or a new one whose output goes to the log."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False)
        for key, value in core.items():
            if not is_secret(key) and without_login(value) == value:
                conf.set(key, value)
        with log.open("ab") as output:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
        SparkContext._ensure_initialized(gateway=gateway)
    return SparkContext._gateway


def _context_conf(gateway: Any, master: str, core: Mapping[str, str]) -> Any:
    from pyspark import SparkConf

    conf = SparkConf(_jvm=gateway.jvm).setMaster(master)
    for key, value in core.items():
        conf.set(key, value)
    return conf


def _variables(java: Java | None, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Returns what the JVM and the context read from the environment while they start."""
    variables = {} if java is None else {"JAVA_HOME": str(java.home)}
    if not os.environ.get("PATH"):
        variables["PATH"] = os.defpath  # Spark's launcher is a shell script
    if settings.is_on_this_machine(master):
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    if "PYSPARK_PYTHON" in os.environ:
        variables["PYSPARK_PYTHON"] = os.environ["PYSPARK_PYTHON"]
    if "spark.pyspark.python" in conf:
        variables["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    return variables


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _log_file() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder / "spark.log"


def _need_an_answer(master: str) -> None:
    """Ask a standalone master whether it is there: Spark itself would try for a minute, then say less."""
    for host, port in re.findall(r"(?:spark://|,)(?:[^@,/]*@)?([^:,/]+|\[[^\]]+\]):(\d+)", master):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
        except OSError as problem:
            failure = problem
        else:
            return
    if master.startswith("spark://") and "failure" in locals():
        raise EngineError(
            f'no Spark master answers at "{without_login(master)}"',
            detail=str(failure),
            hint="start it, or leave master= out to run on this machine",
        )


def _did_not_start(problem: Exception, master: str, conf: Mapping[str, str], log: Path) -> EngineError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    cause = getattr(problem, "java_exception", None)
    reason = str(cause) if cause is not None else str(problem).strip() or type(problem).__name__
    ending = [line for line in lines if line.strip()][-_LAST_LINES:]
    return EngineError(
        f'Spark did not start at "{without_login(master)}"',
        detail=without_secrets("\n          ".join([reason.partition("\n")[0], *ending]), conf),
        hint="penstock doctor looks at Java and the packages",
    )
