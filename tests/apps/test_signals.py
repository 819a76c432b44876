"""Applications find what is there to be found: in rows with a known cause, and in real data where it is."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.apps import APPLICATIONS, fraud_detection, linear_road, traffic_monitoring
from tests.conformance.case import same_rows
from tests.support.applications import tiny

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real data does not lie beside this checkout")

FAILURES = [
    ("2013-12-10 06:25", "2013-12-12 05:35"),
    ("2013-12-15 17:50", "2013-12-17 17:00"),
    ("2014-01-27 14:20", "2014-01-29 13:30"),
    ("2014-02-07 14:55", "2014-02-09 14:05"),
]
"""The windows in which NAB has labelled failures of machine_temperature_system_failure."""


def run(name: str, options: Any, tables: Any) -> list[dict[str, Any]]:
    out = ps.write.memory()
    APPLICATIONS[name].graph(options, tables=tables, writer=out).run("local")
    return [dict(row) for row in out.rows()]


def find_spikes() -> list[dict[str, Any]]:
    """The spikes of a real machine, by the threshold of the benchmark suite."""
    application = APPLICATIONS["spike-detection"]
    assert application.load is not None
    tables = application.load(DATA / "machine_temperature.csv")
    options = application.make_options(form="columns")
    spikes = run("spike-detection", options, tables)
    expected = application.recount(tables, options)
    same_rows(spikes, "time device value average", *(tuple(row.values()) for row in expected))
    return spikes


def has_failed(spike: dict[str, Any]) -> bool:
    """Whether NAB has labelled the moment as a part of a failure."""
    at = datetime.fromtimestamp(spike["time"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
    return any(start <= at <= end for start, end in FAILURES)


@needs_data
@pytest.mark.slow
def test_spike_detection_finds_every_labelled_failure_of_a_machine() -> None:
    # NAB's criterion: a failure is found if a detection lies in its window. Windows are a tenth of the time,
    # so that is the share of the spikes in them which says nothing.
    spikes = find_spikes()
    days = {datetime.fromtimestamp(spike["time"] / 1e6, UTC).strftime("%Y-%m-%d %H:%M") for spike in spikes}
    assert all(any(start <= day <= end for day in days) for start, end in FAILURES)
    assert sum(map(has_failed, spikes)) > 0.1 * len(spikes)
    # No threshold at all: the value that is furthest from its average.
    assert has_failed(max(spikes, key=lambda spike: abs(spike["value"] / spike["average"] - 1)))


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_the_frequent_words_of_a_novel(form: str) -> None:
    application = APPLICATIONS["word-count"]
    assert application.load is not None
    tables = application.load(DATA / "book.dat")
    options = application.make_options(form=form, every_us=1_000_000_000)
    counts: dict[str, int] = {}
    for row in run("word-count", options, tables):
        counts[row["word"]] = max(row["n"], counts.get(row["word"], 0))
    top = sorted(counts.items(), key=lambda pair: -pair[1])[:5]
    assert top == [("the", 4_089), ("and", 2_755), ("of", 2_447), ("a", 1_913), ("to", 1_747)]


@needs_data
@pytest.mark.slow
def test_the_taxis_of_beijing_in_both_forms() -> None:
    application = APPLICATIONS["traffic-monitoring"]
    assert application.load is not None
    tables = {name: rows.slice(0, 5_000) for name, rows in application.load(DATA / "taxi-traces.csv").items()}
    answers = [
        run("traffic-monitoring", application.make_options(form=form), tables) for form in application.forms
    ]
    order = [sorted((row["road"], row["speed"]) for row in rows) for rows in answers]
    assert order[0] == order[1]
    assert len(order[0]) > 100


@needs_data
@pytest.mark.slow
def test_the_model_of_the_suite_scores_as_it_says() -> None:
    misses = (1 - fraud_detection.load_model(str(DATA / "fraud-model.txt"))).tolist()
    scores = {state: misses[i][i] for i, state in enumerate(fraud_detection.STATES)}
    # Five times the same kind of transaction.
    assert [round(scores[state], 5) for state in ("MNN", "LNL", "HHS")] == [0.79419, 0.89832, 0.9958]


def test_our_own_model_is_one_of_probabilities() -> None:
    model = fraud_detection.load_model("")
    assert model.sum(axis=1) == pytest.approx(1.0)
    assert (model > 0).all()


def test_customers_who_follow_no_model_are_found_more_often() -> None:
    application = APPLICATIONS["fraud-detection"]
    frauds = {}
    for share in (0.0, 1.0):
        options = application.make_options(rows=8_000, keys=20, fraud_share=share, form="columns")
        frauds[share] = len(run("fraud-detection", options, application.generate(options)))
    assert frauds[1.0] > 5 * frauds[0.0]


def test_the_callers_with_the_highest_scores_in_all_are_the_telemarketers() -> None:
    application = APPLICATIONS["voip-stream"]
    options = application.make_options(rows=3_000, keys=150, rate=50.0, telemarketers=0.02)
    scores: Counter[str] = Counter()
    for row in run("voip-stream", options, application.generate(options)):
        scores[row["caller"]] += row["score"]
    # The generator gives the first numbers to telemarketers: 2 % of 150 callers.
    assert {caller for caller, _ in scores.most_common(3)} == {str(49_170_000_000 + 7 * i) for i in range(3)}


@pytest.mark.parametrize("mistake", ["first_roads", "forget_squares"])
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_the_mistakes_of_a_suite_can_be_asked_for_and_change_the_speeds(form: str, mistake: str) -> None:
    application = APPLICATIONS["traffic-monitoring"]
    settings: dict[str, Any] = {"rows": 200, "n_speeds": 8, "form": form}
    usual = application.make_options(**settings)
    other = application.make_options(**settings, **{mistake: False})
    # Everybody is on the first road of a cell, between two crossings.
    rows, (lat, lon, *_) = application.generate(usual)["positions"], traffic_monitoring.draw_map().lines[500]
    for name, value in (("lat", lat), ("lon", lon + 0.048)):
        rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array([value] * rows.num_rows))
    answers = []
    for options in (usual, other):
        answers.append(run("traffic-monitoring", options, {"positions": rows}))
        expected = application.recount({"positions": rows}, options)
        same_rows(answers[-1], "road speed", *(tuple(row.values()) for row in expected))
    assert {row["road"] for row in answers[0]} == {500}
    assert answers[0] != answers[1]


def test_no_toll_is_charged_where_an_accident_is_ahead() -> None:
    application, options = tiny("linear-road")
    tables = application.generate(options)
    with_accidents = application.recount(tables, options)
    untouched = linear_road.AHEAD
    try:
        linear_road.AHEAD = -1  # accidents count nowhere
        without = application.recount(tables, options)
    finally:
        linear_road.AHEAD = untouched
    assert len(with_accidents) < len(without)


def test_a_toll_grows_with_the_square_of_the_vehicles() -> None:
    application, options = tiny("linear-road")
    tolls = {row["toll"] for row in run("linear-road", options, application.generate(options))}
    assert len(tolls) > 2
    assert tolls <= {2 * n * n for n in range(1, 100)}


def test_as_benchmarked_no_toll_is_ever_charged() -> None:
    application, options = tiny("linear-road", form="benchmark")
    rows = run("linear-road", options, application.generate(options))
    assert (len(rows), {row["toll"] for row in rows}) == (3 * options.rows, {0})


def test_without_durations_as_in_one_suite_no_score_counts_them() -> None:
    application, options = tiny("voip-stream", parse_durations=False)
    tables = application.generate(options)
    assert max(row["score"] for row in application.recount(tables, options)) <= 5.0
