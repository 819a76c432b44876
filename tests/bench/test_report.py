"""Kept results: small, complete, and the only source of the figures in README and docs/results.md."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench import (
    BenchError,
    Cell,
    Chart,
    Claim,
    Line,
    Point,
    Result,
    build_page,
    format_result,
    load_result,
    load_workload,
    measure,
)
from bench.report.command import COMMANDS, build_documents
from bench.report.markdown import build_markdown
from bench.report.overview import build_overview, topic_of
from bench.report.readme import BEGIN, END, ROWS, FiguresInWords, Row, fill_table
from bench.report.summary import command_of, file_of, load_summaries, save_summary, summarise
from bench.result import Figures
from tests.docs.blocks import ROOT
from tests.support.sort_workload import ScriptedClock, build_sorting


def measure_sorting(rounds: int = 9) -> Result:
    clock = ScriptedClock()
    many = Cell("many", "built-in")
    sorting = build_sorting(clock)
    claims = (
        Claim("built-in is fast", many, 1 / 2, Cell("many", "insertion"), speed="rows"),
        Claim("built-in takes no time", many, 1e-12),
    )
    return measure(replace(sorting, claims=claims), rounds=rounds, clock=clock)


def test_a_summary_has_the_quartiles_of_all_samples_and_no_others() -> None:
    result = measure_sorting()
    summary = summarise(result, "python -m bench sorting")
    for whole, part in zip(result.figures, summary.figures, strict=True):
        assert part.seconds == whole.seconds
        assert len(part.samples_ns) == 5
        assert part.warm_up_ns == ()
    assert summary.verdicts == result.verdicts


def test_a_summary_is_read_as_it_was_written(tmp_path: Path) -> None:
    summary = summarise(measure_sorting(), "python -m bench sorting")
    path = tmp_path / "more" / "sorting.json"
    save_summary(summary, path)
    assert load_result(path) == summary
    assert load_summaries(path.parent) == {"sorting": summary}


def test_a_result_without_a_command_is_refused(tmp_path: Path) -> None:
    save_summary(measure_sorting(), tmp_path / "sorting.json")
    with pytest.raises(BenchError, match='the result "sorting" does not name its command') as failure:
        load_summaries(tmp_path)
    assert "--save" in str(failure.value)


def test_a_folder_without_results_is_told(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="there are no results in"):
        load_summaries(tmp_path)


def test_a_file_is_named_by_workload_and_groups() -> None:
    assert file_of("spark", ["grid, 1,000"], Path("x")) == Path("x/spark-grid-1-000.json")
    assert file_of("windows", (), Path("x")) == Path("x/windows.json")
    assert (
        command_of("peers", "full", ["YSB*"], rounds=3) == "python -m bench peers --group 'YSB*' --rounds 3"
    )


def test_the_page_tells_every_claim_with_its_command() -> None:
    summary = summarise(measure_sorting(), "python -m bench sorting")
    text = build_markdown({"sorting": summary})
    assert "python -m bench sorting" in text
    assert "| yes | built-in is fast | 3.00x | 3.00x to 3.00x | at least 2.00x |" in text
    section = text[text.index("## Claims that did not hold") : text.index("## sorting")]
    assert "built-in takes no time" in section
    assert "built-in is fast" not in section


def test_what_is_not_measured_is_told_everywhere() -> None:
    remark = "Nobody, sorting: it cannot & will not"
    summary = summarise(replace(measure_sorting(), remarks=(remark,)), "python -m bench sorting")
    assert f"not measured: {remark}" in format_result(summary)
    assert "<li>Nobody, sorting: it cannot &amp; will not</li>" in build_page(summary)
    assert f"Not measured:\n\n- {remark}\n" in build_markdown({"sorting": summary})


class Values(HTMLParser):
    """The tags and attribute values of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value or "" for _, value in attrs]


def test_the_page_of_plots_needs_nothing_else_and_draws_speed_ups() -> None:
    summary = summarise(measure_sorting(), "python -m bench sorting")
    chart = Chart("Ever more", "", "keys", (Line("it", (Point(1, "few", Cell("few", "built-in")),)),))
    page = Values(build_overview({"sorting": replace(summary, charts=(chart,))}))
    assert page.tags.count("svg") == 2
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not [value for value in page.values if "://" in value or value.startswith("//")]


