"""Nothing damaged, older, foreign or missing is taken for whole: it is refused by name, or of no matter.

The program reads files, one a batch, counts windows and copies rows; it is stopped after some of the files.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import crash_points
from penstock.connect.writers.staged_files import seal, unseal
from penstock.engines.checkpoint.verify import verify_checkpoint
from tests.support.disk_states import keep_states
from tests.support.file_runs import Died, dying_at
from tests.support.spark_in_process import InProcessSparkEngine

N_FILES, N_ROWS = 10, 10
ENGINES: dict[str, Callable[[], Any]] = {"local": lambda: "local", "fragments": InProcessSparkEngine}


@pytest.fixture(params=ENGINES)
def runner(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]()


def put_files(folder: Path, first: int = 0, last: int = N_FILES) -> None:
    (folder / "in").mkdir(parents=True, exist_ok=True)
    for number in range(first, last):
        rows = [{"t": number * N_ROWS + row, "k": row % 3} for row in range(N_ROWS)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "in" / f"{number:03d}.jsonl").write_text(text)


def graph_of(folder: Path, source: Path | None = None, name: str = "rows") -> ps.PipeGraph:
    graph = ps.PipeGraph("counts")
    reader = ps.read.jsonl(source or folder / "in", schema={"t": "int64", "k": "int64"})
    rows = graph.source(reader, time="t", time_unit="s", delay="3 s", name=name)
    rows.sink(ps.write.jsonl(folder / "copy"), name="copy")
    windows = rows.key_by("k").window(ps.tumbling("7 s"), name="windows")
    windows.aggregate(n=ps.count()).sink(ps.write.jsonl(folder / "counts"), name="counts")
    return graph


def run(folder: Path, runner: Any, source: Path | None = None, **options: Any) -> Any:
    seed, name = options.pop("seed", None), options.pop("name", "rows")
    if runner == "local":
        options["options"] = ps.LocalOptions(save_every="0 s", queue_size=2, seed=seed)
    return graph_of(folder, source, name).run(
        runner, checkpoint=str(folder / "checkpoint"), **{"drain": True, **options}
    )


def read_output(folder: Path) -> dict[str, Counter[str]]:
    return {
        sink: Counter(
            line for file in (folder / sink).glob("part-*") for line in file.read_text().splitlines()
        )
        for sink in ("copy", "counts")
    }


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    folder = tmp_path_factory.mktemp("answer")
    put_files(folder)
    graph_of(folder).run("reference")
    return read_output(folder)


@pytest.fixture
def half_run(tmp_path: Path, runner: Any) -> Path:
    """A run that was stopped after six of ten files."""
    put_files(tmp_path)
    run(tmp_path, runner, until=4)
    run(tmp_path, runner, until=2)
    assert verify_checkpoint(tmp_path / "checkpoint") == []
    return tmp_path


def refuse(folder: Path, runner: Any, *names: str) -> ps.PenstockError:
    """Run, and return the refusal, which names each of these and promises nothing that loses rows."""
    with pytest.raises(ps.PenstockError) as refused:
        run(folder, runner)
    text = str(refused.value)
    for name in names:
        assert name in text
    assert str(folder) in text
    assert "overwrite" not in str(refused.value.hint)
    assert verify_checkpoint(folder / "checkpoint") != []
    return refused.value


def test_a_number_of_the_outputs_manifest_that_was_changed_is_noticed(half_run: Path, runner: Any) -> None:
    file = half_run / "copy" / "_penstock" / "manifest.json"
    assert '"committed": 5' in file.read_text()
    file.write_text(file.read_text().replace('"committed": 5', '"committed": 8'))
    refuse(half_run, runner, str(file))


@pytest.mark.parametrize("harm", ["empty it", "cut a line", "take a line out", "remove it"])
def test_a_journal_that_is_not_whole_is_refused(half_run: Path, runner: Any, harm: str) -> None:
    file = half_run / "checkpoint" / "files" / "rows.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    if harm == "remove it":
        file.unlink()
    else:
        left = {"empty it": [], "cut a line": [*lines[:-1], lines[-1][:30]], "take a line out": lines[:-1]}
        file.write_text("".join(left[harm]))
    refuse(half_run, runner, str(file))


def test_an_older_output_under_a_newer_checkpoint_is_refused(tmp_path: Path, runner: Any) -> None:
    put_files(tmp_path)
    run(tmp_path, runner, until=3)
    shutil.copytree(tmp_path / "copy", tmp_path / "older")
    run(tmp_path, runner, until=3)
    shutil.rmtree(tmp_path / "copy")
    (tmp_path / "older").rename(tmp_path / "copy")
    refusal = refuse(tmp_path, runner, str(tmp_path / "copy" / "_penstock" / "manifest.json"))
    assert refusal.fact == 'the output of sink "copy" is older than the checkpoint'


def test_a_checkpoint_that_is_older_than_its_output_is_refused_or_gives_the_same(
    tmp_path: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    put_files(tmp_path)
    run(tmp_path, runner, until=3)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    run(tmp_path, runner, until=3)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "older").rename(tmp_path / "checkpoint")
    refuse(tmp_path, runner, str(tmp_path / "checkpoint"))


def test_the_output_of_another_run_is_refused(tmp_path: Path, runner: Any) -> None:
    for name in ("one", "two"):
        put_files(tmp_path / name)
        run(tmp_path / name, runner, until=6)
    shutil.rmtree(tmp_path / "one" / "copy")
    shutil.copytree(tmp_path / "two" / "copy", tmp_path / "one" / "copy")
    refusal = refuse(tmp_path / "one", runner, str(tmp_path / "one" / "copy" / "_penstock" / "manifest.json"))
    assert refusal.fact == 'the output of sink "copy" is that of another run'


def test_an_output_that_is_gone_is_refused(half_run: Path, runner: Any) -> None:
    shutil.rmtree(half_run / "counts")
    refuse(half_run, runner, str(half_run / "counts" / "_penstock" / "manifest.json"))


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_checkpoint_without_penstock_json_is_refused_whatever_the_sink_says(
    half_run: Path, runner: Any, overwrite: bool
) -> None:
    (half_run / "checkpoint" / "penstock.json").unlink()
    graph = ps.PipeGraph("counts")
    rows = graph.source(ps.read.jsonl(half_run / "in", schema={"t": "int64", "k": "int64"}), name="rows")
    rows.sink(ps.write.jsonl(half_run / "copy", overwrite=overwrite), name="copy")
    with pytest.raises(ps.CheckpointError, match=r"damaged: penstock\.json is gone") as refused:
        graph.run(runner, checkpoint=str(half_run / "checkpoint"))
    assert "an empty checkpoint folder and an empty output folder" in str(refused.value.hint)
    assert read_output(half_run)["copy"].total() == 6 * N_ROWS


def test_an_output_of_a_checkpoint_that_is_gone_is_refused_without_a_hint_to_overwrite_it(
    half_run: Path, runner: Any
) -> None:
    shutil.rmtree(half_run / "checkpoint")
    with pytest.raises(ps.ConnectorError, match="holds the output of an earlier run") as refused:
        run(half_run, runner)
    assert "continue that run with the checkpoint that it had" in str(refused.value.hint)


@pytest.mark.parametrize("which", ["commits", "state"])
def test_two_files_that_changed_places_are_refused(half_run: Path, runner: Any, which: str) -> None:
    files = sorted((half_run / "checkpoint" / which).iterdir())
    one, two = (file.read_bytes() for file in (files[0], files[-1]))
    files[0].write_bytes(two)
    files[-1].write_bytes(one)
    refuse(half_run, runner, files[-1].name)


def test_an_older_manifest_that_is_damaged_is_not_needed(
    half_run: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    older, _ = sorted((half_run / "checkpoint" / "commits").iterdir())
    older.write_text("rubbish")
    assert [Path(finding.file) for finding in verify_checkpoint(half_run / "checkpoint")] == [older]
    run(half_run, runner)
    assert read_output(half_run) == answer


def test_checkpoint_and_output_moved_together_go_on(
    half_run: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    place = half_run / "elsewhere"
    place.mkdir()
    for name in ("checkpoint", "copy", "counts"):
        (half_run / name).rename(place / name)
    assert verify_checkpoint(place / "checkpoint") == []
    run(place, runner, half_run / "in")
    assert read_output(place) == answer


@pytest.mark.parametrize("point", [None, crash_points.COMMITTED], ids=["whole", "died"])
def test_a_checkpoint_whose_source_was_renamed_is_whole(
    half_run: Path, runner: Any, answer: dict[str, Counter[str]], point: str | None
) -> None:
    later: dict[str, Any] = {"name": "lines", "renamed": {"rows": "lines"}}
    if point is None:
        run(half_run, runner, until=2, **later)
    else:  # the newest manifest has the old name, and penstock.json the new one
        with dying_at(point), pytest.raises((Died, ps.PenstockError)):
            run(half_run, runner, until=2, **later)
    assert verify_checkpoint(half_run / "checkpoint") == []
    run(half_run, runner, until=2, name="texts", renamed={"lines": "texts"})
    assert verify_checkpoint(half_run / "checkpoint") == []
    journal = half_run / "checkpoint" / "files" / "rows.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.unlink()
    assert [Path(finding.file) for finding in verify_checkpoint(half_run / "checkpoint")] == [journal]
    journal.write_text("".join(lines))
    run(half_run, runner, name="texts", renamed={"lines": "texts"})
    assert read_output(half_run) == answer


def test_a_run_may_take_fewer_rounds_again_than_an_earlier_one_had_begun(
    half_run: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    with dying_at(crash_points.COMMITTED), pytest.raises((Died, ps.PenstockError)):
        run(half_run, runner, until=3, drain=False)
    run(half_run, runner, until=1, drain=False)
    assert verify_checkpoint(half_run / "checkpoint") == []
    run(half_run, runner)
    assert read_output(half_run) == answer


def test_a_run_that_is_refused_a_file_goes_on_once_the_file_is_as_it_was(
    half_run: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    with dying_at(crash_points.COMMITTED), pytest.raises((Died, ps.PenstockError)):
        run(half_run, runner, until=3, drain=False)
    file = half_run / "in" / f"{7:03d}.jsonl"
    was, status = file.read_text(), file.stat()
    file.write_text(was.replace('"t": 7', '"t": 8'))
    with pytest.raises(ps.PenstockError, match="changed after it was read"):
        run(half_run, runner)
    file.write_text(was)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    run(half_run, runner)
    assert read_output(half_run) == answer


def test_a_run_that_has_ended_says_so_again_and_refuses_more_input(
    tmp_path: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    put_files(tmp_path)
    ended = run(tmp_path, runner, drain=True)
    again = run(tmp_path, runner, drain=True)
    assert (again.outcome, again.batches) == ("drained", 0)
    assert again.accounts == ended.accounts
    assert read_output(tmp_path) == answer
    put_files(tmp_path, N_FILES, N_FILES + 1)
    with pytest.raises(ps.CheckpointError, match="has been drained") as refused:
        run(tmp_path, runner, drain=True)
    assert "-end.json" in str(refused.value.detail)


def test_accounts_are_exact_wherever_a_run_was_cut(tmp_path: Path, runner: Any) -> None:
    put_files(tmp_path / "whole")
    wanted = run(tmp_path / "whole", runner, drain=True).accounts
    assert wanted["copy"].rows_in == N_FILES * N_ROWS
    folder = tmp_path / "killed"
    put_files(folder)
    with keep_states(folder, tmp_path / "copies") as states:
        run(folder, runner, drain=True, seed=1)
    for moment in states.restore_each():
        assert run(folder, runner, drain=True).accounts == wanted, moment


@pytest.mark.parametrize("engines", [("local", "fragments"), ("fragments", "local")])
def test_one_engine_finishes_what_another_began_with_exact_accounts(
    tmp_path: Path, engines: tuple[str, str], answer: dict[str, Counter[str]]
) -> None:
    put_files(tmp_path / "whole")
    wanted = run(tmp_path / "whole", "local", drain=True).accounts
    folder = tmp_path / "killed"
    put_files(folder)
    first, second = (ENGINES[name]() for name in engines)
    with keep_states(folder, tmp_path / "copies") as states:
        run(folder, first, until=6, seed=2)
    for number, moment in enumerate(states.restore_each()):
        if number % 3:
            continue
        assert run(folder, second, drain=True).accounts == wanted, moment
        assert read_output(folder) == answer, moment


def test_a_checkpoint_and_an_output_of_the_format_before_are_read(
    half_run: Path, runner: Any, answer: dict[str, Counter[str]]
) -> None:
    checkpoint = half_run / "checkpoint"
    for file, new in [
        (checkpoint / "penstock.json", ("run", "engine", "outputs")),
        *((file, ("run", "engine", "outputs", "journals")) for file in (checkpoint / "commits").iterdir()),
    ]:
        contents, _ = unseal(file.read_text())
        contents = {name: value for name, value in contents.items() if name not in new}
        file.write_text(_seal_as_before(contents | ({"format": 3} if "format" in contents else {})))
    if (checkpoint / "planned_rounds.json").exists():
        planned, _ = unseal((checkpoint / "planned_rounds.json").read_text())
        (checkpoint / "planned_rounds.json").write_text(_seal_as_before(planned["rounds"]))
    first, *rest = (checkpoint / "files" / "rows.jsonl").read_text().splitlines()
    entries = unseal(first)[0]["entries"] + [json.loads(line)["body"] for line in rest]
    (checkpoint / "files" / "rows.jsonl").write_text(
        "".join(_seal_as_before(entry) + "\n" for entry in entries)
    )
    for state in (checkpoint / "state").iterdir():
        state.write_bytes(state.read_bytes().partition(b"\n")[2])
    for sink in ("copy", "counts"):
        file = half_run / sink / "_penstock" / "manifest.json"
        fields = unseal(file.read_text())[0] | {"version": 2}
        file.write_text(json.dumps({k: v for k, v in fields.items() if k not in ("run", "head")}, indent=1))
    run(half_run, runner)
    assert read_output(half_run) == answer
    assert unseal((checkpoint / "penstock.json").read_text())[0]["format"] == 4
    assert verify_checkpoint(checkpoint) == []


def _seal_as_before(body: object) -> str:
    """Format 3 had the body as a text in JSON."""
    text = json.dumps(body)
    check = json.loads(seal(body))["check"]
    return json.dumps({"check": check, "body": text})


@pytest.fixture(autouse=True)
def _nobody_listens() -> Any:
    yield
    crash_points.listener = None


def test_an_end_of_a_source_that_is_forgotten_is_noticed_once_an_output_knows_it(tmp_path: Path) -> None:
    put_files(tmp_path / "killed")
    folder, n_refused = tmp_path / "killed", 0
    with keep_states(folder, tmp_path / "copies") as states:
        run(folder, "local", drain=True, seed=3)
    for _ in states.restore_each():
        manifest = folder / "counts" / "_penstock" / "manifest.json"
        if not manifest.exists() or any((folder / "checkpoint" / "commits").glob("*-end.json")):
            continue
        fields, _ = unseal(manifest.read_text())
        if fields["head"].get("records", (0,))[0] and fields["committed"] == N_FILES:
            (folder / "checkpoint" / "rounds.jsonl").unlink()
            with pytest.raises(ps.CheckpointError, match=r"rounds\.jsonl is (gone|older than what was done)"):
                run(folder, "local", drain=True)
            n_refused += 1
    assert n_refused
