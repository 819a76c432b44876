"""Distributed for real, on a master and two workers: cases of the suite, an executor that is lost, programs
that are submitted, and executors that are refused before the first row."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from penstock.engines.spark.session.java import find_java
from tests.conftest import QUICK_JAVA
from tests.support.spark_cluster import cluster

# One process runs them all, on one cluster.
pytestmark = pytest.mark.xdist_group("cluster")

ROOT = Path(__file__).parents[3]
SUITE = ("tests/conformance", "tests/support/spark_cluster_program.py")

SUBMITTED = """
import json
import sys
from pathlib import Path

import penstock as ps
from prices import to_cents  # came by --py-files

sys.path.insert(0, str(Path("driver").absolute()))
from names import shout  # goes by py_files=

graph = ps.PipeGraph("submitted")
rows = [{"page": f"p{n % 3}", "price": float(n), "t": n} for n in range(90)]
batches = [rows[n : n + 30] for n in range(0, 90, 30)]
source = ps.read.batches(batches, schema={"page": str, "price": float, "t": int})
sums = (
    graph.source(source, time="t", time_unit="s", delay="0 s", name="prices")
    .map(lambda row: {"page": shout(row.page), "cents": to_cents(row.price), "t": row.t},
         schema={"page": str, "cents": int, "t": int})
    .key_by("page")
    .window(ps.tumbling("30 s"), name="sums")
    .aggregate(cents=ps.sum("cents"))
)
sums.sink(ps.write.parquet("out"), name="out")
graph.run("spark", checkpoint="checkpoint", options=ps.SparkOptions(py_files="driver/names.py"), drain=True)

from pyspark.sql import SparkSession

context = SparkSession.active().sparkContext
wanted = ("spark.app.name", "spark.ui.enabled", "spark.speculation", "spark.dynamicAllocation.enabled")
Path("seen.json").write_text(json.dumps({
    "master": context.master,
    "conf": {key: context.getConf().get(key) for key in wanted},
}))
"""

REFUSED = """
import json
import sys
from pathlib import Path

import penstock as ps
from pyspark.sql import SparkSession

master, bare, other = sys.argv[1:]
errors = {}


def read():
    errors["rows were read"] = True
    yield {"k": 1, "t": 1}


def run(case, conf, checkpoint):
    graph = ps.PipeGraph(case)
    source = ps.read.iterable(read, schema={"k": int, "t": int})
    counts = (
        graph.source(source, time="t", time_unit="s", delay="0 s", name="rows")
        .key_by("k")
        .window(ps.tumbling("1 s"), name="counts")
        .aggregate(n=ps.count())
    )
    counts.sink(ps.write.memory(), name="kept")
    try:
        options = ps.SparkOptions(conf=conf)
        graph.run("spark", master=master, checkpoint=checkpoint, options=options, drain=True)
    except ps.PenstockError as error:
        errors[case] = [type(error).__name__, error.fact, error.detail, error.hint]
    errors[f"name of {case}"] = SparkSession.active().sparkContext.appName


run("no package", {"spark.pyspark.python": bare}, "checkpoint")
SparkSession.active().stop()
run("other version", {"spark.pyspark.python": other}, "checkpoint")
SparkSession.active().stop()
run("no python", {"spark.pyspark.python": "/absent/python3"}, "checkpoint")
SparkSession.active().stop()
run("no folder", {}, "/proc/self/cwd/checkpoint")  # another folder in every process
errors["files"] = sorted(path.name for path in Path("checkpoint").rglob("*"))
print(json.dumps(errors))
"""

OTHER_VERSION = """
import collections, sys
sys.version_info = collections.namedtuple("V", "major minor micro releaselevel serial")(3, 99, 0, "final", 0)
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def environment() -> dict[str, str]:
    return {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}


def write_python(file: Path, setup: str) -> str:
    """Write a Python in which something is wrong: it runs some code first."""
    folder = file.parent / f"{file.name}-setup"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(setup)
    file.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    file.chmod(0o700)
    return str(file)


