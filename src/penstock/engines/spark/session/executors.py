"""Executors elsewhere: whether they can run a graph, asked by a tiny job before its first row.

What a cluster most often lacks is the right Python, a package, or a folder that is the same everywhere. Spark
tells none of it well: a task fails four times on some machine, in the middle of a run, with a page of Java.
So every executor is asked (`check_executors`), and its answer is data: versions, imports that failed, and of
every folder whether a file of the driver's is there and whether the driver sees one of the executor's.

Where Python does not even start there is no answer, and executors may join later: `explain_failure` knows
the texts of Spark for the same mistakes.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict
from weakref import WeakSet

from penstock.connect.writers.folder import FolderWriter
from penstock.errors import (
    CheckpointError,
    ConnectorError,
    EngineError,
    PenstockError,
    Where,
    describe_cause,
)
from penstock.frozen import Frozen
from penstock.operators.ends import Sink
from penstock.operators.windows import Windows
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEEDED = {
    "pyarrow": "21",
    "numpy": "2.0",
    "numba": "0.61",
    "datasketches": "5.2",
    "xxhash": "3.5",
    "pandas": "2.2",
}
"""Package -> the oldest version that workers can use. The package itself is sent to them."""
JOB = "penstock: are the executors ready?"
_SHARED = "give a folder that the driver and all executors reach under one path, such as a mounted one"
_TASKS_PER_CORE = 2  # so that every executor gets one, though some are quicker


class SharedFolder(Frozen):
    """A folder that the driver and all executors use.

    path   absolute
    step   the sink that writes there; None for the state of a run
    where  the line of that sink
    saved  whether the folder is a checkpoint of the user's; without one, state is in a temporary folder
    """

    path: Path
    step: str | None = None
    where: Where | None = None
    saved: bool = True

    def error(self, fact: str, detail: str) -> PenstockError:
        """Return the error for what is wrong with the folder."""
        if self.step is not None:
            hint = f"{_SHARED}, to the writer"
            return ConnectorError(
                f"output {fact}", step=self.step, where=self.where, detail=detail, hint=hint
            )
        hint = _SHARED if self.saved else f"{_SHARED}, as checkpoint="
        return CheckpointError(f"state {fact}", detail=detail, hint=hint)


def shared_folders(
    plan: Plan, state: Path, *, saved: bool = True, writes_output: bool = False
) -> list[SharedFolder]:
    """Return the folders of a run that its executors use.

    state          the folder of the checkpoint, or the temporary one in its place
    saved          whether it is a checkpoint
    writes_output  whether executors write the files of sinks, and not the driver
    """
    folders = []
    if any(step.op.stateful or isinstance(step.op, Windows) for step in plan):
        folders.append(SharedFolder(state.absolute(), saved=saved))
    for step in plan.sinks if writes_output else ():
        if isinstance(step.op, Sink) and isinstance(step.op.writer, FolderWriter):
            folder = step.op.writer.folder.absolute()
            while not folder.exists():  # the sink creates it when it is opened
                folder = folder.parent
            folders.append(SharedFolder(folder, step.name, step.where))
    return folders


class FolderReport(TypedDict):
    """What an executor says of a folder: the file that it wrote there, or what kept it from that."""

    path: str
    file: str | None
    problem: str | None


class ExecutorReport(TypedDict):
    """What an executor says of itself.

    packages  package -> its version
    problems  package -> why it cannot be imported
    no_cache  why code that was compiled there cannot be kept; None if it can
    """

    host: str
    python: str
    packages: dict[str, str]
    problems: dict[str, str]
    no_cache: str | None
    folders: list[FolderReport]


_CHECKED: WeakSet[Any] = WeakSet()
"""Contexts whose executors have the right Python and packages."""


def check_executors(spark: SparkSession, folders: Sequence[SharedFolder] = ()) -> None:
    """Raise a PenstockError if an executor of a cluster cannot run a graph with these folders.

    Does nothing on a local master, where workers are processes of this machine and environment.
    """
    context = spark.sparkContext
    if context.master.startswith("local") or (context in _CHECKED and not folders):
        return
    token = uuid.uuid4().hex
    token_files = [folder.path / f".penstock-{token}" for folder in folders]
    try:
        for folder, file in zip(folders, token_files, strict=True):
            _write_token(folder, file, token)
        reports = _ask_executors(context, [str(file) for file in token_files], token)
        problems = [
            *find_package_problems(reports),
            *find_cache_problems(reports),
            *find_folder_problems(reports, folders, token),
        ]
    finally:
        # Why by name: a task that failed has reported nothing, and may have written.
        for file in [file for folder in folders for file in folder.path.glob(f".penstock-{token}*")]:
            with suppress(OSError):
                file.unlink()
    if problems:
        first, *more = problems
        if more:
            first.detail = "; ".join([first.detail or "", *(f"also, {other.fact}" for other in more)])
        raise first
    _CHECKED.add(context)


def _write_token(folder: SharedFolder, file: Path, token: str) -> None:
    try:
        file.write_text(token, encoding="utf-8")
    except OSError as cause:
        detail = describe_cause(cause)
        raise folder.error(f'cannot be written to "{folder.path}" by the driver', detail) from cause


def _ask_executors(context: Any, files: Sequence[str], token: str) -> list[ExecutorReport]:
    """Run one small task on every executor, as well as can be done, and return their reports."""
    n_tasks = _TASKS_PER_CORE * context.defaultParallelism
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(JOB)
    try:
        tasks = context.parallelize(range(n_tasks), n_tasks)
        reports: list[ExecutorReport] = tasks.mapPartitions(
            build_probe(tuple(NEEDED), files, token)
        ).collect()
    except Exception as failure:
        raise explain_failure(failure) or EngineError(
            "Spark failed to ask its executors whether they are ready", detail=str(failure)[:500]
        ) from failure
    finally:
        context.setJobDescription(before)
    return reports


def build_probe(
    packages: Sequence[str], files: Sequence[str], token: str
) -> Callable[[Iterator[int]], Iterator[ExecutorReport]]:
    """Return what an executor runs to report on itself.

    Invariant: the function uses nothing of this module, so that it is sent by its code: an executor that
    lacks a package could not import this one.
    """

    def probe(numbers: Iterator[int]) -> Iterator[Any]:
        import contextlib
        import importlib
        import importlib.metadata
        import os
        import pathlib
        import socket
        import sys
        import tempfile
        import uuid

        versions, problems, folders = {}, {}, []
        for package in packages:
            try:
                importlib.import_module(package)
            except Exception as cause:  # a broken package raises anything
                problems[package] = f"{type(cause).__name__}: {cause}"
            else:
                with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                    versions[package] = importlib.metadata.version(package)
        # Why there: of code in a zip, as the package is sent, Numba keeps what it compiled nowhere else.
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "numba")
        try:
            cache.expanduser().mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=cache.expanduser()).close()
            no_cache = None
        except (OSError, RuntimeError) as cause:  # RuntimeError: there is no home
            no_cache = f"{type(cause).__name__}: {cause}"
        for name in files:
            path, report = pathlib.Path(name), {"path": name, "file": None, "problem": None}
            folders.append(report)
            try:
                if not path.parent.is_dir():
                    report["problem"] = "the folder does not exist there"
                elif not path.exists():
                    report["problem"] = "a folder of that name is there, but not this one"
                elif path.read_text(encoding="utf-8") != token:
                    report["problem"] = "what the driver wrote cannot be read there"
                else:
                    written = path.with_name(f"{path.name}-{uuid.uuid4().hex[:12]}")
                    written.write_text(token, encoding="utf-8")
                    report["file"] = str(written)
            except OSError as cause:
                report["problem"] = f"{type(cause).__name__}: {cause}"
        yield {
            "host": socket.gethostname(),
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}, {sys.executable}",
            "packages": versions,
            "problems": problems,
            "no_cache": no_cache,
            "folders": folders,
        }

    return probe


def find_package_problems(reports: Sequence[ExecutorReport]) -> Iterator[PenstockError]:
    """Yield an error for every package that some executors lack, or have too old."""
    for package, oldest in NEEDED.items():
        lacking = [report for report in reports if package in report["problems"]]
        if lacking:
            yield EngineError(
                f'executors of Spark cannot import "{package}": {lacking[0]["problems"][package]}',
                detail=_name_hosts(lacking),
                hint=_install_hint(package, oldest),
            )
        old = [
            report
            for report in reports
            if package in report["packages"] and _version(report["packages"][package]) < _version(oldest)
        ]
        if old:
            yield EngineError(
                f"executors of Spark have {package} {old[0]['packages'][package]}, and workers need {oldest}",
                detail=_name_hosts(old),
                hint=_install_hint(package, oldest),
            )


def find_cache_problems(reports: Sequence[ExecutorReport]) -> Iterator[PenstockError]:
    """Yield an error if some executors have no folder for compiled code: Numba then compiles nothing."""
    lacking = [report for report in reports if report["no_cache"] is not None]
    if lacking:
        yield EngineError(
            f"executors of Spark cannot keep compiled code: {lacking[0]['no_cache']}",
            detail=_name_hosts(lacking),
            hint="name a folder that they can write: "
            'SparkOptions(conf={"spark.executorEnv.XDG_CACHE_HOME": "/tmp/penstock-cache"})',
        )


def find_folder_problems(
    reports: Sequence[ExecutorReport], folders: Sequence[SharedFolder], token: str
) -> Iterator[PenstockError]:
    """Yield an error for every folder that some executors do not share with the driver."""
    for number, folder in enumerate(folders):
        for report in reports:
            seen = report["folders"][number]
            problem = seen["problem"]
            if seen["file"] is not None and not _has_token(Path(seen["file"]), token):
                problem = "the driver does not see what is written there"
            if problem is not None:
                yield folder.error(
                    f'in "{folder.path}" is not shared with the executor on {report["host"]}', problem
                )
                break


def _has_token(file: Path, token: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") == token
    except OSError:
        return False


def _name_hosts(reports: Sequence[ExecutorReport]) -> str:
    hosts = sorted({f"{report['host']} (Python {report['python']})" for report in reports})
    return f"on {', '.join(hosts[:3])}" + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _install_hint(package: str, oldest: str) -> str:
    return (
        f'install it for that Python on every executor, pip install "{package}>={oldest}", '
        "or name another with PYSPARK_PYTHON"
    )


# Failures of a job, by Spark's text for them.

_PYTHONS = re.compile(
    r"Python in worker has different version: ([\d.]+\d).*?in driver: ([\d.]+\d)", re.DOTALL
)
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_NO_START = re.compile(r"Error from python worker:\s*\n(.*?)\nPYTHONPATH was:", re.DOTALL)
_PACKAGE = re.compile(
    r"(\w+) >= ([\d.]*\d) must be installed; however, (?:it was not found|your version is (\S+?)\.?(?:\s|$))"
)
_NO_MODULE = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)'?")
_NO_ATTRIBUTE = re.compile(r"Can't get attribute '(\w+)' on <module '([\w.]+)'")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor")


def explain_failure(failure: BaseException) -> PenstockError | None:
    """Return an error of ours if Spark failed because of the Python or the modules of its workers."""
    if not type(failure).__module__.startswith(("pyspark", "py4j")):
        return None
    text = str(failure)
    host = _HOST.search(text)
    error = _explain_start(text) or _explain_import(text)
    if error is not None and host is not None:
        error.detail = f"on {host[1]}" + (f": {error.detail}" if error.detail else "")
    return error


def _explain_start(text: str) -> PenstockError | None:
    """Return the error for a Python that is the wrong one, or cannot be started."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    hint = (
        f"set PYSPARK_PYTHON to a Python {version} that is on every executor, or in the program, "
        'SparkOptions(conf={"spark.pyspark.python": "…"})'
    )
    if pythons := _PYTHONS.search(text):
        return EngineError(
            f"executors of Spark run Python {pythons[1]}, and this program Python {pythons[2]}",
            detail="functions can only be sent between equal versions",
            hint=hint,
        )
    program = _NO_PROGRAM.search(text)
    if program and ("python" in program[1].rpartition("/")[2] or "PythonWorkerFactory" in text):
        return EngineError(f'executors of Spark cannot start Python: there is no "{program[1]}"', hint=hint)
    if start := _NO_START.search(text):
        lines = [line.strip() for line in start[1].splitlines() if line.strip()]
        return EngineError(
            "executors of Spark cannot start Python", detail=lines[-1] if lines else None, hint=hint
        )
    return None


