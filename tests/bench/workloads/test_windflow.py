"""The workload of WindFlow's figures: it can be built, its programs are right, and wrong rows are noticed."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from bench import load_workload
from bench.workload import Outcome
from bench.workloads.windflow import breakdown, cluster, figures
from bench.workloads.windflow.driver import Order, run_order, run_orders
from bench.workloads.windflow.experiments import check_answer
from bench.workloads.windflow.programs import (
    BY_COLUMNS,
    SUITE,
    SYSTEM,
    USER,
    Data,
    Program,
    explain_rows,
    generate_paced,
    run_program,
    sort_rows,
)

FEW: dict[str, dict[str, Any]] = {
    "fraud-detection": {"rows": 400, "keys": 8, "threshold": 0.9},
    "spike-detection": {"rows": 400, "keys": 2, "window": 50, "threshold": 0.03},
    "traffic-monitoring": {"rows": 100},
    "word-count": {"rows": 40},
    "yahoo": {"rows": 500},
    "linear-road": {"rows": 1_200, "cars": 2},
    "voip-stream": {"rows": 100},
}
PAGE = Path(__file__).parents[3] / "docs" / "table3.md"


def few(program: Program, **settings: Any) -> Data:
    """A few rows of a program."""
    return Data.generate(program, **{**FEW[program.name], **settings})


@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_workload_can_be_built_in_both_sizes(size: str) -> None:
    workload = load_workload("windflow", "quick" if size == "quick" else "full")
    assert [group for group in workload.groups if not group.startswith("cluster")] == [
        "blocks",
        "degrees",
        "chaining",
        "batches",
        "waiting",
        "pinning",
        "composition",
        "breakdown",
        "cores",
    ]
    assert all(workload.cells_of(group) for group in workload.groups)


def test_the_groups_of_a_cluster_are_chosen_by_one_name() -> None:
    chosen = load_workload("windflow", "quick").select_groups(["cluster"])
    assert chosen.groups == ["cluster, 1 x 1", "cluster, 1 x 2", "cluster, 2 x 1"]
    assert [chart.title for chart in chosen.charts] == ["SWA on a cluster", "YSB on a cluster"]


@pytest.mark.parametrize("program", [*SUITE, *BY_COLUMNS], ids=lambda program: program.label)
def test_a_program_gives_what_its_recount_says(program: Program) -> None:
    data = few(program)
    assert check_answer(data.expected_answer(), run_program(data, parallelism=2, batch=100)) is None


@pytest.mark.parametrize(
    "options",
    [
        ps.LocalOptions(composition="dedicated"),
        ps.LocalOptions(composition="centralised"),
        ps.LocalOptions(channels="spinning", threads=4),
        ps.LocalOptions(pinning=True),
    ],
    ids=["dedicated", "centralised", "spinning", "pinned"],
)
def test_the_settings_of_the_figures_change_no_answer(options: ps.LocalOptions) -> None:
    data = few(figures.find_program("SD"))
    assert check_answer(data.expected_answer(), run_program(data, options, parallelism=2)) is None


def test_a_program_without_an_answer_is_refused() -> None:
    with pytest.raises(AssertionError, match="nothing comes out of FD"):
        few(figures.find_program("FD"), threshold=2.0).expected_answer()


ROWS = sort_rows(pa.table({"x": [0.5, 0.25], "key": ["b", "a"]}))


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"key": ["b", "a"], "x": [0.5 + 1e-12, 0.25]}, None),
        ({"key": ["b"], "x": [0.5]}, "expected 2 rows, got 1"),
        ({"key": ["b", "a"], "y": [0.5, 0.25]}, "expected the columns ['key', 'x'], got ['key', 'y']"),
        ({"key": ["b", "c"], "x": [0.5, 0.25]}, "expected key a in row 0, got b"),
        ({"key": ["b", "a"], "x": [0.5, 0.26]}, "expected x 0.25 in row 0, got 0.26"),
    ],
)
def test_rows_that_differ_are_named(answer: dict[str, list[Any]], says: str | None) -> None:
    assert explain_rows(ROWS, pa.table(answer)) == says


def test_counts_that_differ_are_named() -> None:
    assert check_answer((4, 1), Outcome(lambda: (4, 2))) == "expected (4, 1), got (4, 2)"
    assert check_answer((4, 1), Outcome(lambda: (4, 1))) is None


def test_a_measured_run_tells_the_time_of_every_operator() -> None:
    data = few(figures.find_program("WC"), rows=20)
    outcome = run_program(data, ps.LocalOptions(measure=True), rate=2_000.0)
    assert check_answer(data.expected_answer(), outcome) is None
    steps = ("splitter", "counter", "sink")
    for note, counted in ((USER, steps), (SYSTEM, ("source", *steps))):
        shares = [outcome.notes[f"{step}: {note}"] for step in counted]
        assert sum(shares) == pytest.approx(outcome.notes[note])
    assert outcome.notes[USER] > 0
    assert f"source: {USER}" not in outcome.notes  # it waits until rows are due


def test_paced_rows_come_one_by_one_and_all() -> None:
    batches = list(generate_paced(pa.table({"n": [1, 2, 3]}), 1e6))
    assert [batch.to_pydict() for batch in batches] == [{"n": [1]}, {"n": [2]}, {"n": [3]}]


def test_the_blocks_are_those_of_the_page_about_table_3() -> None:
    figure = breakdown.count_blocks()
    (way,) = figure.ways
    counted = {case.name.partition(",")[0]: way.run(case.make(1)).answer() for case in figure.cases}
    assert counted == breakdown.TABLE_3
    page = PAGE.read_text(encoding="utf-8")
    printed = {
        line[1]: tuple(map(int, line[2].split("|")))
        for line in re.finditer(r"^\| \w[^|]*\((\w+)\) \|([\d |]+)\|[^|]+\|$", page, re.M)
    }
    assert printed == breakdown.TABLE_3


def test_a_run_on_one_core_moves_all_threads_there_and_back() -> None:
    usual, ends = os.sched_getaffinity(0), threading.Event()
    other = threading.Thread(target=ends.wait)
    other.start()
    try:
        with figures.limit_cores(1):
            assert len(os.sched_getaffinity(0)) == len(os.sched_getaffinity(other.native_id or 0)) == 1
        assert os.sched_getaffinity(0) == os.sched_getaffinity(other.native_id or 0) == usual
    finally:
        ends.set()
        other.join()


def test_word_count_is_right_on_one_core_with_small_bundles() -> None:
    data = few(figures.find_program("WC"))
    assert check_answer(data.expected_answer(), figures.run_on_cores(data, n=1, batch=10)) is None


def test_overcommit_doubles_the_slots_of_an_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_open_cluster", lambda: "spark://here")
    monkeypatch.setattr(cluster, "_find_driver", lambda place, overcommits: None)
    case = cluster.ClusterData.write(cluster.PROGRAMS[0], cluster.Deployment(2, 1), 1_000, 1)
    orders = [cluster.prepare_run(case, mode=mode).order for mode in cluster.MODES]
    assert [order.pipelined for order in orders] == [False, True, False, True]
    assert [order.partitions for order in orders] == [2, 2, 4, 4]
    assert [order.conf["spark.executor.cores"] for order in orders] == ["1", "1", "2", "2"]
    assert [order.conf["spark.cores.max"] for order in orders] == ["2", "2", "4", "4"]
    assert len({order.output for order in orders}) == 4
    assert len(list(Path(orders[0].input).iterdir())) == cluster.N_FILES


ORDER = Order("yahoo", {}, "in", "out", pipelined=True, master="spark://here", partitions=1)


def driver_that_runs(program: str, monkeypatch: pytest.MonkeyPatch) -> cluster.Driver:
    """A driver whose process runs a program of the test's."""
    popen = subprocess.Popen
    monkeypatch.setattr(
        "subprocess.Popen", lambda command, **settings: popen([sys.executable, "-c", program], **settings)
    )
    return cluster.Driver()


