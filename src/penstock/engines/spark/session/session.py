"""A Spark session for a run: embedded, on a cluster, or inside a session of the user.

Every run gets a session of its own in the one Spark of the process (`newSession`): it shares executors and
warm workers with the others, and its SQL settings touch nobody else's. Spark itself is started by the first
run that needs it and stays for the next ones; it ends with the process, or when the user stops it.

It is started quietly: the JVM's own output goes to a file, whose end is quoted when Spark does not start.
Settings with secrets are handed over through the gateway and never on the command line, which every user of
the machine can read.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from penstock.engines.spark.engine import need_pyspark
from penstock.engines.spark.session import settings
from penstock.engines.spark.session.java import Java, find_java, temporary_folder
from penstock.engines.spark.session.py_files import check_py_files, send_py_files, ship
from penstock.engines.spark.session.settings import is_secret, without_login, without_secrets
from penstock.errors import EngineError, NotSupported
from penstock.frozen import Frozen
from penstock.options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LAST_LINES = 15
_PATIENCE_S = 10  # for the first answer of a standalone master
_SOCKETS = "spark.python.unix.domain.socket.dir"
_LONGEST_FOLDER = 60  # with the name of a socket it has less than 108 letters
_NEARLY = 0.92  # how alike two names are that differ by a slip of the fingers
_AT_LAUNCH = ("memory", "extraJavaOptions", "extraClassPath", "extraLibraryPath")
"""Settings `spark.driver.…` that a JVM must be launched with."""

_STARTING = threading.Lock()  # a process has one Spark, also when two threads ask for it
_STARTED_WITH: WeakKeyDictionary[Any, Mapping[str, str]] = WeakKeyDictionary()
"""context -> the user's settings; Spark changes some of them, such as the path of its warehouse."""


class RunSession(Frozen):
    """A session of a run's own, with the settings of `settings.sql_settings`, and its parts of a shuffle."""

    spark: SparkSession
    partitions: int


def open_session(
    options: SparkOptions,
    *,
    master: str | None = None,
    checkpoint: str | None = None,
    name: str = settings.NAME,
) -> RunSession:
    """Open a session for one run; raise EngineError when the settings or the machine do not allow it.

    name  of the application, if Spark is started for the run
    """
    need_pyspark()
    conf, py_files = settings.check_conf(options.conf), check_py_files(options.py_files)
    with _STARTING:
        root = _find_or_start(options.session, master, conf, name)
        context = root.sparkContext
        ship(context)
        send_py_files(context, py_files)
    partitions = options.partitions
    if partitions is None:
        partitions = settings.expected_cores(dict(context.getConf().getAll()), context.defaultParallelism)
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise EngineError(
            f"partitions={partitions!r} is not a number of parts",
            hint="SparkOptions(partitions=8), or leave it out",
        )
    own = root.newSession()
    for key, value in settings.sql_settings(conf, partitions=partitions, checkpoint=checkpoint).items():
        if _belongs_to_session(own, key):
            own.conf.set(key, value)
    _refuse_settings(own, conf)
    # The listeners of the user's queries hear of the run's too: Spark keeps them by session.
    known = [listener.getClass() for listener in own._jsparkSession.streams().listListeners()]
    for listener in root._jsparkSession.streams().listListeners():
        if listener.getClass() not in known:  # Spark gives those of its settings to every session
            own._jsparkSession.streams().addListener(listener)
    return RunSession(own, partitions)


def _find_or_start(session: Any, master: str | None, conf: Mapping[str, str], name: str) -> SparkSession:
    """Return the session that a run's own derives from: the user's, one that runs already, or a new one."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if session is not None:
        _check_users(session, master)
        return session
    _forget_dead_java()
    running = SparkContext._active_spark_context
    if running is None:
        submitted = None
        if _is_submitted():
            SparkContext._ensure_initialized()
            submitted = SparkConf().get("spark.master")  # that spark-submit was given
        return start_spark(master or submitted or settings.EMBEDDED, conf, name)
    if master is not None and running.master != master:
        raise EngineError(
            f'Spark already runs in this process at "{without_login(running.master)}"',
            detail=f'one process has one Spark, and the run asks for "{without_login(master)}"',
            hint="stop it first: SparkSession.active().stop()",
        )
    return SparkSession.builder.getOrCreate()


def _check_users(session: Any, master: str | None) -> None:
    """Raise if a run cannot use a session of the user's."""
    from pyspark.sql import SparkSession

    if type(session).__module__.startswith("pyspark.sql.connect"):
        raise NotSupported(
            "a Spark Connect session cannot run a graph",
            detail="the batches of a run are carried on by the driver, which is elsewhere",
            hint='use a classic session: SparkSession.builder.master("local[*]").getOrCreate()',
        )
    if not isinstance(session, SparkSession):
        raise EngineError(
            f"session={session!r:.80} is no SparkSession", hint="SparkOptions(session=SparkSession.active())"
        )
    if master is not None:
        raise EngineError(
            f'both session= and master="{without_login(master)}" were given',
            detail=f'the session runs at "{without_login(session.sparkContext.master)}"',
            hint="leave one of them out",
        )
    dead = explain_dead_java()
    if dead is not None:
        raise dead
    if session.sparkContext._jsc is None:
        raise EngineError("the SparkSession has been stopped", hint="give a session that is running")