@pytest.mark.parametrize(
    ("chart", "topic"),
    [
        (Chart("a", "", "keys", ()), "Keys"),
        (Chart("a", "", "slide", ()), "Windows per row"),
        (Chart("a", "", "mean delay", ()), "Disorder"),
        (Chart("a", "", "threads", ()), "Cores"),
        (Chart("a", "", "", (), "words/s", "even", "bars"), "Throughput"),
        (Chart("a", "", "", (), "s", "even", "boxes"), "Latency"),
        (Chart("Sustainable throughput", "", "query", ()), "Sustainable throughput"),
        (Chart("a", "", "part", (), "s"), "More"),
    ],
)
def test_a_chart_is_shown_under_what_it_is_about(chart: Chart, topic: str) -> None:
    assert topic_of(chart) == topic


def test_the_table_is_written_between_its_marks() -> None:
    summary = summarise(measure_sorting(), "python -m bench sorting")
    row = Row("sorting", "sorting", lambda of: f"{of.times('many', 'insertion', 'built-in')} times")
    other = Row("something not kept", "nothing", lambda of: "1")
    text = fill_table(f"before\n{BEGIN}\nold\n{END}\nafter", {"sorting": summary}, (row, other))
    assert "| sorting | 3.00 times | `python -m bench sorting` |" in text
    assert "old" not in text
    assert "not kept" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert fill_table(text, {"sorting": summary}, (row, other)) == text


def test_a_row_about_a_cell_that_was_not_measured_is_told() -> None:
    summary = summarise(measure_sorting(), "python -m bench sorting")
    row = Row("sorting", "sorting", lambda of: of.times("many", "bubble", "built-in"))
    with pytest.raises(BenchError, match='a figure of "bubble" on "many", which no kept result has'):
        fill_table(f"{BEGIN}\n{END}", {"sorting": summary}, (row,))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.measured)
def test_every_row_of_the_table_is_about_cells_of_a_workload(row: Row) -> None:
    """Every cell of the workload has a made-up figure; the sentence must find those it needs."""
    workload = load_workload(row.file.split("-")[0], "quick")
    notes = dict.fromkeys(("p50 (s)", "p99 (s)", "average latency (s)"), (0.001,))
    figures = tuple(
        Figures(cell, {"rows": 1_000, **cases[cell.case].units}, (), (1_000,), 1, notes)
        for cases in [{case.name: case for case in workload.cases}]
        for group in workload.groups
        for cell in sorted(workload.cells_of(group))
    )
    result = replace(measure_sorting(1), figures=figures)
    assert re.search(r"\d", row.say(FiguresInWords(result)))


def test_a_readme_without_marks_is_told() -> None:
    with pytest.raises(BenchError, match="README has no place for the table of figures"):
        fill_table("nothing", {}, ())


@pytest.mark.parametrize("name", ["README.md", "docs/results.md"])
def test_documents_are_what_the_kept_results_give(name: str) -> None:
    text = build_documents()[ROOT / name]
    assert (ROOT / name).read_text(encoding="utf-8") == text, "run: python -m bench results"


def test_every_row_of_readme_names_a_command_of_a_kept_result() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme[readme.index("## How fast") : readme.index("## What it can do")]
    rows = re.findall(r"^\| .* \| (.*) \|$", section, re.M)[1:]
    commands = {f"`{result.command}`" for result in load_summaries().values()}
    assert rows
    assert set(rows) <= commands
    # Outside of the generated table the section has no figures of its own.
    outside = section[: section.index(BEGIN)] + section[section.index(END) :]
    assert not re.findall(r"\d", outside)


def test_what_is_kept_is_what_is_measured_again() -> None:
    again = {f"python -m bench {command}".replace('"', "'") for command in COMMANDS}
    commands = {result.command.split(" --rounds")[0] for result in load_summaries().values()}
    assert commands <= again
    assert {row.file for row in ROWS} <= {_file_of(command) for command in COMMANDS}


def _file_of(command: str) -> str:
    workload = command.split()[0]
    groups = [group.strip('"') for group in re.findall(r'--group ("[^"]+"|\S+)', command)]
    return file_of(workload, groups).stem
