"""Faster, slower or within noise, and what is refused or warned about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench import BenchError, Cell, Result, compare, format_comparison
from tests.support.sort_workload import build_result

STEADY = (100, 101, 102, 103, 104)


def judgement_of(after: tuple[int, ...], before: tuple[int, ...] = STEADY) -> str:
    return compare(build_result(built_in=before), build_result(built_in=after)).changes[0].judgement


@pytest.mark.parametrize(
    ("after", "judgement"),
    [
        ((100, 101, 102, 103, 104), "within noise"),
        ((104, 105, 106, 107, 108), "within noise"),  # 3.9 % apart: below the floor
        ((112, 113, 114, 115, 116), "slower"),
        ((90, 91, 92, 93, 94), "faster"),
        ((80, 101, 150, 160, 170), "within noise"),  # 47 % apart, but the quartiles overlap
    ],
)
def test_a_change_counts_when_it_exceeds_the_floor_and_the_quartiles_are_apart(
    after: tuple[int, ...], judgement: str
) -> None:
    assert judgement_of(after) == judgement


def test_with_few_rounds_the_whole_ranges_must_be_apart() -> None:
    assert judgement_of((150, 151, 200), before=(100, 101, 152)) == "within noise"
    assert judgement_of((153, 160, 200), before=(100, 101, 152)) == "slower"


def test_the_floor_can_be_raised() -> None:
    after = build_result(built_in=(112, 113, 114, 115, 116))
    assert not compare(build_result(built_in=STEADY), after, floor=0.2).slower
    assert compare(build_result(built_in=STEADY), after).slower


def test_the_ratio_is_after_over_before() -> None:
    change = compare(build_result(built_in=(100,) * 5), build_result(built_in=(50,) * 5)).changes[0]
    assert (change.cell, change.ratio) == (Cell("few", "built-in"), 0.5)


@pytest.mark.parametrize(
    ("other", "fact"),
    [
        (
            build_result(workload="joins"),
            'results of workload "sorting" and workload "joins" cannot be compared',
        ),
        (replace(build_result(), size="quick"), 'results of size "full" and size "quick" cannot be compared'),
        (replace(build_result(), seed=2), 'results of seed "1" and seed "2" cannot be compared'),
    ],
)
def test_results_of_different_work_are_refused(other: Result, fact: str) -> None:
    with pytest.raises(BenchError) as caught:
        compare(build_result(), other)
    assert caught.value.fact == fact


def test_cells_of_only_one_result_are_listed_not_judged() -> None:
    before = build_result()
    after = replace(before, figures=before.figures[:1])
    assert compare(before, after).only_before == (Cell("few", "insertion"),)
    assert compare(after, before).only_after == (Cell("few", "insertion"),)


def test_another_machine_another_python_a_busy_machine_and_few_rounds_are_warned_about() -> None:
    before = build_result()
    machine = replace(before.machine, cpu="Another", cores=4, load=9.0)
    after = replace(before, machine=machine, rounds=3, versions={**before.versions, "python": "3.99.0"})
    assert compare(before, before).warnings == ()
    text = "\n".join(compare(before, after).warnings)
    for part in ("the machines differ", "python differs", "was busy", "only 3 rounds"):
        assert part in text


def test_the_report_of_a_comparison_says_how_noise_is_judged() -> None:
    text = format_comparison(compare(build_result(), build_result(insertion=(600,) * 5)))
    assert "2.00x   0.300 us  0.600 us  slower" in text
    assert "medians less than 5% apart, or overlapping inter-quartile ranges" in text
