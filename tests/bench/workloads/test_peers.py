"""The queries that are compared with other systems: right answers, and a process that talks to a peer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench import BenchError, load_workload
from bench.peers.peer import PATHWAY, POLARS, PYSPARK, QUIX, Peer, PeerProcess, open_environment
from bench.workload import Cell, Outcome
from bench.workloads.peers.experiments import QUERIES, Query, explain_rows

HERE = Path(sys.executable)
queries = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.name)


@pytest.fixture
def polars() -> Iterator[PeerProcess]:
    process = PeerProcess(POLARS, HERE)
    yield process
    process.stop()


@queries
def test_our_programs_give_the_answer_of_the_plain_count(query: Query) -> None:
    data = query.build(150_000, 1)
    table = query.run(data)
    rows = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert explain_rows(data.expected_answer(), Outcome(lambda: rows)) is None
    assert len(rows) > 0


@pytest.mark.slow
def test_a_peer_gives_the_same_answers_in_its_own_process(polars: PeerProcess) -> None:
    for query in QUERIES:
        data = query.build(150_000, 1)
        polars.prepare(query.name, data.folder)
        assert explain_rows(data.expected_answer(), polars.run()) is None, query.name


def test_a_program_that_fails_says_which_peer_and_what_was_asked(polars: PeerProcess, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="Polars, at rest failed to prepare") as failure:
        polars.prepare("ysb", tmp_path)
    assert "events.arrow" in str(failure.value)


def test_a_process_that_ends_says_what_it_printed_last() -> None:
    process = PeerProcess(Peer("nobody", "no_such_script.py", ()), HERE)
    with pytest.raises(BenchError, match="nobody failed to prepare") as failure:
        process.prepare("ysb", Path())
    assert "no_such_script.py" in str(failure.value)
    process.stop()


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_names_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.peers.peer.ENVIRONMENTS", tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = replace(POLARS, name="nothing", requirements=("no-such-package==1",))
    with pytest.raises(BenchError, match="no environment could be made for nothing") as failure:
        PeerProcess(missing).prepare("ysb", tmp_path)
    assert "pip install no-such-package==1" in str(failure.value)


def test_rows_that_differ_are_named() -> None:
    expected = [("a", 0, 1.0), ("b", 0, 2.0)]
    assert explain_rows(expected, Outcome(lambda: [("a", 0, 1.0)])) == "expected 2 rows, got 1"
    wrong = explain_rows(expected, Outcome(lambda: [("a", 0, 1.0), ("b", 0, 2.1)]))
    assert wrong == "expected ('b', 0, 2.0), got ('b', 0, 2.1)"


def test_what_a_peer_cannot_do_is_told_with_the_reason() -> None:
    workload = load_workload("peers", "quick")
    for peer in (PATHWAY, PYSPARK, QUIX):
        remarks = [remark for remark in workload.remarks if remark.startswith(peer.name)]
        assert remarks, peer.name
        assert {remark.partition(": ")[2] for remark in remarks} == set(peer.cannot.values())
    assert QUIX.name not in {way.name for way in workload.ways}
    cells = {cell for group in workload.groups for cell in workload.cells_of(group)}
    assert Cell("FraudDetection, long input", PYSPARK.name) not in cells
    assert Cell("YSB, long input", PYSPARK.name) in cells


def test_a_peer_without_packages_of_its_own_runs_in_our_environment() -> None:
    assert open_environment(PYSPARK) == HERE


@pytest.mark.parametrize("size", ["quick", "full"])
def test_every_claim_compares_ways_of_one_case(size: str) -> None:
    workload = load_workload("peers", size)  # type: ignore[arg-type]
    assert len(workload.claims) == 17
    assert all(claim.over is not None and claim.over.case == claim.cell.case for claim in workload.claims)
