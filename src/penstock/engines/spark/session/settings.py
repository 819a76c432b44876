"""The settings that a session is opened with: ours, the user's on top, and those that must not change.

Core settings are fixed when Spark starts; SQL settings belong to a session, and each run gets a session of
its own, so they never leak into the user's. A user's setting wins, except where another value would change
what a program means: that is refused with the reason. Passwords and keys among them are never shown, in
events, errors and logs alike. Imports no pyspark.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import EngineError
from penstock.frozen import Frozen

NAME = "penstock"  # of the application, where there is no graph to name it after
EMBEDDED = "local[*,4]"  # all cores; a task that fails is tried four times, which plain local[*] never does
DAEMON = "penstock.engines.spark.session.daemon"
ARROW_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_ROWS = 200_000  # rows per Arrow batch into a Python worker; Spark's 10,000 cost more hops than work
SQL = "spark.sql."  # these belong to a session, the others to Spark's start
_JAVA_OPTIONS = ("extraJavaOptions", "defaultJavaOptions")
LOG4J = Path(__file__).parents[1] / "log4j2.properties"

# Renames instead of forking a process for every file's permissions: up to 2.7 times on a batch. Its rename
# is not atomic against a second driver, so only on the local file system, where the run holds a lock.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class FixedSetting(Frozen):
    """A setting whose value is part of what programs mean."""

    value: str
    same: frozenset[str]
    reason: str


FIXED = {
    "spark.sql.session.timeZone": FixedSetting(
        "UTC",
        frozenset({"utc", "etc/utc", "gmt", "z", "+00:00", "utc+00:00"}),
        "times are in UTC on every engine; convert them in the program instead",
    ),
    "spark.sql.caseSensitive": FixedSetting(
        "true", frozenset({"true"}), 'columns "a" and "A" are two columns on every engine'
    ),
    "spark.sql.legacy.timeParserPolicy": FixedSetting(
        "CORRECTED",
        frozenset({"corrected", "exception"}),
        "the legacy calendar prints and reads times differently from every other engine",
    ),
    **dict.fromkeys(
        ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"),
        FixedSetting(
            "false",
            frozenset({"false"}),
            "the rows of a file that cannot be read would be lost without a word",
        ),
    ),
}


NO_MEMORY_OPTION, NO_MEMORY_CODE = "-XX:+ExitOnOutOfMemoryError", 3
"""Lets a driver's Java end with that code when its memory is used up. Otherwise only the thread ends that
asked for it, Spark's scheduler for one, and the run waits for ever.
"""


def core_settings(master: str, conf: Mapping[str, str], name: str = NAME) -> dict[str, str]:
    """Return the settings that Spark is started with: ours, the user's on top."""
    ours = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",  # it would listen on all addresses
        "spark.ui.showConsoleProgress": "false",
    }
    if hasattr(socket, "AF_UNIX"):
        # On TCP every small batch waits 40 ms for an acknowledgement, on its way to a Python worker.
        ours["spark.python.unix.domain.socket.enabled"] = "true"
    if is_on_this_machine(master):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if master.startswith("local"):
        # A cluster's executors start the daemon before the package has been shipped to them.
        ours["spark.python.daemon.module"] = DAEMON
        if not master.startswith("local-cluster"):
            ours["spark.authenticate"] = "true"  # by a secret that Spark makes up and keeps to itself
    _refuse_exposed(conf)
    theirs = {key: value for key, value in conf.items() if not key.startswith(SQL)}
    quiet = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
    options = "spark.driver.extraJavaOptions"
    return {**ours, **theirs, options: f"{quiet} {NO_MEMORY_OPTION} {theirs.get(options, '')}".strip()}


def _refuse_exposed(conf: Mapping[str, str]) -> None:
    """Raise for a secret among the options of a Java: every user of the machine can read its command line."""
    for key in (f"spark.{part}.{name}" for part in ("driver", "executor") for name in _JAVA_OPTIONS):
        names = [name for name, _ in re.findall(r"-D([^=\s]+)=(\S+)", conf.get(key, "")) if is_secret(name)]
        if names:
            raise EngineError(
                f"the setting {key} has {names[0]}, which would stand on a command line",
                detail="every user of the machine can read that",
                hint="put the options into a file that only you can read, and name it: @/path/to/options",
            )


