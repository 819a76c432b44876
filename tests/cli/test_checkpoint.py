"""`penstock checkpoint`: show, verify, diff and skip, typed at the real app."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import penstock

PROGRAM = """
import penstock as ps

graph = ps.PipeGraph("views", engine="local")
reader = ps.read.jsonl("{folder}/in", schema={{"t": "int64", "k": "string", "v": "int64"}})
rows = graph.source(reader, time="t", time_unit="s", delay="{delay}", name="rows")
sums = rows.key_by("k").window({window}, name="{step}").aggregate(s=ps.sum("v"))
sums.sink(ps.write.jsonl("{folder}/out"), name="out")
"""


def write_program(
    folder: Path, delay: str = "2 s", window: str = 'ps.tumbling("10 s")', step: str = "sums"
) -> str:
    """A file with the program."""
    file = folder / "views.py"
    file.write_text(PROGRAM.format(folder=folder, delay=delay, window=window, step=step))
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
    assert (done.code, json.loads(done.out)) == (0, {"source": "rows", "file": str(bad)})
    again = penstock("run", program, "--checkpoint", str(folder / "checkpoint"), "--drain")
    assert again.code == 0
    lines = [line for file in (folder / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["s"] for line in lines) == [1, 4, 12, 15]
