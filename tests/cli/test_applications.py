"""`penstock apps`, and applications by name in `penstock run` and `penstock explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.apps import APPLICATIONS
from penstock.cli.applications import Answer, same_rows
from tests.support.command_line import penstock


def test_all_applications_are_listed_with_what_they_read() -> None:
    done = penstock("apps")
    assert done.code == 0
    for application in APPLICATIONS.values():
        assert application.name in done.out
        assert application.reads.split(",", maxsplit=1)[0] in done.out


def test_scripts_get_the_applications_and_their_options_as_json() -> None:
    listed = {one["name"]: one for one in json.loads(penstock("apps", "--json").out)}
    assert set(listed) == set(APPLICATIONS)
    assert listed["spike-detection"]["options"]["threshold"] == 0.25
    assert listed["linear-road"]["forms"] == ["columns", "benchmark"]


def test_an_application_runs_by_its_name_and_shows_answer_speed_and_accounts() -> None:
    done = penstock("run", "windowed-count", "--rows", "300", "--engine", "reference")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[:2] == [["window_start", "window_end", "events"], ["0", "10000000", "300"]]
    assert lines[3] == ["1", "rows", "left"]
    assert lines[4][:3] == ["300", "rows", "in"]
    assert lines[4][-1] == "rows/s"
    assert ["sink", "1", "1"] in lines


def test_a_recount_can_be_asked_for() -> None:
    words = ("run", "fraud-detection", "--rows", "400", "--keys", "5", "--set", "threshold=0.9", "--engine")
    done = penstock(*words, "reference", "--form", "columns", "--disorder", "0.01", "--check")
    assert (done.code, done.out.splitlines()[-1]) == (0, "a recount in plain Python agrees")


def test_a_recount_that_differs_ends_with_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.applications.same_rows", lambda rows, expected: False)
    done = penstock("run", "windowed-count", "--rows", "30", "--engine", "reference", "--check", "--json")
    assert (done.code, json.loads(done.out)["agrees"]) == (1, False)


def test_json_has_the_throughput() -> None:
    done = penstock("run", "windowed-count", "--rows", "300", "--engine", "reference", "--json")
    facts = json.loads(done.out)
    assert (facts["graph"], facts["rows_out"]) == ("windowed-count", {"sink": 1})
    assert facts["rows_per_second"] == pytest.approx(300 / facts["seconds"], rel=0.01)


def test_an_application_runs_in_process_unless_told_otherwise() -> None:
    assert json.loads(penstock("run", "yahoo", "--rows", "30", "--json").out)["engine"] == "local"


def test_at_a_rate_rows_have_the_time_of_the_clock() -> None:
    done = penstock("run", "windowed-count", "--rows", "60", "--rate", "600", "--json")
    assert json.loads(done.out)["accounts"]["source"]["rows_in"] == 60


def test_for_some_seconds_the_rows_are_repeated() -> None:
    facts = json.loads(penstock("run", "windowed-count", "--rows", "50", "--seconds", "0.05", "--json").out)
    assert facts["accounts"]["source"]["rows_in"] > 50


def test_a_real_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("to be or not\nto be\n")
    file = str(tmp_path / "words.txt")
    done = penstock("run", "word-count", "--file", file, "--form", "columns", "--engine", "reference")
    assert ["be", "0", "10000000", "2"] in [line.split() for line in done.out.splitlines()]


def test_no_chaining_makes_steps_tasks_of_their_own() -> None:
    done = penstock("run", "yahoo", "--rows", "30", "--no-chaining", "--parallelism", "2", "--batch", "10")
    assert (done.code, "drained after 3 batches" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (["wordcount"], 'there is no application and no file "wordcount"'),
        (["yahoo", "--form", "rows"], "yahoo has no form 'rows'"),
        (["yahoo", "--set", "idz=text"], "--set idz=text is no option of yahoo"),
        (["yahoo", "--set", "window_us=ten"], "--set window_us=ten is no int"),
        (["yahoo", "--set", "ingest=yes"], "--set ingest=yes is neither true nor false"),
        (["yahoo", "--file", "x.csv"], "yahoo reads no file"),
        (["word-count", "--file", "absent.txt"], 'word-count cannot read "absent.txt"'),
    ],
)
def test_mistakes_are_refused_before_anything_runs(words: list[str], fact: str) -> None:
    done = penstock("run", *words)
    assert (done.code, done.err.splitlines()[0]) == (2, f"GraphError: {fact}")


@pytest.mark.parametrize("words", [["--rows", "5"], ["--set", "a=1"], ["--disorder", "1"], ["--file", "x"]])
def test_options_of_applications_are_refused_for_a_file(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text("")
    done = penstock("run", str(file), *words)
    assert (done.code, f"{words[0]} is for applications" in done.err) == (2, True)


def test_an_application_is_explained_in_any_of_its_forms() -> None:
    charging, plumbing = (penstock("explain", "linear-road", *form) for form in ([], ["--form", "benchmark"]))
    assert (charging.code, "no-accident" in charging.out) == (0, True)
    assert (plumbing.code, "toll-pos" in plumbing.out) == (0, True)


def test_only_the_last_rows_of_an_answer_are_kept() -> None:
    answer = Answer(keeps_all=False)
    for i in range(100):
        answer.add(pa.record_batch({"n": [i, i + 0.5]}))
    assert (answer.n_rows, sum(batch.num_rows for batch in answer.batches)) == (200, 20)
    assert answer.table().row_count == 10


def test_a_recount_may_differ_in_the_last_digits_only() -> None:
    assert same_rows([{"a": 1, "b": 0.1 + 0.2}], [{"b": 0.3, "a": 1}])
    assert not same_rows([{"a": 1}], [{"a": 2}])
    assert not same_rows([{"a": 1}], [{"a": 1}, {"a": 1}])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--check", "--rate", "100"), "--check and --rate exclude each other"),
        (("--check", "--seconds", "1"), "--check and --seconds exclude each other"),
        (("--file", "book.txt", "--rows", "10"), "--rows and --file exclude each other"),
        (("--file", "book.txt", "--seed", "2"), "--seed and --file exclude each other"),
        (("--file", "book.txt", "--keys", "2"), "--keys and --file exclude each other"),
    ],
)
def test_options_that_contradict_each_other_are_refused(words: tuple[str, ...], says: str) -> None:
    done = penstock("run", "word-count", *words)
    assert done.code == 2
    assert says in done.err


def test_the_speed_is_that_of_the_run_without_what_comes_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    start = ps.PipeGraph.start

    def start_slowly(graph: ps.PipeGraph, *args: Any, **settings: Any) -> Any:
        moment[0] += 100.0  # as if Java had to start
        return start(graph, *args, **settings)

    moment = [0.0]
    monkeypatch.setattr("penstock.cli.programs.time.perf_counter", lambda: moment[0] + 1.0)
    monkeypatch.setattr(ps.PipeGraph, "start", start_slowly)

    def end(answer: Answer, rows: pa.RecordBatch) -> None:
        moment[0] += 2.0

    monkeypatch.setattr(Answer, "add", end)
    done = penstock("run", "windowed-count", "--rows", "300", "--engine", "reference", "--json")
    facts = json.loads(done.out)
    assert (facts["seconds"], facts["rows_per_second"]) == (2.0, 150)