def explain_dead_java(patience_s: float = 0.0) -> EngineError | None:
    """Return the error for a driver's Java that has ended; None if it runs, or was not started from here.

    patience_s  how long one that is about to end is waited for
    """
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return None
    if code == settings.NO_MEMORY_CODE:
        return EngineError(
            "the driver's Java ran out of memory, and has ended",
            detail="it holds the rows that sources in this process read: a micro-batch at a time",
            hint='give it more: SparkOptions(conf={"spark.driver.memory": "4g"}); or sources less: batch=',
        )
    how = f"with code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return EngineError(
        f"the driver's Java has ended {how}",
        detail="Spark runs in it; nobody here has stopped it",
        hint="look whether the machine has run out of memory (dmesg), and run again: a new Java is started",
    )


def _forget_dead_java() -> None:
    """Forget a Spark whose Java has ended, so that another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if explain_dead_java() is None:
        return
    with suppress(Exception):  # its other end is gone
        SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _is_submitted() -> bool:
    """Return whether spark-submit started this program, in a JVM that is there already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _belongs_to_session(own: SparkSession, key: str) -> bool:
    """Return whether a setting may differ between the sessions of one Spark, such as that of a catalog."""
    return own.conf.isModifiable(key) or _is_unknown(own, key)


def _is_unknown(own: SparkSession, key: str) -> bool:
    """Return whether Spark does not know an SQL setting, so that it may be that of a catalog or a plug-in."""
    # Why: Spark does not say of Hive's settings that they are static before it has loaded Hive.
    is_hive = key.startswith("spark.sql.hive.")
    if not key.startswith(settings.SQL) or is_hive or own.conf.isModifiable(key):
        return False
    sql_conf = own.sparkContext._jvm.org.apache.spark.sql.internal.SQLConf
    return not sql_conf.isStaticConfigKey(key)


def _refuse_settings(own: SparkSession, conf: Mapping[str, str]) -> None:
    """Raise for a setting that cannot take effect any more, instead of running without it.

    Raise as well for an SQL setting that Spark does not know and whose name is nearly one that it knows.
    """
    started_with = _STARTED_WITH.get(own.sparkContext, {})
    for key, value in conf.items():
        if _is_unknown(own, key) and not key.startswith("spark.sql.catalog."):
            defined = own._jsparkSession.sessionState().conf().getAllDefinedConfs().mkString("\n")
            known = re.findall(r"^\((spark\.sql\.[\w.]+),", str(defined), re.MULTILINE)
            meant = get_close_matches(key, known, 1, _NEARLY)
            if meant:
                raise EngineError(
                    f"Spark has no setting {key}",
                    detail="it would be ignored without a word",
                    hint=f'did you mean "{meant[0]}"?',
                )
        if started_with.get(key) == value or _belongs_to_session(own, key):
            continue
        actual = own.sparkContext.getConf().get(key)
        # Why: Spark itself adds to these when it starts.
        is_changed = key.endswith(".extraJavaOptions") and value in (actual or "")
        if actual != value and not is_changed:
            value_now = "another value" if is_secret(key) else repr(actual)
            raise EngineError(
                f"the setting {key} cannot change while Spark runs",
                detail=f"Spark was started with {'nothing' if actual is None else value_now} for it",
                hint="stop Spark first, SparkSession.active().stop(), or leave the setting out",
            )


