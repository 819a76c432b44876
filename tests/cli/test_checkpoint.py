"""`penstock checkpoint`: show, verify, diff and skip, typed at the real app."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Outcome, penstock

PROGRAM = """
import penstock as ps

graph = ps.PipeGraph("views", engine="local")
reader = ps.read.jsonl("{place}", schema={{"t": "int64", "k": "string", "v": "int64"}})
rows = graph.source(reader, time="t", time_unit="s", delay="{delay}", name="{source}")
sums = rows.key_by("k").window({window}, name="{step}").aggregate(s=ps.sum("v"))
sums.sink(ps.write.jsonl("{folder}/out"), name="out")
"""


def write_program(
    folder: Path,
    delay: str = "2 s",
    window: str = 'ps.tumbling("10 s")',
    step: str = "sums",
    source: str = "rows",
    place: str | None = None,
) -> str:
    """A file with the program."""
    file, place = folder / "views.py", place or f"{folder}/in"
    names = {"folder": folder, "delay": delay, "window": window, "step": step, "source": source}
    file.write_text(PROGRAM.format(**names, place=place))
    return str(file)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program that has run once, with a checkpoint."""
    (tmp_path / "in").mkdir()
    rows = [{"t": t, "k": "ab"[t % 2], "v": t} for t in (1, 4, 12, 15)]
    (tmp_path / "in" / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = penstock("run", write_program(tmp_path), "--checkpoint", str(tmp_path / "checkpoint"))
    assert (done.code, done.err) == (0, "")
    assert '2 of step "sums" wait for the next run; --drain closes them' in done.out
    return tmp_path


def test_show_tells_what_a_folder_holds(folder: Path) -> None:
    done = penstock("checkpoint", "show", str(folder / "checkpoint"), "--json")
    held = json.loads(done.out)
    assert (done.code, held["graph"], held["rounds"], held["drained"]) == (0, "views", 1, False)
    rows, sums, out = held["steps"]["rows"], held["steps"]["sums"], held["steps"]["out"]
    assert (rows["rows_in"], rows["watermark"]) == (4, "1970-01-01 00:00:13.000000")
    assert [Path(file).name for file in rows["files"]] == ["1.jsonl"]
    assert (sums["waiting"], sums["state_rows"]) == (2, 2)
    assert sums["state_bytes"] > 0
    assert (folder / "checkpoint" / out["output"]).resolve().is_relative_to(folder / "out")


def test_show_prints_a_table_for_people(folder: Path) -> None:
    done = penstock("checkpoint", "show", str(folder / "checkpoint"))
    assert done.code == 0
    assert 'graph "views": 1 rounds are done; it goes on' in done.out
    assert "run(checkpoint=…, drain=True) closes it" in done.out


@pytest.mark.parametrize("command", [["show"], ["skip"], ["diff"]])
def test_a_folder_that_is_no_checkpoint_is_named(folder: Path, command: list[str]) -> None:
    nowhere, program = str(folder / "in"), str(folder / "views.py")
    words = {"show": [nowhere], "skip": [nowhere, "x.jsonl"], "diff": [program, nowhere]}[command[0]]
    done = penstock("checkpoint", *command, *words)
    assert done.code == 1
    assert nowhere in done.err
    assert "hint:" in done.err


def test_verify_says_that_a_folder_is_whole(folder: Path) -> None:
    done = penstock("checkpoint", "verify", str(folder / "checkpoint"))
    assert (done.code, done.out) == (0, f"{folder / 'checkpoint'} is whole\n")


def test_verify_names_what_is_damaged_and_what_to_do(folder: Path) -> None:
    state = next((folder / "checkpoint" / "state").iterdir())
    state.write_bytes(state.read_bytes()[:-5])
    done = penstock("checkpoint", "verify", str(folder / "checkpoint"), "--json")
    (finding,) = json.loads(done.out)
    assert (done.code, finding["file"]) == (1, str(state))
    assert finding["problem"]
    assert finding["remedy"]
    text = penstock("checkpoint", "verify", str(folder / "checkpoint"))
    assert text.code == 1
    assert "remedy:" in text.out


def test_diff_says_that_nothing_differs(folder: Path) -> None:
    done = penstock("checkpoint", "diff", write_program(folder), str(folder / "checkpoint"))
    assert (done.code, done.err) == (0, "")
    assert "nothing differs" in done.out


def test_diff_lists_what_is_allowed_and_what_it_does(folder: Path) -> None:
    program = write_program(folder, delay="5 s", step="totals")
    words = ["checkpoint", "diff", program, str(folder / "checkpoint"), "--renamed", "sums=totals"]
    done = penstock(*words, "--json")
    changes = json.loads(done.out)["changes"]
    assert (done.code, json.loads(done.out)["refused"]) == (0, None)
    assert {(change["step"], change["topic"], change["allowed"]) for change in changes} == {
        ("rows", "delay", True),
        ("totals", "name", True),
    }
    assert 'allowed  step "rows", its delay: ' in penstock(*words).out


def test_diff_ends_with_code_1_for_what_is_refused(folder: Path) -> None:
    program = write_program(folder, window='ps.tumbling("20 s")')
    done = penstock("checkpoint", "diff", program, str(folder / "checkpoint"))
    assert done.code == 1
    assert 'refused  step "sums", its window' in done.out
    assert "was: tumbling 10 s\n  now: tumbling 20 s" in done.out
    assert "its window differs" in done.err


def test_a_renaming_without_both_names_is_wrong_usage(folder: Path) -> None:
    done = penstock(
        "checkpoint", "diff", write_program(folder), str(folder / "checkpoint"), "--renamed", "sums"
    )
    assert done.code == 2
    assert "is not OLD=NEW" in done.err


def test_skip_leaves_a_file_out_that_cannot_be_read(folder: Path) -> None:
    bad = folder / "in" / "2.jsonl"
    bad.write_text("{{{\n")
    program = write_program(folder)
    assert penstock("run", program, "--checkpoint", str(folder / "checkpoint")).code == 1
    done = penstock("checkpoint", "skip", str(folder / "checkpoint"), str(bad), "--json")
    assert (done.code, json.loads(done.out)) == (0, {"source": "rows", "file": str(bad), "seen": True})
    again = penstock("run", program, "--checkpoint", str(folder / "checkpoint"), "--drain")
    assert again.code == 0
    lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["s"] for line in lines) == [1, 4, 12, 15]