def _explain_import(text: str) -> PenstockError | None:
    """Return the error for what Python cannot import on a worker."""
    if package := _PACKAGE.search(text):
        name, has = package[1].lower(), package[3]
        fact = f"have {name} {has}, and workers need {package[2]}" if has else f'cannot import "{name}"'
        return EngineError(f"executors of Spark {fact}", hint=_install_hint(name, package[2]))
    if attribute := _NO_ATTRIBUTE.search(text):
        return EngineError(
            f'a Python worker of Spark has another module "{attribute[2]}" than the program: '
            f'there is no "{attribute[1]}" in it',
            hint=_send_hint(attribute[2]),
        )
    if module := _NO_MODULE.search(text):
        package_name = module[1].partition(".")[0]
        oldest = NEEDED.get(package_name)
        return EngineError(
            f'a Python worker of Spark cannot import "{module[1]}"',
            detail="functions of the program need it where the workers run" if oldest is None else None,
            hint=_send_hint(module[1]) if oldest is None else _install_hint(package_name, oldest),
        )
    return None


def _send_hint(module: str) -> str:
    """Return how a module of the user's reaches workers: by the file that it is in, if the driver has it."""
    top = module.partition(".")[0]
    with suppress(metadata.PackageNotFoundError):
        return f'install it on every executor, pip install "{top}=={metadata.version(top)}"'
    file = getattr(sys.modules.get(top), "__file__", None)
    name = f"{top}.py" if file is None or Path(file).name != "__init__.py" else f"{top}/"
    return f'send it along: SparkOptions(py_files=("{name}",)), or install it on every executor'
