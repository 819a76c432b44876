"""Signals for real: a process gets SIGTERM or SIGINT, stops its run cleanly, and ends with the right code."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock as ps
from penstock.graph.run import handle_signals

ENGINES = ["reference", "local", "spark"]

PROGRAM = """
import pathlib
import sys
import time
import penstock as ps

def numbers():
    n = 0
    while True:
        yield {"n": n}
        n += 1
        time.sleep(0.001)
        if n == 50:
            print("flows", flush=True)

graph = ps.PipeGraph("numbers")
rows = graph.source(ps.read.generator(numbers, schema={"n": "int64"}, batch=10, bounded=False), name="in")
rows.sink(ps.write.jsonl("out"), name="out")
try:
    graph.run("ENGINE")
finally:
    print("cleaned up", flush=True)
"""

STUBBORN = """
import time
import penstock as ps

def keep(row):
    print("flows", flush=True)
    time.sleep(3600)
    return True

graph = ps.PipeGraph("stubborn")
graph.source(ps.read.rows([{"n": 1}])).filter(keep).sink(ps.write.memory())
graph.run("ENGINE")
"""

LEFT_BEHIND = """
import atexit
import threading
import time
import penstock as ps
from pathlib import Path

def hold(row):
    Path("flows").touch()
    time.sleep(60)
    return True

def list_threads():
    names = {thread.name for thread in threading.enumerate()}
    print("left behind" if "penstock-micro-batches" in names else "none", flush=True)

atexit.register(list_threads)
graph = ps.PipeGraph("held")
graph.source(ps.read.rows([{"n": 1}])).filter(hold).sink(ps.write.memory())
run = graph.start("spark")
while not Path("flows").exists():
    time.sleep(0.01)
run.stop()
print(run.wait().outcome, flush=True)
"""

OWN = """
import signal
import time
import penstock as ps

signal.signal(signal.SIGTERM, lambda number, frame: print("my own", flush=True))

def numbers():
    yield {"n": 1}
    print("flows", flush=True)
    time.sleep(0.5)
    yield {"n": 2}

graph = ps.PipeGraph("own")
out = ps.write.memory()
graph.source(ps.read.generator(numbers, schema={"n": "int64"}, batch=1)).sink(out)
graph.run("ENGINE")
print(len(out.rows()), flush=True)
"""


@contextmanager
def program(text: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program in a process of its own, once its rows flow."""
    with subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "flows\n"
            yield process
        finally:
            process.kill()