def start_spark(master: str, conf: Mapping[str, str], name: str = settings.NAME) -> SparkSession:
    """Start Spark in this process at that master: find a Java, launch the JVM, make the context."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    _need_an_answer(master)
    core = _socket_folder(master) | settings.core_settings(master, conf, name)
    if not logging.getLogger("py4j").level:
        # Below, it logs every value that goes to Java, and each connection that ends.
        logging.getLogger("py4j").setLevel(logging.WARNING)
    is_running = SparkContext._gateway is not None or _is_submitted()
    java = None if is_running else find_java()
    log = temporary_folder("penstock-spark-") / "spark.log"
    with _environment(_variables(java, master, conf)):
        try:
            if SparkContext._gateway is None:
                public = [(k, v) for k, v in core.items() if not is_secret(k) and without_login(v) == v]
                launched = SparkConf(loadDefaults=False).setAll(public)
                with log.open("ab") as output:
                    gateway = launch_gateway(launched, {"stdout": output, "stderr": output})
                _protect_callbacks(gateway)
                SparkContext._ensure_initialized(gateway=gateway)
            jvm = SparkContext._gateway.jvm
            known = SparkConf(_jvm=jvm)
            if is_running:
                _refuse_launch_settings(dict(known.getAll()), core, conf)
            if _is_submitted():
                core = settings.under_submit(core, conf, dict(known.getAll()), Path(sys.argv[0]).name)
            # The user's SQL settings that Spark must be started with: static ones, and unknown ones.
            sql = {key: value for key, value in conf.items() if key.startswith(settings.SQL)}
            if sql:
                internal = jvm.org.apache.spark.sql.internal
                internal.StaticSQLConf.WAREHOUSE_PATH()  # Spark registers them when one is first used
                sql_conf = internal.SQLConf()
                core |= {key: value for key, value in sql.items() if not sql_conf.isModifiable(key)}
            context = SparkContext(conf=known.setMaster(master).setAll(list(core.items())))
        except EngineError:
            raise
        except Exception as problem:
            raise _did_not_start(problem, master, conf, log) from None
        _STARTED_WITH[context] = dict(conf)
        return SparkSession.builder.getOrCreate()


def _protect_callbacks(gateway: Any) -> None:
    """Let the server for calls from Java take none without the token of the gateway.

    Why: it listens too, and PySpark gives it no token; the Java side forgets its own when it learns the port.
    """
    from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
    from pyspark.java_gateway import ensure_callback_server_started

    token = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = token
    ensure_callback_server_started(gateway)
    client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
    field = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    field.setAccessible(True)
    field.set(client, token)


def _socket_folder(master: str) -> dict[str, str]:
    """Return the setting of a folder for the sockets to Python workers, which ends with the process.

    Why: Spark leaves them behind. A path that is too long for a socket stays Spark's own choice.
    """
    if not master.startswith("local") or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = temporary_folder("penstock-sockets-")
    return {_SOCKETS: str(folder)} if len(str(folder)) < _LONGEST_FOLDER else {}


def _refuse_launch_settings(
    known: Mapping[str, str], core: Mapping[str, str], conf: Mapping[str, str]
) -> None:
    """Raise for a setting of the driver's JVM that comes after its launch."""
    for key in (f"spark.driver.{name}" for name in _AT_LAUNCH):
        if key in conf and known.get(key) not in (conf[key], core[key]):
            raise EngineError(
                f"the setting {key} comes too late: the driver's Java is running already",
                hint=f"give it to what starts Java: spark-submit --conf {key}=…"
                if _is_submitted()
                else "give it in the first run of the process",
            )


def _variables(java: Java | None, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return what the JVM and the context read from the environment while they start."""
    variables = {} if java is None else {"JAVA_HOME": str(java.home)}
    if not os.environ.get("PATH"):
        variables["PATH"] = os.defpath  # Spark's launcher is a shell script
    if settings.is_on_this_machine(master):
        variables |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    if "PYSPARK_PYTHON" in os.environ:
        variables["PYSPARK_PYTHON"] = os.environ["PYSPARK_PYTHON"]
    if "spark.pyspark.python" in conf:
        variables["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    has_pyspark = variables.get("PYSPARK_PYTHON") == sys.executable  # another Python may need the archives
    if java is not None and has_pyspark and "SPARK_HOME" not in os.environ:
        variables["SPARK_HOME"] = str(_home_without_archives())
    return variables


def _home_without_archives() -> Path:
    """Return a folder to use as Spark's home, without the archives of its Python part.

    Why: Spark puts them first on the path of every Python process, and a query starts one; importing pyspark
    from them takes half a second longer than from its folder (`python -m bench spark`, group windows).
    """
    from pyspark.find_spark_home import _find_spark_home

    home = temporary_folder("penstock-home-")
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name != "python":
            (home / entry.name).symlink_to(entry)
    return home


@contextmanager
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


def _need_an_answer(master: str) -> None:
    """Ask a standalone master whether it is there: Spark itself would try for a minute, then say less."""
    failure: OSError | None = None
    for host, port in re.findall(r"(?:spark://|,)(?:[^@,/]*@)?([^:,/]+|\[[^\]]+\]):(\d+)", master):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
        except OSError as problem:
            failure = problem
        else:
            return
    if master.startswith("spark://") and failure is not None:
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
