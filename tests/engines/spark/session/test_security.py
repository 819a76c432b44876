"""What a program on Spark exposes: nothing secret, and nothing that takes commands from others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.spark.session.settings import core_settings
from penstock.errors import EngineError

CANARY = "canary-8f3a"
PROGRAM = """
import glob, io, json, logging, os, socket, sys, tempfile
import penstock as ps
from pyspark import SparkContext

log = io.StringIO()
logging.basicConfig(level=logging.DEBUG, stream=log)
conf = {{
    "spark.hadoop.db.pwd": "{canary}-1",
    "spark.hadoop.fs.s3a.secret.key": "{canary}-2",
    "spark.hadoop.fs.azure.account.key.x": "{canary}-3",
    "spark.hadoop.some.api-token": "{canary}-4",
}}
options = ps.SparkOptions(conf=conf)
graph = ps.PipeGraph("exposed")
reader = ps.read.rows([{{"t": 1, "v": 2}}])
rows = graph.source(reader, time="t", time_unit="s", delay="1 s", name="rows")
counts = rows.window(ps.tumbling("10 s"), name="w").aggregate(n=ps.count())
counts.sink(ps.write.jsonl("{folder}/out"), name="out")
events = []
graph.run("spark", checkpoint="{folder}/checkpoint", options=options, events=events.append)
told = [repr(options), repr(events), graph.explain("spark"), log.getvalue()]
for folder in glob.glob(os.path.join(tempfile.gettempdir(), "penstock-spark-*")):
    told += [open(file, errors="replace").read() for file in glob.glob(folder + "/*")]
lines = {{}}
for file in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        lines[file] = open(file, "rb").read().decode(errors="replace")
    except OSError:
        continue
server = SparkContext._gateway._callback_server
stranger = socket.create_connection(("127.0.0.1", server.get_listening_port()))
stranger.settimeout(20)
stranger.sendall(b"c\\nt\\ne\\n")
try:
    answer = stranger.recv(100).decode()
except ConnectionResetError:
    answer = ""
print(json.dumps({{
    "told": sum("{canary}" in text for text in told),
    "lines": [file for file, line in lines.items() if "{canary}-" in line and str(os.getpid()) not in file],
    "answer": answer,
    "authenticate": SparkContext._active_spark_context.getConf().get("spark.authenticate"),
    "sockets": len(glob.glob(os.path.join(tempfile.gettempdir(), "penstock-sockets-*", ".*.sock"))),
}}))
"""


@pytest.mark.slow
def test_secrets_are_told_nowhere_and_strangers_get_no_answer(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(canary=CANARY, folder=tmp_path))
    environment = {"TMPDIR": str(tmp_path / "tmp"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (facts["told"], facts["lines"], facts["answer"]) == (0, [], "")
    assert facts["authenticate"] == "true"
    assert CANARY not in done.stdout + done.stderr
    assert list((tmp_path / "tmp").rglob("*.sock")) == []


@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
def test_a_secret_among_the_options_of_java_is_refused(key: str) -> None:
    with pytest.raises(EngineError, match="which would stand on a command line") as refused:
        core_settings("local[*]", {key: f"-Xss4m -Djavax.net.ssl.keyStorePassword={CANARY}"})
    assert CANARY not in str(refused.value)
    assert core_settings("local[*]", {key: "-Xss4m -Da=b"})


def test_the_parts_of_an_embedded_spark_authenticate_each_other() -> None:
    assert core_settings("local[*,4]", {})["spark.authenticate"] == "true"
    assert "spark.authenticate" not in core_settings("spark://host:7077", {})
