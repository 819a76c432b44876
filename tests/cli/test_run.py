"""`penstock run` and `penstock explain`: results, accounts, and how runs end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import penstock

PROGRAM = """
import penstock as ps
from penstock import col

graph = ps.PipeGraph("small")
rows = [{"a": 1}, {"a": 2}, {"a": 3}]
small = graph.source(ps.read.rows(rows), name="numbers").filter(col("a") < 3, name="below")
small.sink(ps.write.memory(), name="end")
"""

FAILING = """
import penstock as ps

def broken(row: ps.Row) -> dict[str, object]:
    raise ValueError("no such luck")

graph = ps.PipeGraph("failing")
graph.source(ps.read.rows([{"a": 1}])).map(broken, schema={"a": int}, name="break").sink(ps.write.memory())
"""

ENDLESS = """
import penstock as ps

def numbers():
    print("begun", flush=True)
    while True:
        yield [{"a": 1}]

graph = ps.PipeGraph("endless")
graph.source(ps.read.generator(numbers, schema={"a": int}, bounded=False)).sink(
    ps.write.callback(lambda rows: None)
)
"""


def write(folder: Path, text: str) -> str:
    file = folder / "program.py"
    file.write_text(text)
    return str(file)


def test_a_run_tells_what_became_of_the_rows_of_every_step(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, PROGRAM), "--engine", "reference")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["graph", '"small"', "on", "engine", "reference:", "drained", "after", "1", "batch"],
        ["step", "rows", "in", "rows", "out", "filtered"],
        ["numbers", "3", "3", "0"],
        ["below", "3", "2", "1"],
        ["end", "2", "2", "0"],
    ]


def test_a_run_gives_json_to_scripts(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, PROGRAM), "--engine", "reference", "--json")
    fields = json.loads(done.out)
    assert (fields["graph"], fields["engine"], fields["outcome"]) == ("small", "reference", "drained")
    assert fields["rows_out"] == {"end": 2}
    assert fields["accounts"]["below"]["filtered"] == 1


def test_in_process_the_json_has_latency_and_where_the_time_went(tmp_path: Path) -> None:
    fields = json.loads(penstock("run", write(tmp_path, PROGRAM), "--engine", "local", "--json").out)
    assert fields["latency"]["end"]["rows"] == 2
    assert fields["latency"]["end"]["p50_us"] <= fields["latency"]["end"]["max_us"]
    assert set(fields["user_us"]) == set(fields["system_us"]) == {"numbers", "below", "end"}


def test_until_stops_after_so_many_rounds(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, PROGRAM), "--engine", "reference", "--until", "0", "--json")
    assert (json.loads(done.out)["outcome"], json.loads(done.out)["batches"]) == ("stopped", 0)


def test_seconds_stop_a_program_that_never_ends_and_close_its_windows(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, ENDLESS), "--engine", "local", "--seconds", "0.05", "--json")
    fields = json.loads(done.out)
    assert (done.code, fields["outcome"]) == (0, "drained")
    assert fields["accounts"]["source"]["rows_in"] == fields["rows_out"]["sink"] > 0


def test_a_failing_function_ends_with_code_1_and_names_step_and_function(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, FAILING), "--engine", "reference")
    assert (done.code, done.err.startswith("FunctionError: ")) == (1, True)
    for part in ('step "break"', "broken", "no such luck"):
        assert part in done.err
    assert "Traceback" not in done.err


def test_an_unknown_engine_ends_with_code_2_and_lists_the_known_ones(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, PROGRAM), "--engine", "refrence")
    assert done.code == 2
    assert done.err.splitlines() == [
        'EngineError: there is no engine "refrence"',
        "  detail: available: reference, local, spark",
        '  hint:   use engine="reference"',
    ]


def test_what_an_engine_cannot_do_ends_with_code_2(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, PROGRAM), "--engine", "reference", "--master", "spark://host:7077")
    assert (done.code, done.err.startswith("NotSupported: ")) == (2, True)


def test_explain_prints_what_the_library_says_of_the_graph(tmp_path: Path) -> None:
    done = penstock("explain", write(tmp_path, PROGRAM), "--engine", "reference")
    assert (done.code, done.out.splitlines()[0]) == (0, "small: 3 steps, 1 source, 1 sink")
    assert "plain Python, one row at a time" in done.out


def test_explain_gives_json_to_scripts(tmp_path: Path) -> None:
    fields = json.loads(penstock("explain", write(tmp_path, PROGRAM), "--json").out)
    assert [step["name"] for step in fields["steps"]] == ["numbers", "below", "end"]


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from penstock.cli.main import main; main()", *words]


SIGNALS = [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "terminated\n")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "note"), SIGNALS)
def test_a_signal_ends_a_run_with_its_code_and_no_traceback(
    tmp_path: Path, number: signal.Signals, code: int, note: str
) -> None:
    words = command("run", write(tmp_path, ENDLESS), "--engine", "reference")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, note)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "note"), SIGNALS)
def test_a_run_that_a_signal_has_stopped_gives_its_accounts_as_json(
    tmp_path: Path, number: signal.Signals, code: int, note: str
) -> None:
    words = command("run", write(tmp_path, ENDLESS), "--engine", "local", "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    fields = json.loads(out)
    assert (process.returncode, err, fields["outcome"]) == (code, note, "stopped")
    assert fields["accounts"]["source"]["rows_in"] == fields["rows_out"]["sink"]


def test_a_failed_run_gives_json_with_its_error(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, FAILING), "--engine", "reference", "--json")
    fields = json.loads(done.out)
    assert (done.code, fields["graph"], fields["outcome"]) == (1, "failing", "failed")
    error = fields["error"]
    assert (error["type"], error["step"]) == ("FunctionError", "break")
    assert "function broken failed on a row" in error["fact"]
    assert "no such luck" in error["detail"]
    assert error["where"].endswith("program.py:4")
    assert fields["accounts"]["source"]["rows_in"] == 1
    assert done.err.startswith("FunctionError: ")


@pytest.mark.parametrize("reason", ["Zürich", "\ud800"])
def test_an_error_that_the_terminal_cannot_show_is_in_the_json(tmp_path: Path, reason: str) -> None:
    file = write(tmp_path, FAILING.replace('"no such luck"', ascii(reason)))
    done = subprocess.run(
        command("run", file, "--engine", "reference", "--json"),
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (done.returncode, done.stdout.isascii()) == (1, True)
    assert f"ValueError: {reason}" in json.loads(done.stdout)["error"]["detail"]
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("runs_on", ["reference", "local"])
@pytest.mark.parametrize(("how", "code"), [("SystemExit(143)", 143), ("KeyboardInterrupt()", 130)])
def test_what_a_function_raises_is_not_taken_for_a_signal(
    tmp_path: Path, runs_on: str, how: str, code: int
) -> None:
    text = ENDLESS.replace('    print("begun", flush=True)\n', f"    raise {how}\n")
    done = penstock("run", write(tmp_path, text), "--engine", runs_on, "--json")
    fields = json.loads(done.out)
    assert (done.code, fields["outcome"]) == (code, "failed")
    assert fields["error"]["fact"] == f"the program raised {how}"


@pytest.mark.parametrize(
    ("text", "kind"),
    [("x = 1\n", "GraphError"), ("raise ValueError('no')\n", "ValueError"), ("x = = 1\n", "SyntaxError")],
)
def test_a_program_that_cannot_run_gives_json_with_its_error(tmp_path: Path, text: str, kind: str) -> None:
    done = penstock("run", write(tmp_path, text), "--engine", "reference", "--json")
    fields = json.loads(done.out)
    assert (done.code, fields["outcome"], fields["error"]["type"]) == (2, "refused", kind)


def test_what_an_engine_cannot_do_gives_json_with_its_error(tmp_path: Path) -> None:
    done = penstock("run", write(tmp_path, PROGRAM), "--engine", "reference", "--master", "x", "--json")
    fields = json.loads(done.out)
    assert (done.code, fields["outcome"], fields["error"]["type"]) == (2, "refused", "NotSupported")


LOUD = """
import penstock as ps