def read_numbers(folder: Path) -> list[int]:
    """The numbers in an output folder, by file."""
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs_on", "number", "code"),
    [(name, signal.SIGTERM, 143) for name in ENGINES]
    + [(name, signal.SIGINT, -signal.SIGINT) for name in ENGINES[:-1]]
    + [pytest.param("spark", signal.SIGINT, -signal.SIGINT, marks=pytest.mark.nightly)],
)
def test_a_signal_stops_a_run_cleanly_and_the_exit_code_names_it(
    tmp_path: Path, runs_on: str, number: signal.Signals, code: int
) -> None:
    with program(PROGRAM.replace("ENGINE", runs_on), tmp_path) as process:
        while process.poll() is None and not list((tmp_path / "out").glob("part-*")):
            continue  # rows are read ahead of the first round
        process.send_signal(number)
        text, complaints = process.communicate(timeout=120)
    assert (process.returncode, text) == (code, "cleaned up\n")
    assert "given up" not in complaints
    written = read_numbers(tmp_path / "out")
    assert len(written) >= 10
    assert sorted(written) == list(range(len(written))), "all that was read is there, and once"
    assert list((tmp_path / "out" / "_penstock" / "staged").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("runs_on", ["reference", "local"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_second_signal_ends_a_run_that_does_not_stop(
    tmp_path: Path, runs_on: str, number: signal.Signals, code: int
) -> None:
    """The function sleeps for an hour, and the grace period is made as long: only the second signal helps."""
    text = (
        "from penstock.engines.background_run import BackgroundRun\n"
        "BackgroundRun.grace_seconds = 3600\n" + STUBBORN.replace("ENGINE", runs_on)
    )
    with program(text, tmp_path) as process:
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(number)
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == code
    assert 'run of "stubborn" has not stopped yet: its work is given up' in complaints


@pytest.mark.slow
def test_a_program_ends_after_the_thread_that_a_stopped_run_on_spark_has_left_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LEFT_BEHIND]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (process.returncode, process.stdout) == (0, "stopped\nnone\n"), process.stderr


@pytest.mark.slow
@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_handlers_of_the_program_are_left_alone(tmp_path: Path, runs_on: str) -> None:
    with program(OWN.replace("ENGINE", runs_on), tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        text, complaints = process.communicate(timeout=60)
    assert (process.returncode, text, complaints) == (0, "my own\n2\n", "")


handlers: list[object] = []


def build_graph(number: signal.Signals = signal.SIGTERM) -> ps.PipeGraph:
    """A graph whose function notes who handles a signal while it runs."""

    def note_handler(row: ps.Row) -> bool:
        handlers.append(signal.getsignal(number))
        return True

    graph = ps.PipeGraph("small", engine="local")
    graph.source(ps.read.rows([{"n": 1}])).filter(note_handler).sink(ps.write.memory())
    return graph


def test_while_a_run_has_the_main_thread_sigterm_has_a_handler_and_afterwards_none() -> None:
    handlers.clear()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    build_graph().run()
    assert len(handlers) == 1
    assert handlers[0] is not signal.SIG_DFL
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_a_run_in_another_thread_leaves_the_handlers_alone() -> None:
    handlers.clear()
    thread = threading.Thread(target=build_graph().run)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]


def test_a_run_that_is_started_and_not_waited_for_leaves_the_handlers_alone() -> None:
    handlers.clear()
    build_graph().start().wait()
    assert handlers == [signal.SIG_DFL]


def test_a_handler_that_the_program_sets_meanwhile_stays() -> None:
    def own(number: int, frame: object) -> None:
        raise AssertionError("nobody sends a signal")

    try:
        with handle_signals():
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def test_the_handler_that_spark_sets_for_sigint_is_replaced_for_the_run_and_put_back() -> None:
    def cancel_jobs(number: int, frame: object) -> None:
        raise AssertionError("nobody sends a signal")

    cancel_jobs.__module__ = "pyspark.core.context"
    before = signal.signal(signal.SIGINT, cancel_jobs)
    try:
        handlers.clear()
        build_graph(signal.SIGINT).run()
        assert handlers not in ([cancel_jobs], [signal.default_int_handler])
        assert signal.getsignal(signal.SIGINT) is cancel_jobs
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_comes_while_a_run_is_being_started_stops_it_once_it_has() -> None:
    graph = ps.PipeGraph("endless", engine="local")
    numbers = ps.read.generator(lambda: itertools.repeat({"n": 1}), schema={"n": int}, bounded=False)
    graph.source(numbers).sink(ps.write.callback(lambda rows: None))
    with pytest.raises(SystemExit) as ended, handle_signals() as wait:  # noqa: PT012
        signal.raise_signal(signal.SIGTERM)
        run = graph.start()
        wait(run)
    assert (ended.value.code, run.status().state) == (143, "stopped")


def test_a_second_signal_while_a_run_is_being_started_does_not_wait_for_that() -> None:
    with pytest.raises(KeyboardInterrupt), handle_signals():  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_comes_too_late_for_the_run_goes_to_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), handle_signals() as wait:  # noqa: PT012
        wait(build_graph(signal.SIGTERM).start())
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_a_run_that_is_stopped_while_it_clears_its_output_ends_before_that_is_done(
    tmp_path: Path, runs_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> ps.PipeGraph:
        graph = ps.PipeGraph("clear")
        rows = graph.source(ps.read.rows([{"n": n} for n in range(20)], batch=1))
        rows.sink(ps.write.jsonl(tmp_path / "out", overwrite=True), name="out")
        return graph

    build().run(runs_on)
    remove, begun, go_on = Path.unlink, threading.Event(), threading.Event()
    removed: list[Path] = []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("part-"):
            removed.append(path)
            begun.set()
            go_on.wait(30)
        remove(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    run = build().start(
        runs_on, checkpoint=str(tmp_path / "state") if runs_on == "local" else None, drain=True
    )
    assert begun.wait(30)
    run.stop()
    go_on.set()
    result = run.wait(30)
    assert (result.outcome, result.batches) == ("stopped", 0)
    assert len(removed) == 1, "one file is gone, and the other nineteen are left for the next run"
    monkeypatch.undo()
    again = build().run(
        runs_on, checkpoint=str(tmp_path / "state") if runs_on == "local" else None, drain=True
    )
    assert again.outcome == "drained"
    assert read_numbers(tmp_path / "out") == list(range(20))
