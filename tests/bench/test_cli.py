"""`python -m bench`, on a workload made for the test."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import list_workloads, load_workload
from tests.support.command_line import bench

TINY = """
from bench import Case, Cell, Claim, Way, Workload

def workload(size):
    return Workload(
        "tiny", "add numbers", (Case(size, lambda seed: [seed, 2, 3]),),
        ways=(Way("sum", sum), Way("loop", {loop})),
        oracle=lambda data: data[0] + 5,
        claims=(Claim("it takes no longer than {limit} s", Cell(size, "sum"), {limit}),),
    )
"""

Offer = Callable[..., None]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Make `tiny` the only workload there is."""
    folder = tmp_path / "cli_workloads"
    folder.mkdir()
    (folder / "__init__.py").write_text("")

    def write(loop: str = "lambda data: sum(list(data))", limit: float = 100) -> None:
        (folder / "tiny.py").write_text(TINY.format(loop=loop, limit=limit))
        for name in [name for name in sys.modules if name.startswith("cli_workloads")]:
            monkeypatch.delitem(sys.modules, name)
        package = importlib.import_module("cli_workloads")
        monkeypatch.setattr(load_workload, "__defaults__", ("full", package))
        monkeypatch.setattr(list_workloads, "__defaults__", (package,))

    monkeypatch.syspath_prepend(str(tmp_path))
    write()
    return write


@pytest.mark.usefixtures("offer")
def test_bench_without_a_name_lists_the_workloads() -> None:
    done = bench()
    assert (done.code, done.out.splitlines()[1].split("  ")) == (0, ["tiny", "", "", "add numbers"])


@pytest.mark.usefixtures("offer")
def test_a_workload_is_measured_by_name_and_its_claims_are_told() -> None:
    done = bench("tiny", "--quick", "--rounds", "2")
    assert done.code == 0
    assert "HELD: it takes no longer than 100 s" in done.out
    assert "2 timed rounds" in done.out


@pytest.mark.usefixtures("offer")
def test_options_may_come_before_the_name() -> None:
    assert bench("--quick", "--rounds", "1", "tiny").code == 0


def test_a_claim_that_does_not_hold_ends_with_code_3(offer: Offer) -> None:
    offer(limit=0)
    done = bench("tiny", "--rounds", "1")
    assert (done.code, "NOT HELD" in done.out) == (3, True)


def test_a_wrong_answer_ends_with_code_1_and_no_traceback(offer: Offer) -> None:
    offer(loop="lambda data: 7")
    done = bench("tiny", "--rounds", "1")
    assert done.code == 1
    assert done.err.startswith('WrongAnswer: way "loop" gave a wrong answer on case "full" of "tiny"')
    assert "Traceback" not in done.err


@pytest.mark.usefixtures("offer")
def test_json_goes_to_standard_output_alone_with_a_dash() -> None:
    done = bench("tiny", "--rounds", "2", "--seed", "9", "--json", "-")
    fields = json.loads(done.out)
    assert (fields["workload"], fields["seed"], fields["rounds"]) == ("tiny", 9, 2)


@pytest.mark.usefixtures("offer")
def test_json_and_html_are_written_to_files(tmp_path: Path) -> None:
    result, page = tmp_path / "a.json", tmp_path / "a.html"
    done = bench("tiny", "--rounds", "1", "--json", str(result), "--html", str(page))
    assert done.err.splitlines() == [f"wrote {result}", f"wrote {page}"]
    assert json.loads(result.read_text())["kind"] == "penstock-bench"
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.usefixtures("offer")
@pytest.mark.parametrize(("place", "fact"), [("no/where.json", "does not exist"), (".", "is a folder")])
def test_a_place_that_cannot_be_written_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, fact: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = bench("tiny", "--json", place)
    assert (done.code, fact in done.err, done.out) == (2, True, "")


@pytest.mark.usefixtures("offer")
def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    done = bench("tyni")
    assert done.code == 2
    assert done.err.splitlines() == [
        'BenchError: there is no workload "tyni"',
        "  detail: workloads: tiny",
        "  hint:   try: python -m bench tiny --quick",
    ]


@pytest.fixture
def results(tmp_path: Path, offer: Offer) -> tuple[str, str]:
    """Write two results of which the second took ten times as long."""
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    bench("tiny", "--rounds", "5", "--json", str(before))
    fields = json.loads(before.read_text())
    for one in fields["figures"]:
        one["samples_ns"] = [1_000] * 5
    before.write_text(json.dumps(fields))
    for one in fields["figures"]:
        one["samples_ns"] = [10_000] * 5
    after.write_text(json.dumps(fields))
    return str(before), str(after)


def test_compare_tells_what_became_slower(results: tuple[str, str]) -> None:
    done = bench("compare", *results)
    assert (done.code, done.out.count("slower")) == (0, 2)


def test_compare_ends_with_code_3_only_when_asked_to_fail_on_slower(results: tuple[str, str]) -> None:
    before, after = results
    assert bench("compare", before, after, "--fail-on", "slower").code == 3
    assert bench("compare", after, before, "--fail-on", "slower").code == 0
    assert bench("compare", before, after, "--fail-on", "slower", "--noise", "950").code == 0


def test_compare_gives_json_to_scripts(results: tuple[str, str]) -> None:
    changes = json.loads(bench("compare", *results, "--json").out)["changes"]
    assert changes[0] == {"case": "full", "way": "sum", "ratio": 10.0, "is": "slower"}


def test_compare_of_a_missing_result_ends_with_code_2(results: tuple[str, str]) -> None:
    done = bench("compare", results[0], "none.json")
    assert (done.code, done.err.splitlines()[0]) == (2, 'BenchError: cannot read the result "none.json"')