def run(command: list[Any], folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def count_passed(master: str, *options: str) -> int:
    """Run cases of the conformance suite on a cluster; return how many passed, when none failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(
        [*command, "--engines=spark", f"--master={master}", *SUITE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.split(" passed")[0].split()[-1])


@pytest.mark.slow
def test_cases_of_the_conformance_suite_and_the_loss_of_an_executor_pass_on_a_cluster(master: str) -> None:
    assert count_passed(master, "-m", "everywhere") >= 15


@pytest.mark.nightly
def test_the_whole_conformance_suite_passes_on_a_cluster(master: str) -> None:
    assert count_passed(master) >= 300


@pytest.mark.nightly  # test_py_files.py sends modules without a cluster
def test_a_submitted_program_with_py_files_writes_its_files_and_keeps_its_settings(
    master: str, tmp_path: Path
) -> None:
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "names.py").write_text("def shout(name):\n    return name.upper()\n")
    (tmp_path / "sent").mkdir()
    (tmp_path / "sent" / "prices.py").write_text("def to_cents(price):\n    return round(price * 100)\n")
    (tmp_path / "program.py").write_text(SUBMITTED)
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.speculation": "true",
        "spark.speculation.interval": "10ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "1ms",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.defaultJavaOptions": QUICK_JAVA,
        "spark.executor.defaultJavaOptions": QUICK_JAVA,
    }
    settings = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    run([submit, "--master", master, "--py-files", "sent/prices.py", *settings, "program.py"], tmp_path)
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {(row["page"], row["window_start"]): row["cents"] for row in rows} == {
        (f"P{page}", start): sum(100 * n for n in range(start, start + 30) if n % 3 == page)
        for page in range(3)
        for start in (0, 30, 60)
    }
    assert json.loads((tmp_path / "seen.json").read_text()) == {
        "master": master,
        "conf": {
            "spark.app.name": "submitted",
            "spark.ui.enabled": "false",
            "spark.speculation": "true",
            "spark.dynamicAllocation.enabled": "true",
        },
    }


@pytest.mark.nightly  # four programs of Spark one after the other; test_executors.py has every message
@pytest.mark.skipif(sys.platform != "linux", reason="names a folder of /proc")
def test_executors_that_cannot_run_a_graph_are_refused_before_the_first_row(
    master: str, tmp_path: Path
) -> None:
    hide = "import sys\nfor name in ('pyarrow', 'numba'):\n    sys.modules[name] = None\n"
    bare = write_python(tmp_path / "bare", hide)
    other = write_python(tmp_path / "other", OTHER_VERSION)
    (tmp_path / "program.py").write_text(REFUSED)
    done = run([sys.executable, "program.py", master, bare, other], tmp_path)
    assert done.stderr == ""
    errors = json.loads(done.stdout)
    assert "rows were read" not in errors
    assert errors["name of no package"] == "no package"
    kind, fact, detail, hint = errors["no package"]
    assert kind == "EngineError"
    assert fact.startswith('executors of Spark cannot import "pyarrow": ModuleNotFoundError')
    assert 'executors of Spark cannot import "numba"' in detail
    assert 'pip install "pyarrow>=21"' in hint
    kind, fact, _, hint = errors["other version"]
    assert fact.startswith("executors of Spark run Python 3.99, and this program Python 3.")
    assert "set PYSPARK_PYTHON" in hint
    kind, fact, _, hint = errors["no python"]
    assert fact == 'executors of Spark cannot start Python: there is no "/absent/python3"'
    assert "set PYSPARK_PYTHON" in hint
    kind, fact, detail, hint = errors["no folder"]
    assert kind == "CheckpointError"
    assert fact.startswith('state in "/proc/self/cwd/checkpoint" is not shared with the executor on ')
    assert detail == "the folder does not exist there"
    assert "such as a mounted one" in hint
    assert not any("penstock-" in name for name in errors["files"])
