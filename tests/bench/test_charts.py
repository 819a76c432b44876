"""Charts: what was measured is where it should be, every line can be told apart, and tables hide nothing."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.bench import Cell, Chart, Claim, Line, Point, Result, load, measure, page, report, to_json
from penstock.bench.axis import Scale, log_ticks, scale_of
from penstock.bench.chart_table import chart_table
from penstock.bench.lines import lines
from penstock.bench.result import Figures
from penstock.bench.words import amount, mark
from tests.bench.sorting import ScriptedClock, sorting


def line(name: str, way: str, cases: dict[str, float]) -> Line:
    return Line(name, tuple(Point(at, case, Cell(case, way)) for case, at in cases.items()))


SWEEP = Chart(
    "Sorting <ever> more",
    "Figure 1.",
    "numbers",
    (
        line("plain & simple", "built-in", {"few": 10, "many": 100}),
        line("by hand", "insertion", {"many": 100}),
    ),
)


def swept(chart: Chart = SWEEP) -> Result:
    """Built-in sorting takes 10 ns a number, insertion three times as much."""
    clock = ScriptedClock()
    return measure(replace(sorting(clock), charts=(chart,)), rounds=3, clock=clock)


def figures(result: Result) -> dict[Cell, Figures]:
    return {one.cell: one for one in result.figures}


def test_a_result_with_charts_and_notes_survives_json(tmp_path: Path) -> None:
    result = swept()
    noted = replace(result.figures[0], notes={"widths": (1.5, 2.5, 3.5)})
    result = replace(result, figures=(noted, *result.figures[1:]))
    file = tmp_path / "result.json"
    file.write_text(to_json(result))
    assert load(file) == result


def test_a_page_drawn_from_the_json_is_the_page_drawn_at_once(tmp_path: Path) -> None:
    result = swept()
    file = tmp_path / "result.json"
    file.write_text(to_json(result))
    assert page(load(file)) == page(result)


def test_every_line_has_its_points_its_whiskers_and_its_name() -> None:
    text = lines(SWEEP, figures(swept()))
    assert text.count('class="whisker"') == 3
    assert "plain &amp; simple, few: median 100 M, quartiles 100 M to 100 M rows/s" in text
    assert text.count(">by hand</text>") == 1
    assert 'aria-label="Sorting &lt;ever&gt; more"' in text


def test_points_stand_left_to_right_as_their_places_do() -> None:
    three = {"c": 100.0, "a": 1.0, "b": 10.0}
    chart = replace(SWEEP, lines=(line("one", "built-in", three),))
    assert list(chart.places) == ["a", "b", "c"]
    assert list(replace(chart, spacing="even").places.values()) == [0, 1, 2]
    assert list(replace(chart, spacing="even").places) == ["c", "a", "b"]


def test_a_chart_without_any_figure_draws_nothing() -> None:
    assert lines(replace(SWEEP, up="no such note"), figures(swept())) == ""


def test_names_beside_the_lines_never_overlap_and_stay_in_the_drawing() -> None:
    same = tuple(line(f"line {at}", "built-in", {"few": 10, "many": 100}) for at in range(8))
    text = lines(replace(SWEEP, lines=same), figures(swept()))
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="value"', text))
    assert len(heights) == 8
    assert all(after - before >= 18 for before, after in itertools.pairwise(heights))
    assert heights[0] > 0
    assert heights[-1] < 360


def test_lines_of_one_chart_differ_in_look_unless_told() -> None:
    text = lines(SWEEP, figures(swept()))
    assert set(re.findall(r'class="(s\d)"', text)) == {"s0", "s1"}
    told = replace(SWEEP, lines=tuple(replace(each, style=6) for each in SWEEP.lines))
    assert set(re.findall(r'class="(s\d)"', lines(told, figures(swept())))) == {"s6"}


def test_the_table_beneath_has_all_medians_with_quartiles_and_the_work() -> None:
    head, rows = chart_table(SWEEP, figures(swept()))
    assert head == ["numbers", "plain & simple", "by hand", "rows"]
    assert rows == [
        ["few", "100 M\n100 M to 100 M", "–", "10"],
        ["many", "100 M\n100 M to 100 M", "33.3 M\n33.3 M to 33.3 M", "100"],
    ]


def test_the_table_says_where_a_line_had_fewer_rows_than_the_first() -> None:
    points = (Point(100, "many", Cell("few", "insertion")),)
    _, rows = chart_table(replace(SWEEP, lines=(SWEEP.lines[0], Line("less", points))), figures(swept()))
    assert rows[1][2] == "33.3 M\n33.3 M to 33.3 M\n10 rows"


def test_bars_have_a_table_of_one_column() -> None:
    head, rows = chart_table(replace(SWEEP, form="bars", up="s"), figures(swept()))
    assert head == ["numbers", "s", "rows"]
    assert rows[0] == ["few", "0.100 us\n0.100 us to 0.100 us", "10"]


@pytest.mark.parametrize("form", ["lines", "bars"])
def test_the_page_has_each_chart_with_its_title_caption_and_table_and_all_figures(form: str) -> None:
    text = page(swept(replace(SWEEP, form="bars") if form == "bars" else SWEEP))
    assert "<h2>Sorting &lt;ever&gt; more</h2>" in text
    assert "<figcaption>Figure 1.</figcaption>" in text
    assert "rows/s: medians, quartiles beneath" in text
    assert text.count("<svg") == 1
    assert text.count("<td>insertion</td>") == 2


def test_the_page_prints_in_the_light_scheme() -> None:
    text = page(swept())
    assert "@media print" in text
    assert text.count("--back: #ffffff") == 2


def test_claims_told_as_speeds_turn_times_around() -> None:
    clock = ScriptedClock()
    many = Cell("many", "built-in")
    claims = (
        Claim("100 M rows/s", many, 1e-6, speed="rows"),
        Claim("twice as fast", many, 1 / 2, Cell("many", "insertion"), "rows"),
        Claim("no slower than itself", Cell("many", "insertion"), 1, many),
    )
    text = report(measure(replace(sorting(clock), claims=claims), rounds=3, clock=clock))
    assert "HELD: 100 M rows/s (measured 100 M rows/s, quartiles 100 M rows/s to 100 M rows/s; " in text
    assert "wanted at least 100 M rows/s)" in text
    assert "HELD: twice as fast (measured 3.00x, quartiles 3.00x to 3.00x; wanted at least 2.00x)" in text
    assert (
        "NOT HELD: no slower than itself (measured 3.00x, quartiles 3.00x to 3.00x; wanted at most 1.00x)"
        in text
    )
    assert "2 of 3 claims held" in text


def test_a_scale_begins_at_zero_unless_values_span_too_much() -> None:
    assert scale_of([50, 100], 300, 0) == Scale(0, 108, 300, 0, log=False)
    wide = scale_of([5, 100], 300, 0)
    assert (wide.log, wide.low) == (True, 1)


def test_equal_ratios_are_equal_lengths_on_a_logarithmic_scale() -> None:
    scale = Scale(1, 100, 0, 200, log=True)
    assert [scale.place(value) for value in (1, 10, 100)] == [0, 100, 200]
    assert Scale(5, 5, 0, 200, log=True).place(5) == 100


@pytest.mark.parametrize(
    ("low", "high", "places"),
    [(1, 1_000, [1, 10, 100, 1_000]), (3, 60, [5, 10, 20, 50]), (0.5, 2, [0.5, 1, 2])],
)
def test_logarithmic_ticks_fall_on_round_places(low: float, high: float, places: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(places)


def test_amounts_are_short_and_marks_shorter() -> None:
    assert (amount(0, "rows/s"), amount(2.5e9, "rows/s"), amount(12.0, "slices")) == ("0", "2.50 G", "12.0")
    assert (amount(0.002, "median per batch (s)"), amount(2_048, "held (bytes)")) == ("2.00 ms", "2.05 k")
    assert (mark(1e6, "rows/s"), mark(0.5, "s"), mark(1_000, "x")) == ("1 M", "500 ms", "1 k")
