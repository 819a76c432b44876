"""Charts: what was measured is where it should be, every line can be told apart, and tables hide nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench import (
    Cell,
    Chart,
    Claim,
    Line,
    Point,
    Result,
    build_page,
    format_result,
    load_result,
    measure,
    to_json,
)
from bench.draw import STYLES, draw_chart, is_wide
from bench.page import chart_table
from bench.result import Figures
from bench.text import format_amount, format_tick
from tests.support.sort_workload import ScriptedClock, build_sorting


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


def measure_sweep(chart: Chart = SWEEP) -> Result:
    """Built-in sorting takes 10 ns a number, insertion three times as much."""
    clock = ScriptedClock()
    return measure(replace(build_sorting(clock), charts=(chart,)), rounds=3, clock=clock)


def figures(result: Result) -> dict[Cell, Figures]:
    return {one.cell: one for one in result.figures}


def test_a_result_with_charts_and_notes_survives_json(tmp_path: Path) -> None:
    result = measure_sweep()
    noted = replace(result.figures[0], notes={"widths": (1.5, 2.5, 3.5)})
    result = replace(result, figures=(noted, *result.figures[1:]))
    file = tmp_path / "result.json"
    file.write_text(to_json(result))
    assert load_result(file) == result


def test_a_page_drawn_from_the_json_is_the_page_drawn_at_once(tmp_path: Path) -> None:
    result = measure_sweep()
    file = tmp_path / "result.json"
    file.write_text(to_json(result))
    assert build_page(load_result(file)) == build_page(result)


def test_every_line_has_its_name_and_every_place_its_label() -> None:
    text = draw_chart(SWEEP, figures(measure_sweep()))
    assert text.startswith("<svg")
    assert text.count("plain &amp; simple") == 1
    assert text.count(">by hand</text>") == 1
    assert text.count(">few</text>") == text.count(">many</text>") == 1
    assert "Sorting &lt;ever&gt; more" in text


def test_the_same_result_gives_the_same_drawing() -> None:
    measured = figures(measure_sweep())
    assert draw_chart(SWEEP, measured) == draw_chart(SWEEP, measured)


def test_points_stand_left_to_right_as_their_places_do() -> None:
    three = {"c": 100.0, "a": 1.0, "b": 10.0}
    chart = replace(SWEEP, lines=(line("one", "built-in", three),))
    assert list(chart.places) == ["a", "b", "c"]
    assert list(replace(chart, spacing="even").places.values()) == [0, 1, 2]
    assert list(replace(chart, spacing="even").places) == ["c", "a", "b"]


def test_a_chart_without_any_figure_draws_nothing() -> None:
    assert draw_chart(replace(SWEEP, up="no such note"), figures(measure_sweep())) == ""


def test_lines_of_one_chart_differ_in_look_unless_asked_to_look_alike() -> None:
    colours = {colour for colour, _, _ in STYLES}
    text = draw_chart(SWEEP, figures(measure_sweep()))
    assert {colour for colour in colours if colour in text} == {STYLES[0][0], STYLES[1][0]}
    alike = replace(SWEEP, lines=tuple(replace(line, style=6) for line in SWEEP.lines))
    text = draw_chart(alike, figures(measure_sweep()))
    assert {colour for colour in colours if colour in text} == {STYLES[6][0]}


def test_the_table_beneath_has_all_medians_with_quartiles_and_the_work() -> None:
    head, rows = chart_table(SWEEP, figures(measure_sweep()))
    assert head == ["numbers", "plain & simple", "by hand", "rows"]
    assert rows == [
        ["few", "100 M\n100 M to 100 M", "–", "10"],
        ["many", "100 M\n100 M to 100 M", "33.3 M\n33.3 M to 33.3 M", "100"],
    ]


def test_the_table_says_where_a_line_had_fewer_rows_than_the_first() -> None:
    points = (Point(100, "many", Cell("few", "insertion")),)
    _, rows = chart_table(
        replace(SWEEP, lines=(SWEEP.lines[0], Line("less", points))), figures(measure_sweep())
    )
    assert rows[1][2] == "33.3 M\n33.3 M to 33.3 M\n10 rows"


def test_bars_have_a_table_of_one_column() -> None:
    head, rows = chart_table(replace(SWEEP, form="bars", up="s"), figures(measure_sweep()))
    assert head == ["numbers", "s", "rows"]
    assert rows[0] == ["few", "0.100 us\n0.100 us to 0.100 us", "10"]


@pytest.mark.parametrize("form", ["lines", "bars"])
def test_the_page_has_each_chart_with_its_title_caption_and_table_and_all_figures(form: str) -> None:
    text = build_page(measure_sweep(replace(SWEEP, form="bars") if form == "bars" else SWEEP))
    assert "<h2>Sorting &lt;ever&gt; more</h2>" in text
    assert "<figcaption>Figure 1.</figcaption>" in text
    assert "rows/s: medians, quartiles beneath" in text
    assert text.count("<svg") == 1
    assert text.count("<td>insertion</td>") == 2


def test_claims_about_speeds_invert_times() -> None:
    clock = ScriptedClock()
    many = Cell("many", "built-in")
    claims = (
        Claim("100 M rows/s", many, 1e-6, speed="rows"),
        Claim("twice as fast", many, 1 / 2, Cell("many", "insertion"), "rows"),
        Claim("no slower than itself", Cell("many", "insertion"), 1, many),
    )
    text = format_result(measure(replace(build_sorting(clock), claims=claims), rounds=3, clock=clock))
    assert "HELD: 100 M rows/s (measured 100 M rows/s, quartiles 100 M rows/s to 100 M rows/s; " in text
    assert "wanted at least 100 M rows/s)" in text
    assert "HELD: twice as fast (measured 3.00x, quartiles 3.00x to 3.00x; wanted at least 2.00x)" in text
    assert (
        "NOT HELD: no slower than itself (measured 3.00x, quartiles 3.00x to 3.00x; wanted at most 1.00x)"
        in text
    )
    assert "2 of 3 claims held" in text


def test_an_axis_is_logarithmic_only_when_values_span_too_much() -> None:
    assert not is_wide([50, 100])
    assert is_wide([5, 100])
    assert not is_wide([0, 100])


def test_amounts_are_short_and_ticks_shorter() -> None:
    assert (format_amount(0, "rows/s"), format_amount(2.5e9, "rows/s"), format_amount(12.0, "slices")) == (
        "0",
        "2.50 G",
        "12.0",
    )
    assert (format_amount(0.002, "median per batch (s)"), format_amount(2_048, "held (bytes)")) == (
        "2.00 ms",
        "2.05 k",
    )
    assert (format_tick(1e6, "rows/s"), format_tick(0.5, "s"), format_tick(1_000, "x")) == (
        "1 M",
        "500 ms",
        "1 k",
    )
