"""Results survive JSON, read well as text, and make a page that is safe to open."""

from __future__ import annotations

import getpass
import json
import platform
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench import BenchError, Case, Way, Workload, build_page, format_result, load_result, measure, to_json
from bench.machine import commit_of
from bench.text import align_columns, format_duration, format_number, format_rate
from tests.bench.sorting import ScriptedClock, measured, sorting


def test_a_result_read_back_is_the_result_written(tmp_path: Path) -> None:
    clock = ScriptedClock()
    result = measure(sorting(clock), rounds=3, warm_up=1, clock=clock)
    file = tmp_path / "result.json"
    file.write_text(to_json(result))
    assert load_result(file) == result


def test_the_json_names_its_schema_and_holds_every_sample() -> None:
    clock = ScriptedClock()
    fields = json.loads(to_json(measure(sorting(clock), rounds=3, warm_up=1, clock=clock)))
    assert (fields["kind"], fields["schema"], fields["workload"]) == ("penstock-bench", 2, "sorting")
    assert fields["figures"][1]["samples_ns"] == [300, 300, 300]
    assert {"python", "penstock", "pyarrow", "numpy"} <= set(fields["versions"])
    assert fields["machine"]["cores"] >= 1


def test_the_json_holds_no_path_host_or_user_name() -> None:
    text = to_json(measured())
    assert str(Path.cwd()) not in text
    assert str(Path.home()) + "/" not in text
    for name in (platform.node(), getpass.getuser()):
        assert not re.search(rf"\b{re.escape(name)}\b", text)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("{", "is not a JSON file"),
        ("[1, 2]", "is not a benchmark result"),
        ('{"kind": "other"}', "is not a benchmark result"),
        ('{"kind": "penstock-bench", "schema": 99}', "has schema version 99; this Penstock reads version 2"),
        ('{"kind": "penstock-bench", "schema": 2}', "is damaged"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, text: str, fact: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(text)
    with pytest.raises(BenchError, match=fact):
        load_result(file)


def test_a_missing_result_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(BenchError) as caught:
        load_result(tmp_path / "none.json")
    assert caught.value.hint == "write one with: python -m bench NAME --json FILE"


def test_the_report_gives_claims_then_ratios_then_figures() -> None:
    clock = ScriptedClock()
    text = format_result(measure(sorting(clock), rounds=3, clock=clock))
    assert (
        "HELD: insertion costs at most 5x (measured 3.00x, quartiles 3.00x to 3.00x; wanted at most 5.00x)"
        in text
    )
    assert "insertion  3.00x (3.00 to 3.00)" in text
    last = next(line for line in text.splitlines() if line.endswith("33.3 M rows/s") and "many" in line)
    assert " ".join(last.split()) == "many insertion 3.00 us 3.00 us to 3.00 us 3.00 us 33.3 M rows/s"
    assert text.index("HELD:") < text.index("time against") < text.index("median")


def test_a_claim_that_does_not_hold_is_said_loudly() -> None:
    clock = ScriptedClock()
    result = measure(sorting(clock, factor=9), rounds=1, clock=clock)
    assert "NOT HELD: insertion costs at most 5x" in format_result(result)


def test_the_report_says_so_when_the_machine_was_busy() -> None:
    result = measured()
    assert "busy" not in format_result(result)
    assert "busy" in format_result(replace(result, machine=replace(result.machine, load=99.0)))


class Tags(HTMLParser):
    """The tags and attribute values of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.values: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.values += [value or "" for _, value in attrs]


def test_the_page_is_self_contained_and_draws_every_case() -> None:
    clock = ScriptedClock()
    found = Tags(build_page(measure(sorting(clock), rounds=3, clock=clock)))
    assert found.tags.count("svg") == 2
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert not [value for value in found.values if "://" in value or value.startswith("//")]


def test_names_from_a_workload_cannot_become_markup() -> None:
    nasty = '<script>alert("&")</script>'
    workload = Workload(nasty, nasty, (Case(nasty, lambda seed: [1]),), (Way(nasty, len),), oracle=len)
    text = build_page(measure(workload, rounds=1))
    assert "<script>" not in text
    assert "&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12.34, "12.3 s"), (1.0, "1.00 s"), (0.0123, "12.3 ms"), (0.000004, "4.00 us"), (3e-8, "0.030 us")],
)
def test_a_duration_has_three_digits_and_a_fitting_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_rates_and_large_numbers_are_readable() -> None:
    assert format_rate(1_250_000, "rows") == "1.25 M rows/s"
    assert format_rate(12, "rows") == "12.0 rows/s"
    assert format_number(1_234_567.0) == "1,234,567"


def test_columns_are_aligned_without_trailing_space() -> None:
    assert align_columns([["a", "bb"], ["ccc", "d"], ["e", ""]]) == "a    bb\nccc  d\ne"


def test_the_commit_is_that_of_the_code_and_of_nothing_else(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None
    commit = commit_of(Path(__file__).parent)
    assert commit is None or len(commit.id) == 40
