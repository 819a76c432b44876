"""A Spark session for a run: embedded, on a cluster, or inside a session of the user.

Every run gets a session of its own in the one Spark of the process (`newSession`): it shares executors and
warm workers with the others, and its SQL settings touch nobody else's. Spark itself is started by the first
run that needs it and stays for the next ones; it ends with the process, or when the user stops it.

To executors elsewhere that lack it, the package is sent as a zip (`ship`): only its own files; pyarrow, numpy
and numba must be installed there. Embedded Spark needs none of this: its workers are processes of this
machine and environment.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.engines.spark.engine import need_pyspark
from penstock.engines.spark.session import settings
from penstock.engines.spark.session.settings import is_secret, without_login
from penstock.errors import EngineError, NotSupported
from penstock.frozen import dataclass
from penstock.options import SparkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).parents[3]
_SUFFIXES = {".py", ".pyi", ".typed", ".properties"}
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that the same files make the same zip


def ship(context: Any) -> None:
    """Sends the package to the executors of a Spark context, once."""
    name = f"penstock-{_digest()}.zip"
    if any(file.endswith(name) for file in context.listFiles):
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-ship-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    before = list(sys.path)
    context.addPyFile(str(write_zip(folder / name)))
    sys.path[:] = before  # Spark puts the zip on the driver's path, which has the package already


def write_zip(target: Path, package: Path = PACKAGE) -> Path:
    """Writes the package as a zip from which Python can import it."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in _files(package):
            info = zipfile.ZipInfo(file.relative_to(package.parent).as_posix(), _LONG_AGO)
            zipped.writestr(info, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


def _files(package: Path) -> list[Path]:
    return sorted(file for file in package.rglob("*") if file.suffix in _SUFFIXES and file.is_file())


def _digest() -> str:
    seen = hashlib.sha256()
    for file in _files(PACKAGE):
        seen.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return seen.hexdigest()[:12]


_STARTING = threading.Lock()  # a process has one Spark, also when two threads ask for it


@dataclass(frozen=True, slots=True)
class RunSession:
    """A session of a run's own.

    spark       the session; its SQL settings are those of `settings.sql_settings`
    master      where it runs, fit to be shown
    partitions  parts of a shuffle
    notes       what the user may want to know: a Java that was passed over, a Spark that was there already
    """

    spark: SparkSession
    master: str
    partitions: int
    notes: tuple[str, ...] = ()


def open_session(
    options: SparkOptions, *, master: str | None = None, checkpoint: str | None = None
) -> RunSession:
    """Opens a session for one run; raises EngineError when the settings or the machine do not allow it."""
    need_pyspark()
    conf = settings.check_conf(options.conf)
    with _STARTING:
        root, notes = _find_or_start(options.session, master, conf)
        context = root.sparkContext
        if not context.master.startswith("local"):
            ship(context)
    partitions = _partitions(options.partitions, context.defaultParallelism)
    own = root.newSession()
    for key, value in settings.sql_settings(conf, partitions=partitions, checkpoint=checkpoint).items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)
    _refuse_fixed_settings(own, conf)
    return RunSession(own, without_login(context.master), partitions, notes)


def _find_or_start(
    session: Any, master: str | None, conf: Mapping[str, str]
) -> tuple[SparkSession, tuple[str, ...]]:
    """Returns the session that a run's own derives from: the user's, one that runs already, or a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from penstock.engines.spark.session.start import start_spark

    if session is not None:
        return _check_users(session, master), ()
    running = SparkContext._active_spark_context
    if running is None:
        return start_spark(master or _submitted_master() or settings.EMBEDDED, conf)
    if master is not None and running.master != master:
        raise EngineError(
            f'Spark already runs in this process at "{without_login(running.master)}"',
            detail=f'one process has one Spark, and the run asks for "{without_login(master)}"',
            hint="stop it first: SparkSession.active().stop()",
        )
    return SparkSession.builder.getOrCreate(), ()


def _check_users(session: Any, master: str | None) -> SparkSession:
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
    if session.sparkContext._jsc is None:
        raise EngineError("the SparkSession has been stopped", hint="give a session that is running")
    return session


def _submitted_master() -> str | None:
    """Returns the master that spark-submit was given, when it started this program."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    master = SparkConf().get("spark.master")
    return str(master) if master else None


def _partitions(asked: int | None, cores: int) -> int:
    if asked is None:
        return cores
    if not isinstance(asked, int) or isinstance(asked, bool) or asked < 1:
        raise EngineError(
            f"partitions={asked!r} is not a number of parts",
            hint="SparkOptions(partitions=8), or leave it out",
        )
    return asked


def _refuse_fixed_settings(own: SparkSession, conf: Mapping[str, str]) -> None:
    """Raises for a setting that cannot take effect any more, instead of running without it."""
    for key, value in conf.items():
        if own.conf.isModifiable(key):
            continue
        actual = own.sparkContext.getConf().get(key)
        if actual != value and key != "spark.driver.extraJavaOptions":
            value_now = "another value" if is_secret(key) else repr(actual)
            raise EngineError(
                f"the setting {key} cannot change while Spark runs",
                detail=f"Spark was started with {'nothing' if actual is None else value_now} for it",
                hint="stop Spark first, SparkSession.active().stop(), or leave the setting out",
            )
