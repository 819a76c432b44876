"""`penstock demo` shows the program, its result, its accounts and its picture."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.apps.campaign_views import campaign_views, write_events
from penstock.cli.demo import program, results_table
from tests.support.command_line import penstock


def test_the_demo_prints_program_result_accounts_and_the_picture_s_path(tmp_path: Path) -> None:
    done = penstock("demo", "--out", str(tmp_path / "out"), "--rows", "1000", "--engine", "reference")
    assert done.code == 0
    for part in ('ps.PipeGraph("campaign-views")', "campaign-0", "filtered", "unmatched"):
        assert part in done.out
    picture = tmp_path / "out" / "campaign-views.svg"
    assert done.out.splitlines()[-1] == f"picture    {picture}"
    assert picture.read_text().startswith("<svg")


def test_the_demo_can_be_run_again_into_the_same_folder(tmp_path: Path) -> None:
    first = penstock("demo", "--out", str(tmp_path), "--rows", "500", "--engine", "reference")
    again = penstock("demo", "--out", str(tmp_path), "--rows", "500", "--engine", "reference")
    assert (again.code, again.out) == (0, first.out)


@pytest.mark.slow
@pytest.mark.xdist_group("spark-0")
def test_the_demo_runs_on_spark_and_gives_what_the_reference_engine_gives(tmp_path: Path) -> None:
    lines = [
        penstock("demo", "--out", str(tmp_path / "out"), "--rows", "500", *how)
        for how in ((), ("--engine", "reference"))
    ]
    assert [done.code for done in lines] == [0, 0]
    assert lines[0].out == lines[1].out


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
