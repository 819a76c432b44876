"""Ctrl-C for real: a process gets the signal, stops its run, and has nothing left of it."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import penstock as ps

PROGRAM = """
import threading
import penstock as ps

def endless():
    n = 0
    while True:
        yield {"v": n}
        n += 1

def said(row):
    if row.v == 50:
        print("flows", flush=True)
    return row.v % 1000 == 1

graph = ps.PipeGraph("endless")
rows = graph.source(ps.read.generator(endless, schema={"v": "int64"}, batch=10, bounded=False))
rows.filter(said).sink(ps.write.memory())
try:
    graph.run("ENGINE")
except KeyboardInterrupt:
    left = [each.name for each in threading.enumerate() if each.name.startswith("penstock")]
    print("interrupted", left, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "reference"])
def test_ctrl_c_stops_a_run_and_leaves_no_thread(name: str) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("ENGINE", name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == "flows\n"
        run.send_signal(signal.SIGINT)
        text, complaints = run.communicate(timeout=60)
    finally:
        run.kill()
    assert (text, complaints, run.returncode) == ("interrupted []\n", "", 0)


def test_ctrl_c_while_a_run_is_being_started_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Thread.start

    def interrupt(thread: threading.Thread) -> None:
        started(thread)
        if thread.name == "penstock-local":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupt)
    graph = ps.PipeGraph("endless")
    rows = graph.source(ps.read.generator(_endless, schema={"v": "int64"}, batch=10, bounded=False))
    rows.filter(lambda row: row.v % 1000 == 1).sink(ps.write.memory())
    with pytest.raises(KeyboardInterrupt):
        graph.run("local")
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")] == []


def _endless() -> Iterator[dict[str, int]]:
    yield from ({"v": n} for n in itertools.count())
