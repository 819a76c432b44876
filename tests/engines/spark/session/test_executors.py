"""Executors that lack something are found before the first row, and each mistake is told with its remedy."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import penstock as ps
from penstock.engines.spark.session.executors import (
    NEEDED,
    ExecutorReport,
    SharedFolder,
    build_probe,
    check_executors,
    explain_failure,
    find_problems,
    shared_folders,
)
from penstock.errors import CheckpointError, ConnectorError, EngineError, PenstockError

TOKEN = "0123"
ROOT = Path(__file__).parents[4]


class Py4JJavaError(Exception):
    """As py4j raises it, by name."""

    __module__ = "py4j.protocol"


def probe(*folders: Path, needed: Mapping[str, str] = {}) -> ExecutorReport:
    """What an executor in this process reports."""
    files = [str(folder / ".token") for folder in folders]
    (report,) = build_probe(needed, files, TOKEN)(iter(()))
    return report


def executor(host: str = "worker-7", **problems: str) -> ExecutorReport:
    return {"host": host, "python": "3.11, /usr/bin/python3", "problems": problems, "files": {}}


def find_errors(*reports: ExecutorReport, folders: Sequence[SharedFolder] = ()) -> list[PenstockError]:
    return list(find_problems(reports, {str(folder.path / ".token"): folder for folder in folders}, TOKEN))


def test_the_packages_that_are_looked_for_are_those_that_the_package_depends_on() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    spark = [line for line in project["optional-dependencies"]["spark"] if line.startswith("pandas")]
    lines = [line for line in project["dependencies"] if not line.startswith(("typer", "rich"))]
    assert dict(re.findall(r"^(\w+)>=([\d.]+)", "\n".join(lines + spark), re.MULTILINE)) == NEEDED


def test_an_executor_reports_what_it_cannot_import_and_what_is_too_old() -> None:
    report = probe(needed={"pyarrow": "21", "numpy": "99.1", "no_such_package": "1"})
    assert report["problems"] == {
        "numpy": f"have numpy {metadata.version('numpy')}, and workers need 99.1",
        "no_such_package": (
            "cannot import \"no_such_package\": ModuleNotFoundError: No module named 'no_such_package'"
        ),
    }


def test_packages_that_are_absent_or_too_old_are_told_with_hosts_and_the_line_that_installs_them() -> None:
    lacking = executor(numba="cannot import \"numba\": ModuleNotFoundError: No module named 'numba'")
    old = executor("worker-8", pyarrow="have pyarrow 14.0.2, and workers need 21")
    first, second = find_errors(lacking, old, executor())
    assert first.fact.startswith("executors of Spark have pyarrow 14.0.2, and workers need 21")
    assert "worker-8" in str(first.detail)
    assert 'pip install "pyarrow>=21"' in str(first.hint)
    assert second.fact.startswith('executors of Spark cannot import "numba": ModuleNotFoundError')
    assert "worker-7 (Python 3.11, /usr/bin/python3)" in str(second.detail)
    assert "PYSPARK_PYTHON" in str(second.hint)


def test_many_hosts_are_counted_and_three_are_named() -> None:
    (error,) = find_errors(*(executor(f"worker-{n}", numba="x") for n in range(5)))
    assert str(error.detail).endswith("and 2 more")


def test_an_executor_without_a_folder_for_compiled_code_is_told_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert probe()["problems"] == {}
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (error,) = find_errors(executor(), probe())
    assert error.fact.startswith("executors of Spark cannot keep compiled code: NotADirectoryError")
    assert "spark.executorEnv.XDG_CACHE_HOME" in str(error.hint)


class InProcessContext:
    """A Spark context whose executors are this process, or fail."""

    master, defaultParallelism = "spark://host:7077", 2

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure, self._description = failure, "the user's"
        self.n_tasks, self.descriptions = 0, list[str]()

    def getLocalProperty(self, name: str) -> str:
        assert name == "spark.job.description"
        return self._description

    def setJobDescription(self, text: str) -> None:
        self._description = text

    def parallelize(self, numbers: range, n_tasks: int) -> InProcessContext:
        self.n_tasks = n_tasks
        return self

    def mapPartitions(self, function: Any) -> InProcessContext:
        self._function = function
        return self

    def collect(self) -> list[Any]:
        self.descriptions.append(self._description)
        if self._failure is not None:
            raise self._failure
        return [report for _ in range(self.n_tasks) for report in self._function(iter(()))]


def check(context: InProcessContext, *folders: SharedFolder) -> None:
    check_executors(SimpleNamespace(sparkContext=context), folders)


def test_every_executor_is_asked_twice_over_and_nothing_is_left_behind(tmp_path: Path) -> None:
    context = InProcessContext()
    check(context, SharedFolder(tmp_path))
    assert context.n_tasks == 4
    assert context.descriptions == ["penstock: are the executors ready?"]
    assert context.getLocalProperty("spark.job.description") == "the user's"
    assert list(tmp_path.iterdir()) == []
    check(context)
    assert len(context.descriptions) == 1  # known to be ready, and there is no folder to ask for


def test_the_first_problem_is_raised_and_the_others_are_named_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(EngineError, match='executors of Spark cannot import "xxhash"') as caught:
        check(InProcessContext(), SharedFolder(tmp_path))
    assert "also, executors of Spark cannot keep compiled code" in str(caught.value.detail)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_the_driver_itself_cannot_write_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r'state cannot be written to ".*" by the driver') as caught:
        check(InProcessContext(), SharedFolder(tmp_path / "absent"))
    assert "FileNotFoundError" in str(caught.value.detail)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('Cannot run program "python3"', "executors of Spark cannot start Python"),
        ("java.lang.OutOfMemoryError: Java heap space", "Spark failed to ask its executors"),
    ],
)
def test_executors_that_do_not_answer_are_told_of_in_a_line(tmp_path: Path, text: str, fact: str) -> None:
    with pytest.raises(EngineError, match=fact):
        check(InProcessContext(Py4JJavaError(text)), SharedFolder(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_both_see_is_shared(tmp_path: Path) -> None:
    (tmp_path / ".token").write_text(TOKEN)
    report = probe(tmp_path)
    assert Path(report["files"][str(tmp_path / ".token")]).read_text() == TOKEN
    assert find_errors(report, folders=[SharedFolder(tmp_path)]) == []


def test_a_folder_that_an_executor_does_not_share_is_told_by_its_use(tmp_path: Path) -> None:
    for name, text in (("other", None), ("stale", "another token"), ("unseen", TOKEN)):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / ".token").write_text(text)
    folders = [
        SharedFolder(tmp_path / "absent"),
        SharedFolder(tmp_path / "other", saved=False),
        SharedFolder(tmp_path / "stale", step="out"),
        SharedFolder(tmp_path / "unseen"),
    ]
    report = probe(*(folder.path for folder in folders))
    Path(report["files"][str(tmp_path / "unseen" / ".token")]).unlink()
    absent, other, stale, unseen = find_errors(report, folders=folders)
    assert isinstance(absent, CheckpointError)
    assert absent.fact.startswith(f'state in "{tmp_path}/absent" is not shared with the executor on ')
    assert absent.detail == "the folder does not exist there"
    assert str(absent.hint).endswith("such as a mounted one")
    assert other.detail == "a folder of that name is there, but not this one"
    assert str(other.hint).endswith("as checkpoint=")
    assert isinstance(stale, ConnectorError)
    assert (stale.step, stale.detail) == ("out", "what the driver wrote cannot be read there")
    assert unseen.detail == "the driver does not see what is written there"


def test_what_keeps_an_executor_from_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / ".token").mkdir()
    (error,) = find_errors(probe(tmp_path), folders=[SharedFolder(tmp_path)])
    assert str(error.detail).startswith("IsADirectoryError")


def test_state_and_output_are_the_folders_of_a_run(tmp_path: Path) -> None:
    graph = ps.PipeGraph("folders")
    reader = ps.read.rows([{"k": 1, "t": 1}], schema={"k": int, "t": int})
    rows = graph.source(reader, time="t", time_unit="s", delay="0 s")
    rows.sink(ps.write.jsonl(tmp_path / "new" / "out"), name="out")
    rows.sink(ps.write.memory(), name="kept")
    (output,) = shared_folders(graph.plan(), tmp_path, saved=True)
    assert (output.path, output.step) == (tmp_path, "out")
    windows = rows.key_by("k").window(ps.tumbling("1 s")).aggregate(n=ps.count())
    windows.sink(ps.write.memory(), name="counts")
    state, _ = shared_folders(graph.plan(), tmp_path / "state", saved=False)
    assert state == SharedFolder(tmp_path / "state", saved=False)


@pytest.mark.parametrize(
    ("text", "fact", "hint"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11,"
            " PySpark cannot run with different minor versions.",
            "executors of Spark run Python 3.9, and this program Python 3.11",
            "PYSPARK_PYTHON",
        ),
        (
            'java.io.IOException: Cannot run program "python3.11": error=2, No such file or directory',
            'executors of Spark cannot start Python: there is no "python3.11"',
            "PYSPARK_PYTHON",
        ),
        (
            'Cannot run program "/opt/py": Exec failed\n at org.apache.spark.PythonWorkerFactory.x',
            'executors of Spark cannot start Python: there is no "/opt/py"',
            "PYSPARK_PYTHON",
        ),
        (
            "Error from python worker:\n  /usr/bin/python3: No module named pyspark\nPYTHONPATH was:\n  /x",
            "executors of Spark cannot start Python",
            "PYSPARK_PYTHON",
        ),
        (
            "[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.",
            'executors of Spark cannot import "pyarrow"',
            'pip install "pyarrow>=18.0.0"',
        ),
        (
            "Pandas >= 2.2.0 must be installed; however, your version is 1.5.3.",
            "executors of Spark have pandas 1.5.3, and workers need 2.2.0",
            'pip install "pandas>=2.2.0"',
        ),
        (
            "ModuleNotFoundError: No module named 'numba.core'",
            'a Python worker of Spark cannot import "numba.core"',
            'pip install "numba>=0.61"',
        ),
        (
            "ModuleNotFoundError: No module named 'mine.x'",
            'a Python worker of Spark cannot import "mine.x"',
            'SparkOptions(py_files=("mine.py",))',
        ),
        (
            "ModuleNotFoundError: No module named 'tests.support'",
            'a Python worker of Spark cannot import "tests.support"',
            'SparkOptions(py_files=("tests/",))',
        ),
        (
            "ModuleNotFoundError: No module named 'hypothesis'",
            'a Python worker of Spark cannot import "hypothesis"',
            'pip install "hypothesis==',
        ),
        (
            "AttributeError: Can't get attribute 'clean' on <module 'mine' from '/old/mine.py'>",
            'a Python worker of Spark has another module "mine" than the program: there is no "clean" in it',
            'SparkOptions(py_files=("mine.py",))',
        ),
    ],
)
def test_spark_s_own_texts_for_these_mistakes_are_known(text: str, fact: str, hint: str) -> None:
    lost = (
        f"Job aborted: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.5 executor 1): {text}\n\tat x.y(Z.scala:1)"
    )
    error = explain_failure(Py4JJavaError(lost))
    assert isinstance(error, EngineError)
    assert error.fact == fact
    assert hint in str(error.hint)
    assert str(error.detail).startswith("on 10.0.0.5")


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("ModuleNotFoundError: No module named 'mine'"),
        Py4JJavaError("java.lang.OutOfMemoryError: Java heap space"),
        Py4JJavaError('Cannot run program "chmod": error=2'),
    ],
)
def test_other_failures_are_not_explained_away(failure: Exception) -> None:
    assert explain_failure(failure) is None


@pytest.mark.slow
def test_a_module_that_workers_lack_is_recognised_in_what_spark_raises(spark: Any) -> None:
    def lack(batches: Iterator[Any]) -> Iterator[Any]:
        import no_such_module_of_mine  # type: ignore[import-not-found]  # the mistake under test

        yield no_such_module_of_mine

    with pytest.raises(Exception, match="no_such_module_of_mine") as caught:
        spark.range(1).mapInArrow(lack, "id long").collect()
    error = explain_failure(caught.value)
    assert error is not None
    assert 'py_files=("no_such_module_of_mine.py",)' in str(error.hint)


@pytest.mark.slow
def test_on_a_local_master_nothing_is_asked(spark: Any, tmp_path: Path) -> None:
    check_executors(spark, [SharedFolder(tmp_path / "absent")])
