"""`penstock demo` shows the program, its result, its accounts and its picture."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.apps.campaign_views import campaign_views, write_events
from penstock.cli import comparison
from penstock.cli.comparison import Comparison
from penstock.cli.demo import describe, program, results_table
from tests.support.command_line import penstock


def test_the_demo_prints_program_result_accounts_and_the_picture_s_path(tmp_path: Path) -> None:
    done = penstock("demo", "--out", str(tmp_path / "out"), "--rows", "1000", "--engine", "reference")
    assert done.code == 0
    for part in ('ps.PipeGraph("campaign-views")', "campaign-0", "filtered", "unmatched"):
        assert part in done.out
    picture, page = tmp_path / "out" / "campaign-views.svg", tmp_path / "out" / "report.html"
    assert done.out.splitlines()[-2:] == [f"picture    {picture}", f"report     {page}"]
    assert picture.read_text().startswith("<svg")


def test_the_page_of_the_demo_stands_alone(tmp_path: Path) -> None:
    penstock("demo", "--out", str(tmp_path), "--rows", "1000", "--engine", "reference")
    page = (tmp_path / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<polyline") == 5  # one for each campaign
    for part in ("only-views", "What became of the rows", "ps.PipeGraph"):
        assert part in page
    assert not any(part in page for part in ("<script", "href=", "src=", "url(", "How fast"))
    assert page.count("http") == page.count('xmlns="http://www.w3.org/2000/svg"')  # a name, not an address


def test_the_demo_can_be_run_again_into_the_same_folder(tmp_path: Path) -> None:
    first = penstock("demo", "--out", str(tmp_path), "--rows", "500", "--engine", "reference")
    again = penstock("demo", "--out", str(tmp_path), "--rows", "500", "--engine", "reference")
    assert (again.code, again.out) == (0, first.out)


@pytest.mark.slow
@pytest.mark.xdist_group("spark-0")
def test_the_demo_runs_on_spark_beside_spark_s_own_windows_and_gives_what_the_reference_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "ROUNDS", 1)
    words = ("demo", "--out", str(tmp_path / "out"), "--rows", "500")
    on_spark = penstock(*words, "--compare-rows", "4000")
    page = (tmp_path / "out" / "report.html").read_text()
    judge = penstock(*words, "--engine", "reference")
    assert (on_spark.code, judge.code) == (0, 0)
    compared, rest = on_spark.out.split("The same program on 4,000 events, files to files on Spark:\n")
    assert compared + rest[rest.index("results ") :] == judge.out
    assert "windows compared, all equal" in rest
    assert page.count("<rect") >= 2
    assert "How fast" in page


def test_a_comparison_with_another_answer_says_so() -> None:
    text = describe(Comparison(rows=10, ours=300.0, spark=100.0, windows=7, different=2))
    assert "Penstock is 3.0 times as fast; 7 windows compared, 2 DIFFERENT" in text


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "taken"
    file.write_text("")
    done = penstock("demo", "--out", str(file))
    assert (done.code, "is a file; name a folder" in done.err) == (2, True)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = penstock("demo", "--out", str(tmp_path / "taken" / "below"))
    assert (done.code, "cannot be written: Not a directory" in done.err) == (2, True)


def test_the_program_shown_is_the_program_that_runs() -> None:
    lines = program().splitlines()
    assert lines[0] == 'graph = ps.PipeGraph("campaign-views")'
    assert lines[-1].startswith("views.late.sink(")


def test_the_table_holds_the_views_of_every_campaign(tmp_path: Path) -> None:
    write_events(tmp_path, rows=1_000)
    campaign_views(tmp_path).run(engine="reference")
    views = pq.read_table(tmp_path / "views")
    table = results_table(views)
    assert [column.header for column in table.columns] == [
        "until",
        *(f"campaign-{n}" for n in range(5)),
        "revenue",
    ]
    assert table.row_count == 5
