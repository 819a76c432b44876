"""Executors elsewhere: whether they can run a graph, asked by a tiny job before its first row.

What a cluster most often lacks is the right Python, a package, or a folder that is the same everywhere. Spark
tells none of it well: a task fails four times on some machine, in the middle of a run, with a page of Java.
So every executor is asked (`check_executors`), and its answer is data: what is wrong with its packages and
with the place for compiled code, and of every folder whether a file of the driver's is there and whether the
driver sees one of the executor's.

Where Python does not even start there is no answer, and executors may join later: `explain_failure` knows
the texts of Spark for the same mistakes.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_CACHE = "compiled code"
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


def shared_folders(plan: Plan, state: Path, *, saved: bool) -> list[SharedFolder]:
    """Return the folders of a run that its executors use.

    state  the folder of the checkpoint, or the temporary one in its place
    saved  whether it is a checkpoint
    """
    folders = []
    if any(step.op.stateful or isinstance(step.op, Windows) for step in plan):
        folders.append(SharedFolder(state.absolute(), saved=saved))
    for step in plan.sinks:
        if isinstance(step.op, Sink) and isinstance(step.op.writer, FolderWriter):
            folder = step.op.writer.folder.absolute()
            while not folder.exists():  # the sink creates it when it is opened
                folder = folder.parent
            folders.append(SharedFolder(folder, step.name, step.where))
    return folders


class ExecutorReport(TypedDict):
    """What an executor says of itself.

    problems  what is wrong with a package, the place for compiled code or a shared folder: by the package's
              name, by _CACHE or by the driver's file in the folder
    files     what it wrote beside the driver's files
    """

    host: str
    python: str
    problems: dict[str, str]
    files: dict[str, str]


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
    by_file = {str(folder.path / f".penstock-{token}"): folder for folder in folders}
    try:
        for file, folder in by_file.items():
            try:
                Path(file).write_text(token, encoding="utf-8")
            except OSError as cause:
                fact, detail = f'cannot be written to "{folder.path}" by the driver', describe_cause(cause)
                raise folder.error(fact, detail) from cause
        problems = list(find_problems(_ask_executors(context, list(by_file), token), by_file, token))
    finally:
        # Why by name: a task that failed has reported nothing, and may have written.
        for left in [file for folder in folders for file in folder.path.glob(f".penstock-{token}*")]:
            with suppress(OSError):
                left.unlink()
    if problems:
        first, *more = problems
        if more:
            first.detail = "; ".join([first.detail or "", *(f"also, {other.fact}" for other in more)])
        raise first
    _CHECKED.add(context)


def _ask_executors(context: Any, files: Sequence[str], token: str) -> list[ExecutorReport]:
    """Run one small task on every executor, as well as can be done, and return their reports."""
    n_tasks = _TASKS_PER_CORE * context.defaultParallelism
    before = context.getLocalProperty("spark.job.description")
    context.setJobDescription(JOB)
    try:
        tasks = context.parallelize(range(n_tasks), n_tasks)
        reports: list[ExecutorReport] = tasks.mapPartitions(build_probe(NEEDED, files, token)).collect()
    except Exception as failure:
        raise explain_failure(failure) or EngineError(
            "Spark failed to ask its executors whether they are ready", detail=str(failure)[:500]
        ) from failure
    finally:
        context.setJobDescription(before)
    return reports


def build_probe(
    needed: Mapping[str, str], files: Sequence[str], token: str
) -> Callable[[Iterator[int]], Iterator[ExecutorReport]]:
    """Return what an executor runs to report on itself.

    Invariant: the function uses nothing of this module, so that it is sent by its code: an executor that
    lacks a package could not import this one.
    """
    for_cache = _CACHE

    def probe(numbers: Iterator[int]) -> Iterator[Any]:
        import contextlib
        import importlib
        import importlib.metadata
        import os
        import pathlib
        import re
        import socket
        import sys
        import tempfile
        import uuid

        problems, written = {}, {}
        for package, oldest in needed.items():
            try:
                importlib.import_module(package)
            except Exception as cause:  # a broken package raises anything
                problems[package] = f'cannot import "{package}": {type(cause).__name__}: {cause}'
                continue
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                has = importlib.metadata.version(package)
                numbers_of = [[int(n) for n in re.findall(r"\d+", version)[:2]] for version in (has, oldest)]
                if numbers_of[0] < numbers_of[1]:
                    problems[package] = f"have {package} {has}, and workers need {oldest}"
        # Why there: of code in a zip, as the package is sent, Numba keeps what it compiled nowhere else.
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "numba")
        try:
            cache.expanduser().mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=cache.expanduser()).close()
        except (OSError, RuntimeError) as cause:  # RuntimeError: there is no home
            problems[for_cache] = f"cannot keep compiled code: {type(cause).__name__}: {cause}"
        for name in files:
            path = pathlib.Path(name)
            try:
                if not path.parent.is_dir():
                    problems[name] = "the folder does not exist there"
                elif not path.exists():
                    problems[name] = "a folder of that name is there, but not this one"
                elif path.read_text(encoding="utf-8") != token:
                    problems[name] = "what the driver wrote cannot be read there"
                else:
                    beside = path.with_name(f"{path.name}-{uuid.uuid4().hex[:12]}")
                    beside.write_text(token, encoding="utf-8")
                    written[name] = str(beside)
            except OSError as cause:
                problems[name] = f"{type(cause).__name__}: {cause}"
        yield {
            "host": socket.gethostname(),
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}, {sys.executable}",
            "problems": problems,
            "files": written,
        }

    return probe


def find_problems(
    reports: Sequence[ExecutorReport], folders: Mapping[str, SharedFolder], token: str
) -> Iterator[PenstockError]:
    """Yield an error for everything that some executors lack.

    That is a package, which may also be too old; a folder for compiled code, without which Numba compiles
    nothing; or a folder that is shared with the driver, by the driver's file in it.
    """
    for report in reports:
        for name, file in report["files"].items():
            try:
                seen = Path(file).read_text(encoding="utf-8") == token
            except OSError:
                seen = False
            if not seen:
                report["problems"][name] = "the driver does not see what is written there"
    for subject in (*NEEDED, _CACHE, *folders):
        lacking = [report for report in reports if subject in report["problems"]]
        if not lacking:
            continue
        problem, folder = lacking[0]["problems"][subject], folders.get(subject)
        if folder is not None:
            host = lacking[0]["host"]
            yield folder.error(f'in "{folder.path}" is not shared with the executor on {host}', problem)
            continue
        hint = (
            _install_hint(subject, NEEDED[subject])
            if subject in NEEDED
            else "name a folder that they can write: "
            'SparkOptions(conf={"spark.executorEnv.XDG_CACHE_HOME": "/tmp/penstock-cache"})'
        )
        yield EngineError(f"executors of Spark {problem}", detail=_name_hosts(lacking), hint=hint)


def _name_hosts(reports: Sequence[ExecutorReport]) -> str:
    hosts = sorted({f"{report['host']} (Python {report['python']})" for report in reports})
    return f"on {', '.join(hosts[:3])}" + (f" and {len(hosts) - 3} more" if len(hosts) > 3 else "")


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
    error, host = _explain_text(text), _HOST.search(text)
    if error is not None and host is not None:
        error.detail = f"on {host[1]}" + (f": {error.detail}" if error.detail else "")
    return error


def _explain_text(text: str) -> PenstockError | None:
    """Return the error for a wrong Python, one that cannot be started, or what it cannot import."""
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
