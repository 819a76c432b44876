"""Spreads agree with the standard library, and results survive JSON."""

from __future__ import annotations

import getpass
import json
import platform
import re
import statistics
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import BenchError, load_result, measure, to_json
from bench.result import spread_of
from tests.support.sort_workload import ScriptedClock, build_result, build_sorting

samples = st.lists(st.integers(0, 10**9), min_size=2, max_size=40)


def test_the_median_of_five_is_the_third_and_the_quartiles_its_neighbours() -> None:
    spread = spread_of([9, 1, 7, 3, 5])
    assert (spread.least, spread.low, spread.median, spread.high, spread.greatest) == (1, 3, 5, 7, 9)


def test_one_sample_is_its_own_spread() -> None:
    spread = spread_of([4])
    assert (spread.least, spread.low, spread.median, spread.high, spread.greatest) == (4, 4, 4, 4, 4)


@settings(deadline=None)
@given(samples)
def test_quartiles_agree_with_the_inclusive_method_of_the_standard_library(values: list[int]) -> None:
    spread = spread_of(values)
    expected = statistics.quantiles(values, n=4, method="inclusive")
    for ours, theirs in zip((spread.low, spread.median, spread.high), expected, strict=True):
        assert abs(ours - theirs) <= 1e-9 * max(1.0, abs(theirs))


def test_ranges_that_share_one_point_overlap() -> None:
    assert spread_of([1, 2, 3]).overlaps(spread_of([2, 3, 4]))
    assert not spread_of([1, 2, 3]).overlaps(spread_of([5, 6, 7]))


def test_a_result_read_back_is_the_result_written(tmp_path: Path) -> None:
    clock = ScriptedClock()
    result = measure(build_sorting(clock), rounds=3, warm_up=1, clock=clock)
    file = tmp_path / "result.json"
    file.write_text(to_json(result))
    assert load_result(file) == result


def test_the_json_names_its_schema_and_holds_every_sample() -> None:
    clock = ScriptedClock()
    fields = json.loads(to_json(measure(build_sorting(clock), rounds=3, warm_up=1, clock=clock)))
    assert (fields["kind"], fields["schema"], fields["workload"]) == ("penstock-bench", 2, "sorting")
    assert fields["figures"][1]["samples_ns"] == [300, 300, 300]
    assert {"python", "penstock", "pyarrow", "numpy"} <= set(fields["versions"])
    assert fields["machine"]["cores"] >= 1


def test_the_json_holds_no_path_host_or_user_name() -> None:
    text = to_json(build_result())
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
