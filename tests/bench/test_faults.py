"""`python -m bench faults`: its comparison, its plan, its input; and a small campaign on a real cluster."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.faults.command import KINDS, count_runs, count_totals, format_outcome, has_passed
from bench.faults.kills import MOST_DRIVERS, TARGETS, Disturbance, Kind, plan_campaign
from bench.faults.programs import ATTEMPTS, PROGRAMS, Place, Program, find_program
from bench.faults.rows import Difference, compare_accounts, compare_rows, compare_sinks, read_rows, read_sinks
from tests.support.command_line import bench
from tests.support.spark_cluster import ROOT, children_of, is_alive


def test_rows_are_lost_doubled_or_wrong() -> None:
    right = Counter({"a": 2, "b": 1})
    assert compare_rows(right, Counter(right)) == Difference()
    assert compare_rows(right, Counter({"a": 1, "b": 1})) == Difference(lost=1)
    assert compare_rows(right, Counter({"a": 2, "b": 3})) == Difference(doubled=2)
    assert compare_rows(right, Counter({"a": 2, "c": 1})) == Difference(lost=1, wrong=1)


def test_a_sink_that_is_missing_has_lost_all_its_rows() -> None:
    differences = compare_sinks({"one": Counter("ab"), "two": Counter("c")}, {"two": Counter("c")})
    assert differences == {"one": Difference(lost=2)}


def test_counts_that_differ_are_named_with_their_step() -> None:
    right = {"rows": {"rows_in": 3, "late": 1}}
    assert compare_accounts(right, {"rows": {"rows_in": 3, "late": 1}}) == []
    assert compare_accounts(right, {"rows": {"rows_in": 4, "late": 1}}) == ["rows.rows_in: 4 instead of 3"]
    assert compare_accounts(right, {}) == ["rows.rows_in: None instead of 3", "rows.late: None instead of 1"]


def test_a_folder_shows_what_is_visible_in_it_and_below_it(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 1, 2]})
    for name in ("part-0-1.parquet", "key=x/part-0-2.parquet", ".part-1.parquet", "_staged/part-2.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name)
    assert read_rows(tmp_path, "parquet") == Counter({'{"a": 1}': 4, '{"a": 2}': 2})
    assert read_rows(tmp_path / "nowhere", "parquet") == Counter()


def test_text_files_are_read_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "part-1.csv").write_text("a,b\n1,x\n1,x\n")
    (tmp_path / "part-1.jsonl").write_text('{"b": "x", "a": 1}\n')
    assert read_rows(tmp_path, "csv") == Counter({'{"a": "1", "b": "x"}': 2})
    assert read_rows(tmp_path, "jsonl") == Counter({'{"a": 1, "b": "x"}': 1})


def test_the_same_seed_plans_the_same_kills_and_another_seed_others() -> None:
    runs: dict[Kind, int] = {"executor": 8, "driver": 8}
    assert plan_campaign(runs, list(PROGRAMS), 1) == plan_campaign(runs, list(PROGRAMS), 1)
    assert plan_campaign(runs, list(PROGRAMS), 1) != plan_campaign(runs, list(PROGRAMS), 2)


def test_a_run_is_the_same_however_many_there_are() -> None:
    few, many = (plan_campaign({"executor": n}, list(PROGRAMS), 1) for n in (3, 30))
    assert many[:3] == few


def test_every_target_and_every_program_has_its_turn() -> None:
    planned = plan_campaign({"executor": 24, "driver": 12}, list(PROGRAMS), 1)
    assert {run.program for run in planned} == set(PROGRAMS)
    executors = [run for run in planned if run.kind == "executor"]
    assert {kill.target for run in executors for kill in run.kills} == set(TARGETS)
    pairs = {(run.program, kill.target) for run in executors for kill in run.kills}
    assert len(pairs) >= 12
    drivers = [run.kills for run in planned if run.kind == "driver"]
    assert {kill.target for kills in drivers for kill in kills} == {"driver"}
    assert {len(kills) for kills in drivers} == set(range(1, MOST_DRIVERS + 1))
    assert all(0 <= kill.share < 1 for run in planned for kill in run.kills)


def test_kills_of_a_run_come_in_order_of_time() -> None:
    planned = plan_campaign({"executor": 100}, list(PROGRAMS), 3)
    assert any(len(run.kills) == 2 for run in planned)
    assert all(list(run.kills) == sorted(run.kills, key=lambda kill: kill.share) for run in planned)


def test_speculation_has_a_program_of_its_own_and_kills_nothing() -> None:
    assert plan_campaign({"speculation": 1}, list(PROGRAMS), 1) == [
        Disturbance(0, "speculation", ATTEMPTS.name)
    ]


def test_the_number_of_runs_is_that_of_the_kind_unless_it_is_given() -> None:
    assert count_runs(None, KINDS, quick=False) == {
        "executor": 40,
        "driver": 40,
        "speculation": 4,
        "signal": 50,
        "kill": 150,
    }
    assert count_runs(None, KINDS, quick=True) == {
        "executor": 4,
        "driver": 4,
        "speculation": 1,
        "signal": 5,
        "kill": 8,
    }
    assert count_runs(7, ["driver"], quick=True) == {"driver": 7}


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("--kind", "drivr"), 'BenchError: the campaign has no kind "drivr"'),
        (("--only", "window"), 'BenchError: the campaign has no program "window"'),
    ],
)
def test_unknown_kinds_and_programs_are_refused_with_the_nearest(words: tuple[str, str], fact: str) -> None:
    done = bench("faults", *words)
    assert (done.code, done.err.splitlines()[0]) == (2, fact)
    assert "did you mean" in done.err


@pytest.mark.parametrize("name", [*PROGRAMS, ATTEMPTS.name])
def test_every_program_has_something_to_lose_in_every_sink(name: str, tmp_path: Path) -> None:
    whole = find_program(name)
    program = Program(
        name, whole.build, whole.sinks, whole.format, n_files=4, n_rows=600, follows=whole.follows
    )
    program.write_input(tmp_path / "input", seed=1)
    assert len(list((tmp_path / "input").iterdir())) == 4
    place = Place(tmp_path / "input", tmp_path / "output", follow=False)
    result = program.build(place).run("reference", drain=not program.follows)
    sinks = read_sinks(place.output, program.sinks)
    # Of few rows, all windows of a folder that is followed may still be open.
    assert all(rows for sink, rows in sinks.items() if (name, sink) != ("follow", "sums"))
    assert result.accounts["rows"].rows_in == 600


def test_the_same_seed_writes_the_same_input(tmp_path: Path) -> None:
    program = Program("errors", PROGRAMS["errors"].build, {}, "csv", n_files=2, n_rows=200)
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        program.write_input(tmp_path / folder, seed)
    a, b, c = ((tmp_path / name / "00001.csv").read_text() for name in "abc")
    assert a == b != c
    assert "no number" in a


def test_totals_and_verdicts_say_what_went_wrong() -> None:
    from bench.faults.campaign import Outcome

    good = Outcome(0, "driver", "state", [("driver", 1.25)], tries=2, seconds=9, ended=True)
    bad = Outcome(1, "executor", "sinks", ended=True, difference=Difference(1, 2, 0))
    missed = Outcome(2, "executor", "sinks", ended=True, missed=True)
    assert "driver at 1.2 s" in format_outcome(good)
    assert format_outcome(good).endswith("exact")
    assert bad.verdict() == "WRONG: lost 1, doubled 2, wrong 0"
    assert Outcome(3, "driver", "state").verdict() == "NOT ENDED"
    totals = count_totals([good, bad, missed])
    assert (totals["runs"], totals["lost"], totals["doubled"], totals["missed"]) == (3, 1, 2, 1)
    assert has_passed([good])
    assert not has_passed([good, bad])
    assert not has_passed([good, missed]), "no run of kind executor was hit"


@pytest.mark.nightly
def test_a_campaign_of_one_run_of_a_kind_on_a_real_cluster_is_exact(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    kinds = ("--kind", "executor", "--kind", "driver", "--runs", "1", "--only", "sinks", "--seed", "5")
    done = bench("faults", *kinds, "--json", str(file))
    runs = json.loads(file.read_text())["runs"]
    exact = [(None, True), ("executor", True), ("driver", True)]
    assert [(run["kind"], run["exact"]) for run in runs] == exact, done.out
    assert "lost 0, doubled 0, wrong 0" in done.out


def test_signals_come_one_per_try_and_at_most_three() -> None:
    planned = plan_campaign({"signal": 20}, list(PROGRAMS), 1)
    assert {kill.target for run in planned for kill in run.kills} == {"program"}
    assert {len(run.kills) for run in planned} == {1, 2, 3}


@pytest.mark.slow
def test_a_small_campaign_of_signals_loses_and_doubles_nothing(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    done = bench("faults", "--kind", "signal", "--only", "windows", "--runs", "2", "--json", str(file))
    runs = json.loads(file.read_text())["runs"]
    assert (done.code, [run["verdict"].partition(";")[0] for run in runs]) == (0, ["exact"] * 3)
    assert [target for run in runs for target, _ in run["kills"]] != []


@pytest.mark.slow
def test_a_campaign_that_gets_sigterm_ends_the_programs_that_it_has_started() -> None:
    campaign = subprocess.Popen(
        [sys.executable, "-m", "bench", "faults", "--kind", "kill", "--only", "follow"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert campaign.stdout is not None
    with campaign.stdout:
        assert "computing the expected rows" in campaign.stdout.readline()
        while not (programs := children_of(campaign.pid)):
            assert campaign.poll() is None
        campaign.send_signal(signal.SIGTERM)
        assert campaign.wait(60) == 143
    # One that it has just started, and does not know yet, ends when nobody can send it an order any more.
    deadline = time.monotonic() + 60
    while any(map(is_alive, programs)):
        assert time.monotonic() < deadline, "all programs have ended"
