"""Real data, where it lies beside the checkout: answers against a recount in a few lines of Python."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pytest

import penstock as ps
from tests.conformance.case import Case

FEATURE = "Hourly means and word counts of real data"
DATA = Path(__file__).parents[2].parent / "shared" / "data"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.is_dir(), reason="the real data does not lie beside this checkout"),
]


def test_the_hourly_mean_temperature_of_a_machine(case: Case) -> None:
    file = DATA / "machine_temperature.csv"
    hours: dict[datetime, list[float]] = defaultdict(list)
    with file.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            at = datetime.fromisoformat(row["timestamp"])
            hours[at.replace(minute=0, second=0)].append(float(row["value"]))

    reader = ps.read.csv(str(file), schema={"timestamp": datetime, "value": float}, batch=5_000)
    # A clock change repeats an hour of the file, so rows come up to an hour behind.
    rows = case.graph.source(reader, time="timestamp", delay="2 h")
    means = rows.window(ps.tumbling("1 h"), name="means").aggregate(mean=ps.mean("value"), n=ps.count())
    outcome = case.run(means)
    got = {row["window_start"]: row for row in outcome.rows()}
    assert outcome.account("means").late == 0
    assert {at: row["n"] for at, row in got.items()} == {at: len(values) for at, values in hours.items()}
    for at, values in hours.items():
        assert got[at]["mean"] == pytest.approx(sum(values) / len(values), rel=1e-9)


def test_the_words_of_a_novel(case: Case) -> None:
    def words(row: ps.Row) -> list[dict[str, str]]:
        """Parted by single blanks; a blank at the end of a line begins no word."""
        return [{"word": word} for word in str(row["line"]).removesuffix(" ").split(" ") if row["line"]]

    source = case.graph.source(ps.read.text(str(DATA / "book.dat"), batch=500))
    counts = (
        source.flat_map(words, schema={"word": "string"}, name="words")
        .key_by("word")
        .accumulate(lambda row, n: n + 1, 0, schema={"n": "int64"})
    )
    outcome = case.run(counts)
    most: dict[str, int] = {}
    for row in outcome.rows():
        most[row["word"]] = max(row["n"], most.get(row["word"], 0))
    assert (outcome.account("words").rows_out, len(most)) == (83_057, 7_970)
    assert (most["the"], most["and"], most["of"], most["a"], most["to"]) == (
        4_089,
        2_755,
        2_447,
        1_913,
        1_747,
    )
    assert sum(most.values()) == 83_057