graph = ps.PipeGraph("loud")
graph.source(ps.read.rows([{"a": n} for n in range(100_000)], batch=100)).sink(ps.write.console())
"""


@pytest.mark.slow
@pytest.mark.parametrize("runs_on", ["reference", "local"])
def test_a_run_whose_output_nobody_reads_any_more_ends_quietly(tmp_path: Path, runs_on: str) -> None:
    words = command("run", write(tmp_path, LOUD), "--engine", runs_on)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().strip() == "a"
        process.stdout.close()  # as `head -1` does
        assert process.stderr.read() == ""
    assert process.returncode == 141


@pytest.mark.slow
def test_a_sink_whose_connection_breaks_is_still_a_failure(tmp_path: Path) -> None:
    text = LOUD.replace("ps.write.console()", "ps.write.callback(fail)").replace(
        "graph =", "def fail(rows):\n    raise BrokenPipeError\n\ngraph ="
    )
    words = command("run", write(tmp_path, text), "--engine", "local")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, "BrokenPipeError" in done.stderr) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "code"), [(PROGRAM, 0), (FAILING, 1), ("x = = 1\n", 2)])
def test_the_exit_codes_reach_the_shell(tmp_path: Path, program: str, code: int) -> None:
    words = command("run", write(tmp_path, program), "--engine", "reference")
    assert subprocess.run(words, capture_output=True, check=False).returncode == code


@pytest.mark.slow
def test_a_reader_that_goes_away_early_is_no_failure_to_talk_about(tmp_path: Path) -> None:
    for words in (["explain"], ["explain", "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(
            command(*words, write(tmp_path, PROGRAM)),
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, "")


def test_what_a_program_prints_does_not_get_into_the_json(tmp_path: Path) -> None:
    text = (
        'import penstock as ps\nprint("loading")\ngraph = ps.PipeGraph("loud")\n'
        'graph.source(ps.read.rows([{"a": 1}])).sink(ps.write.console())\n'
    )
    file = write(tmp_path, text)
    done = penstock("run", file, "--engine", "reference", "--json")
    assert (json.loads(done.out)["rows_out"], done.err) == ({"sink": 1}, "loading\na\n1\n")
    assert json.loads(penstock("explain", file, "--json").out)["graph"] == "loud"
    assert penstock("run", file, "--engine", "reference").out.startswith("loading\na\n1\n")