def under_submit(
    core: Mapping[str, str], conf: Mapping[str, str], submitted: Mapping[str, str], program: str
) -> dict[str, str]:
    """Return the core settings without those of ours that spark-submit or its defaults file set otherwise.

    program  the file that was submitted, after which spark-submit names what has no name
    """
    theirs = {key for key, value in submitted.items() if not (key == "spark.app.name" and value == program)}
    return {key: value for key, value in core.items() if key in conf or key not in theirs}


_MOST_CORES = 1_000  # promises beyond it, such as Spark's own default, are not meant


def expected_cores(conf: Mapping[str, str], registered: int) -> int:
    """Return the number of cores to plan for: those that are there, or more if the settings promise more.

    When a program starts, few executors are there, and with dynamic allocation they come as there is work.

    >>> expected_cores({"spark.executor.instances": "8", "spark.executor.cores": "4"}, 2)
    32
    """
    if "spark.default.parallelism" in conf:
        return registered
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "").lower() == "true"
    n_executors = conf.get(
        "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances", ""
    )
    numbers = (n_executors, conf.get("spark.executor.cores", "1"))
    promises = [int(n_executors) * int(numbers[1])] if all(map(str.isdigit, numbers)) else []
    if conf.get("spark.cores.max", "").isdigit():
        promises.append(int(conf["spark.cores.max"]))
    return max(registered, min((n for n in promises if n <= _MOST_CORES), default=0))


def sql_settings(conf: Mapping[str, str], *, partitions: int, checkpoint: str | None) -> dict[str, str]:
    """Return the settings of a run's own session: ours, the user's on top, and the fixed ones."""
    ours = {
        "spark.sql.shuffle.partitions": str(partitions),
        ARROW_ROWS_SETTING: str(ARROW_ROWS),
        # Why: files are named one by one, and a job that looks at each takes longer than the driver does.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    }
    if checkpoint is None or checkpoint.startswith("file:") or "://" not in checkpoint:
        ours[FILE_MANAGER] = _LOCAL_MANAGER
    theirs = {key: value for key, value in conf.items() if key.startswith(SQL)}
    return {**ours, **theirs, **{key: fixed.value for key, fixed in FIXED.items()}}


def check_conf(conf: Mapping[str, object]) -> dict[str, str]:
    """Return the user's settings as Spark writes them; raise for one that changes what programs mean."""
    checked: dict[str, str] = {}
    for key, value in conf.items():
        if not isinstance(key, str) or not key.startswith("spark."):
            raise EngineError(
                f"{key!r} is not a setting of Spark",
                detail='the names of settings start with "spark."',
                hint='SparkOptions(conf={"spark.driver.memory": "4g"})',
            )
        checked[key] = str(value).lower() if isinstance(value, bool) else str(value)
        fixed = FIXED.get(key)
        if fixed is not None and checked[key].lower() not in fixed.same:
            raise EngineError(
                f"the setting {key} cannot be {checked[key]!r}",
                detail=fixed.reason,
                hint=f'leave it out: Penstock sets it to "{fixed.value}" in its own session only',
            )
    return checked


def is_on_this_machine(master: str) -> bool:
    """Return whether all that talks to the driver is on this machine, so that loopback is enough."""
    return master.startswith("local") or bool(
        re.match(r"spark://(127\.0\.0\.1|localhost|\[::1\])(:|$)", master)
    )


HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"secret|passw|passphrase|passcode|pass(?![a-z])|pwd|token|credential|sas|jaas|bearer"
    r"|(access|api|account|private|encryption|shared|signing|master|storage)[._-]?key",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_ASSIGNED = re.compile(r"(?P<name>spark\.[\w.\-]+)=(?P<value>\S+)")


def is_secret(key: str) -> bool:
    """Return whether a setting's name says that its value is secret.

    >>> is_secret("spark.hadoop.fs.s3a.secret.key"), is_secret("spark.driver.memory")
    (True, False)
    """
    return _SECRET.search(key) is not None


def without_login(address: str) -> str:
    """Return an address without the name and password in it.

    >>> without_login("spark://ann:pw@host:7077")
    'spark://(hidden)@host:7077'
    """
    return _IN_ADDRESS.sub(HIDDEN, address)


def without_secrets(text: str, conf: Mapping[str, str]) -> str:
    """Return a text of Spark's, such as an error or the end of its log, without any secret of `conf`."""
    for value in sorted({conf[key] for key in conf if is_secret(key) and conf[key]}, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return without_login(
        _ASSIGNED.sub(lambda m: f"{m['name']}={HIDDEN}" if is_secret(m["name"]) else m[0], text)
    )
