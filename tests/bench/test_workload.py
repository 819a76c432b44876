"""A workload whose names do not fit together cannot be made, and workloads are found by name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench import (
    BenchError,
    Case,
    Cell,
    Chart,
    Claim,
    Line,
    Point,
    Way,
    Workload,
    list_workloads,
    load_workload,
)

CASE = Case("few", lambda seed: [seed])
WAY = Way("length", len)


def test_a_workload_without_ways_is_refused() -> None:
    with pytest.raises(BenchError, match='workload "w" has no way'):
        Workload("w", "about", (CASE,), (), oracle=len)


def test_a_workload_without_cases_is_refused() -> None:
    with pytest.raises(BenchError, match='workload "w" has no case'):
        Workload("w", "about", (), (WAY,), oracle=len)


def test_two_ways_of_one_name_are_refused() -> None:
    with pytest.raises(BenchError, match='has two ways named "length"'):
        Workload("w", "about", (CASE,), (WAY, WAY), oracle=len)


@pytest.mark.parametrize(
    ("cell", "fact"), [(Cell("fwe", "length"), 'case "fwe"'), (Cell("few", "lenght"), 'way "lenght"')]
)
def test_a_claim_about_an_unknown_cell_is_refused_and_names_the_nearest(cell: Cell, fact: str) -> None:
    with pytest.raises(BenchError) as caught:
        Workload("w", "about", (CASE,), (WAY,), oracle=len, claims=(Claim("it is quick", cell, 1),))
    assert fact in caught.value.fact
    assert caught.value.hint in ('did you mean "few"?', 'did you mean "length"?')


def test_the_second_cell_of_a_claim_must_exist_as_well() -> None:
    claim = Claim("it is quick", Cell("few", "length"), 1, over=Cell("few", "width"))
    with pytest.raises(BenchError, match='about way "width", which it does not have'):
        Workload("w", "about", (CASE,), (WAY,), oracle=len, claims=(claim,))


def test_a_way_for_an_unknown_case_is_refused() -> None:
    with pytest.raises(BenchError, match='has way "length" for case "fwe", which it does not have') as caught:
        Workload("w", "about", (CASE,), (Way("length", len, only=("fwe",)),), oracle=len)
    assert caught.value.hint == 'did you mean "few"?'


def test_a_claim_about_a_way_on_a_case_that_it_is_not_tried_on_is_refused() -> None:
    cases, ways = (CASE, Case("many", lambda seed: [seed])), (WAY, Way("size", len, only=("many",)))
    claim = Claim("it is quick", Cell("few", "size"), 1)
    with pytest.raises(BenchError, match='about case "few" and way "size", which it does not have'):
        Workload("w", "about", cases, ways, oracle=len, claims=(claim,))


def test_a_claim_across_groups_is_refused() -> None:
    cases = (CASE, Case("many", lambda seed: [seed], group="other"))
    claim = Claim("it is quick", Cell("few", "length"), 1, over=Cell("many", "length"))
    with pytest.raises(BenchError, match='claims "it is quick" across groups') as caught:
        Workload("w", "about", cases, (WAY,), oracle=len, claims=(claim,))
    assert caught.value.hint == "put both cases in one group"


def test_a_chart_of_an_unknown_cell_is_refused() -> None:
    chart = Chart("a sweep", "", "n", (Line("length", (Point(1, "1", Cell("fwe", "length")),)),))
    with pytest.raises(BenchError, match='draws "a sweep" with case "fwe", which it does not have') as caught:
        Workload("w", "about", (CASE,), (WAY,), oracle=len, charts=(chart,))
    assert caught.value.hint == 'did you mean "few"?'


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Write a package of two workloads, `lengths` and `widths`."""
    folder = tmp_path / "tiny_workloads"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    source = (
        "from bench import Case, Way, Workload\n"
        "def workload(size):\n"
        "    cases = (Case(size, lambda seed: [seed]),)\n"
        "    return Workload('{0}', 'about', cases, (Way('length', len),), oracle=len)\n"
    )
    for name in ("lengths", "widths"):
        (folder / f"{name}.py").write_text(source.format(name))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("tiny_workloads")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("tiny_workloads")


def test_workloads_are_listed_by_file_name(package: ModuleType) -> None:
    assert list_workloads(package) == ["lengths", "widths"]


def test_a_workload_is_found_by_name_and_made_at_the_size_asked_for(package: ModuleType) -> None:
    assert load_workload("widths", "quick", package).cases[0].name == "quick"


def test_an_unknown_workload_lists_the_known_ones_nearest_first(package: ModuleType) -> None:
    with pytest.raises(BenchError) as caught:
        load_workload("width", "quick", package)
    assert caught.value.fact == 'there is no workload "width"'
    assert caught.value.detail == "workloads: widths, lengths"
    assert caught.value.hint == "try: python -m bench widths --quick"


def test_a_part_of_a_workload_has_the_cases_claims_and_charts_of_its_groups() -> None:
    cases = (Case("few", lambda seed: [seed], group="a"), Case("many", lambda seed: [seed] * 9, group="b"))
    ways = (WAY, Way("sum", sum, only=("many",)))
    claims = (Claim("quick", Cell("few", "length"), 1), Claim("too", Cell("many", "sum"), 1))
    charts = (Chart("c", "t", "n", (Line("l", (Point(1, "1", Cell("many", "sum")),)),)),)
    whole = Workload("w", "about", cases, ways, oracle=len, claims=claims, charts=charts)
    part = whole.select_groups(["a"])
    assert [case.name for case in part.cases] == ["few"]
    assert [way.name for way in part.ways] == ["length"]
    assert (part.claims, part.charts) == (claims[:1], ())
    assert whole.select_groups(["a", "b"]).claims == claims


def test_a_group_that_a_workload_does_not_have_is_refused() -> None:
    whole = Workload("w", "about", (Case("few", lambda seed: [seed], group="sorting"),), (WAY,), oracle=len)
    with pytest.raises(BenchError, match='was asked for group "sortign", which it does not have') as caught:
        whole.select_groups(["sortign"])
    assert caught.value.hint == 'did you mean "sorting"?'


@pytest.mark.parametrize("size", ["quick", "full"])
def test_the_experiments_on_spark_fit_together(size: Any) -> None:
    workload = load_workload("spark", size)
    tried = {
        (case.name, way.name)
        for case in workload.cases
        for way in workload.ways
        if way.is_tried_on(case.name)
    }
    assert {(claim.cell.case, claim.cell.way) for claim in workload.claims} <= tried
    assert {claim.over for claim in workload.claims if claim.over} <= {Cell(*names) for names in tried}