def put_bad_file(folder: Path, *options: str, **changes: str) -> Path:
    """A file in which a run of the program has failed."""
    bad = folder / "in" / "2.jsonl"
    bad.write_text("{{{\n")
    program = write_program(folder, **changes)
    assert penstock("run", program, "--checkpoint", str(folder / "checkpoint"), *options).code == 1
    return bad


def skip(folder: Path, file: str | Path, *options: str) -> Outcome:
    """What `penstock checkpoint skip` says."""
    return penstock("checkpoint", "skip", str(folder / "checkpoint"), str(file), *options)


def run_again(folder: Path) -> int:
    """The code with which the program as it is goes on."""
    return penstock("run", str(folder / "views.py"), "--checkpoint", str(folder / "checkpoint")).code


def rename_source(folder: Path) -> None:
    """A run whose program has another name for its source."""
    program = runpy.run_path(write_program(folder, source="lines"), run_name="__penstock__")
    program["graph"].run(checkpoint=folder / "checkpoint", renamed={"rows": "lines"})


@pytest.mark.parametrize("name", [None, "rows", "lines"])
def test_a_file_of_a_source_that_was_renamed_is_left_out_under_either_name(
    folder: Path, name: str | None
) -> None:
    rename_source(folder)
    bad = put_bad_file(folder, source="lines")
    done = skip(folder, bad, *([] if name is None else ["--source", name]))
    assert (done.code, done.out) == (0, f'source "lines" leaves out {bad} from now on\n')
    assert run_again(folder) == 0


def test_the_sources_of_a_checkpoint_are_named_as_they_are_now(folder: Path) -> None:
    rename_source(folder)
    done = skip(folder, "x", "--source", "line")
    assert done.code == 1
    assert "its sources with files are lines" in done.err