def test_a_driver_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_that_runs("""input(), print('{"failed": "no slots"}')""", monkeypatch)
    with pytest.raises(RuntimeError, match="no slots"):
        driver.run(ORDER)
    driver.stop()


def test_a_driver_that_has_ended_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = driver_that_runs("input()", monkeypatch)
    with pytest.raises(RuntimeError, match="the driver has ended"):
        driver.run(ORDER)
    driver.stop()


def test_a_driver_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LIMIT_S", 0)
    driver = driver_that_runs("import threading; threading.Event().wait()", monkeypatch)
    with pytest.raises(RuntimeError, match="the driver has not answered within 0 s"):
        driver.run(ORDER)
    driver.stop()


def test_orders_are_answered_one_by_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(ORDER.to_json() * 2))
    answers: list[list[int]] = [[], [1]]
    monkeypatch.setattr("bench.workloads.windflow.driver.run_order", lambda order: 1 // len(answers.pop()))
    run_orders()
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first, list(second)) == ({}, ["failed"])


@pytest.mark.parametrize("pipelined", [True, False])
def test_an_order_runs_the_application_over_its_files_whoever_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, pipelined: bool
) -> None:
    run = ps.PipeGraph.run
    monkeypatch.setattr(
        ps.PipeGraph, "run", lambda graph, engine, master, options: run(graph, engine="local")
    )
    case = cluster.ClusterData.write(cluster.PROGRAMS[1], cluster.Deployment(1, 1), 2_000, 1)
    source, out = str(case.folder / "events"), tmp_path / "out"
    run_order(Order("yahoo", case.data.options, source, str(out), pipelined, master="", partitions=2))
    assert explain_rows(case.expected_answer(), pq.read_table(out)) is None