@pytest.mark.parametrize("way", ["in/../in/2.jsonl", "link/2.jsonl", "link/../in/./2.jsonl", "link.jsonl"])
@pytest.mark.parametrize("place", ["in", "link", "in/../in/*.jsonl"])
def test_a_file_is_left_out_whatever_way_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "in" / "2.jsonl")
    bad = put_bad_file(tmp_path, place=place)
    done = skip(tmp_path, way)
    assert (done.code, done.out) == (0, f'source "rows" leaves out {bad} from now on\n')
    assert run_again(tmp_path) == 0


def test_a_file_that_is_known_by_a_relative_path_stays_left_out_when_all_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job" / "in").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "job")
    put_bad_file(Path(), place="in")
    assert skip(Path(), "in/2.jsonl").code == 0
    (tmp_path / "job").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path / "moved")
    assert run_again(Path()) == 0


def test_a_file_that_no_run_has_seen_is_left_out_where_the_source_will_find_it(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "in")
    bad = folder / "in" / "2.jsonl"
    bad.write_text("{{{\n")
    done = skip(folder, folder / "link" / "2.jsonl")
    assert done.code == 0
    assert done.out == f'source "rows" leaves out {bad} from now on; no run has seen it so far\n'
    assert json.loads(skip(folder, bad, "--json").out)["seen"] is False
    assert run_again(folder) == 0


@pytest.mark.parametrize("place", ["link", "link/*/*.jsonl"])
def test_so_is_one_behind_a_link_that_the_source_goes_by(tmp_path: Path, place: str) -> None:
    days = [tmp_path / "in", tmp_path / "in"]
    if "*" in place:
        days = [tmp_path / "in" / "1", tmp_path / "in" / "2"]
    for day in days:
        day.mkdir(parents=True, exist_ok=True)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    (days[0] / "1.jsonl").write_text('{"t": 1, "k": "a", "v": 1}\n')
    program = write_program(tmp_path, place=f"{tmp_path}/{place}")
    assert penstock("run", program, "--checkpoint", str(tmp_path / "checkpoint")).code == 0
    bad = days[1] / "2.jsonl"
    bad.write_text("{{{\n")
    assert skip(tmp_path, bad).code == 0
    assert run_again(tmp_path) == 0


@pytest.mark.parametrize("name", ["in/1.json", "in/*.jsonl", "in"])
def test_a_path_that_is_no_file_is_refused_with_the_files_that_are_known(folder: Path, name: str) -> None:
    bad = put_bad_file(folder)
    done = skip(folder, folder / name)
    assert done.code == 1
    assert f'the checkpoint knows no file "{folder / name}"' in done.err
    assert f'source "rows" knows {folder}/in/1.jsonl, {bad}' in " ".join(done.err.split())
    assert "hint:" in done.err
    assert run_again(folder) == 1


def test_show_counts_the_files_that_are_done_and_names_those_that_are_left_out(folder: Path) -> None:
    put_bad_file(folder)
    held = show_source(folder)
    assert ([Path(file).name for file in held["files"]], held["skipped"]) == (["1.jsonl"], [])
    for _ in range(2):
        skip(folder, folder / "in" / "2.jsonl")
    held = show_source(folder)
    assert [Path(file).name for file in held["files"]] == ["1.jsonl"]
    assert held["skipped"] == [str(folder / "in" / "2.jsonl")]
    assert run_again(folder) == 0
    (folder / "in" / "3.jsonl").write_text('{"t": 16, "k": "a", "v": 1}\n')
    assert run_again(folder) == 0
    assert [Path(file).name for file in show_source(folder)["files"]] == ["1.jsonl", "3.jsonl"]
    assert 'files that source "rows" leaves out: 1' in show(folder).out


def test_a_file_that_failed_and_was_taken_away_is_not_done(folder: Path) -> None:
    put_bad_file(folder).unlink()
    for _ in range(2):
        assert run_again(folder) == 0
        assert [Path(file).name for file in show_source(folder)["files"]] == ["1.jsonl"]


def show(folder: Path, *options: str) -> Outcome:
    """What `penstock checkpoint show` says."""
    return penstock("checkpoint", "show", str(folder / "checkpoint"), *options)


def show_source(folder: Path) -> dict[str, Any]:
    """What it says of the source."""
    source: dict[str, Any] = json.loads(show(folder, "--json").out)["steps"]["rows"]
    return source
